"""Read files below a folder without following any link on the way."""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from reconciler.api.errors import SourceError
from reconciler.lookalike import lookalike
from reconciler.source.tree import repository_path

# errno values for a link in place of a file or folder, and for anything that is not a regular file.
NOT_FOLLOWED = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.EINVAL})
# A file that changed this recently may change again within one tick of its clock, at the same size.
# Two seconds is the coarsest clock (FAT) that a fleet may be stored on.
_SETTLED_NS = 2_000_000_000


class Stamp(NamedTuple):
    """Shows that a file is unchanged, without reading it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int


class Folders:
    """Opens files step by step from the root; the last folder stays open for the next file."""

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = ""
        self._last = self._root

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()
        os.close(self._root)

    def stat(self, path: str) -> os.stat_result:
        """The stat of the file itself, also if it is a link. Raises OSError."""
        folder, _, name = path.rpartition("/")
        return os.stat(name, dir_fd=self._enter(folder), follow_symlinks=False)

    def open(self, path: str) -> io.BufferedReader:
        """Open a regular file. Raises OSError, with an errno of NOT_FOLLOWED for a link."""
        folder, _, name = path.rpartition("/")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would wait
        handle = os.open(name, flags, dir_fd=self._enter(folder))
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            os.close(handle)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, "is a folder")
            raise OSError(errno.EINVAL, "is not a regular file")
        return os.fdopen(handle, "rb")

    def read(self, path: str, limit: int) -> bytes:
        """At most `limit` bytes of a regular file. Raises OSError like `open`.

        The buffer is as large as the file. One as large as the limit would be cut to what was read
        and keep a memory mapping for each file; Linux allows 65,530.
        """
        with self.open(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size + 1, limit))
            return data + file.read(limit - len(data)) if len(data) > size else data  # it grew

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted. Raises OSError, with an errno of NOT_FOLLOWED for a
        link."""
        return sorted(os.listdir(self._enter(folder)))

    def below(self, folder: str) -> tuple[str, ...]:
        """The regular files below a folder, sorted, without hidden ones. Raises OSError, with an
        errno of NOT_FOLLOWED and the path for a link."""
        pending, folders = [folder], []
        while pending:
            here = pending.pop()
            with os.scandir(self._enter(here)) as entries:
                for entry in entries:
                    path = f"{here}/{entry.name}"
                    if entry.name.startswith("."):
                        continue
                    if entry.is_symlink():
                        raise OSError(errno.ELOOP, "is a symbolic link", path)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        folders.append(path)
        return tuple(sorted(folders))

    def _enter(self, folder: str) -> int:
        if folder == self._name:
            return self._last
        self._leave()
        at = self._root
        for part in folder.split("/") if folder else ():
            try:
                below = os.open(
                    part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at
                )
            finally:
                if at != self._root:
                    os.close(at)
            at = below
        self._name, self._last = folder, at
        return at

    def _leave(self) -> None:
        if self._last != self._root:
            os.close(self._last)
        self._name, self._last = "", self._root


def files_below(root: Path, path: str) -> tuple[str, ...]:
    """See Checkout.folder; this is for files on disk."""
    path = repository_path(path)
    try:
        with Folders(root) as folders:
            return folders.below(path)
    except OSError as error:
        if error.errno == errno.ENOENT and (found := lookalike(path, names_below(root))):
            raise SourceError(f"{path}: there is no such folder; {found}") from error
        where = error.filename if error.errno == errno.ELOOP and error.filename else path
        raise SourceError(
            f"{where}: cannot be read as part of a model's folder: {error.strerror};"
            " links are never followed"
        ) from error


def names_below(root: Path) -> Callable[[str], list[str]]:
    """List folders below `root` by their paths, without following links. Raises OSError."""

    def names_in(folder: str) -> list[str]:
        with Folders(root) as folders:
            return folders.names("" if folder == "." else folder)

    return names_in


def stamp(facts: os.stat_result) -> Stamp:
    return Stamp(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_dev)


def is_settled(status: Stamp) -> bool:
    """Whether the stamp is old enough to be trusted."""
    return time.time_ns() - max(status.mtime_ns, status.ctime_ns) > _SETTLED_NS
