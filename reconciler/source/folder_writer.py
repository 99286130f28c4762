"""Write files below a folder without following any link on the way: a repository's author may have
made one that leads anywhere."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LinkInTheWay(OSError):
    """`filename` is the link, below the folder that is written."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, f"{path} is a link, and links are never followed", path)


class FolderWriter:
    """Paths are relative, of plain parts. Its methods raise OSError, LinkInTheWay among them."""

    def __init__(self, root: Path, *, named: bool = True) -> None:
        """`named`: a person chose this folder, and it may be a link. Else it is made if it is not
        there, and no part of its path from here on is followed. Raises OSError."""
        self._root = os.open(root, _FOLDER) if named else _made(root)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._root)

    def exists(self, path: str) -> bool:
        """Whether anything has the name, also a link that leads nowhere."""
        try:
            with self._folder_of(path) as (at, name):
                os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def read(self, path: str) -> bytes | None:
        """What a regular file holds; None: nothing is there."""
        try:
            with self._folder_of(path) as (at, name):
                mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
                if stat.S_ISLNK(mode):
                    raise LinkInTheWay(path)
                if not stat.S_ISREG(mode):
                    raise IsADirectoryError(errno.EISDIR, "is not a regular file", path)
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with open(os.open(name, flags, dir_fd=at), "rb") as file:
                    return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, path: str, data: bytes) -> None:
        """A new file, and its folders. Raises FileExistsError: anything has the name."""
        with self._folder_of(path, make=True) as (at, name):
            _write(at, name, data, 0o666)

    def replace(self, path: str, data: bytes, *, mode: int = 0o666) -> None:
        """By a rename, so that no reader sees half of it; a link of that name is replaced."""
        with self._folder_of(path, make=True) as (at, name):
            temporary = f".{name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
            try:
                _write(at, temporary, data, mode)
                os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=at)
                raise

    def rewrite(self, path: str, before: bytes, after: bytes | None) -> bool:
        """A file that is there, with its mode; None removes it. False: it does not hold `before`
        any more, and stays as it is."""
        if self.read(path) != before:
            return False
        if after is None:
            self.remove(path)
            return True
        with self._folder_of(path) as (at, name):
            mode = stat.S_IMODE(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
        self.replace(path, after, mode=mode)
        return True

    def remove(self, path: str) -> None:
        """The file, and the folders that are empty without it."""
        with contextlib.suppress(FileNotFoundError), self._folder_of(path) as (at, name):
            os.unlink(name, dir_fd=at)
        for folder in PurePosixPath(path).parents:
            if folder.name:
                try:
                    with self._folder_of(str(folder)) as (at, name):
                        os.rmdir(name, dir_fd=at)
                except OSError:
                    return

    @contextmanager
    def _folder_of(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """(the folder, the last part of the path)."""
        *folders, name = PurePosixPath(path).parts
        at = _walked(os.dup(self._root), folders, make=make)
        try:
            yield at, name
        finally:
            os.close(at)


def _made(root: Path) -> int:
    """A folder by its path from here; what lies outside of here is reached as the system says."""
    here = Path.cwd()
    if root.is_relative_to(here):
        root = root.relative_to(here)
    if not root.is_absolute():
        return _walked(os.open(".", _FOLDER), root.parts, make=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    last = (root.name,) if root.name else ()
    return _walked(os.open(root.parent, _FOLDER), last, make=True)


def _walked(at: int, parts: list[str] | tuple[str, ...], *, make: bool) -> int:
    """The folder below `at`, which is closed."""
    for count, part in enumerate(parts, 1):
        try:
            below = _step(at, part, "/".join(parts[:count]), make=make)
        finally:
            os.close(at)
        at = below
    return at


def _step(at: int, part: str, path: str, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, dir_fd=at)
    try:
        return os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            if stat.S_ISLNK(os.stat(part, dir_fd=at, follow_symlinks=False).st_mode):
                raise LinkInTheWay(path) from error
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is not a folder", path) from error
        raise


def _write(at: int, name: str, data: bytes, mode: int) -> None:
    """A new file, or none where the disk does not take it whole."""
    try:
        with open(os.open(name, _NEW, mode, dir_fd=at), "wb") as file:
            file.write(data)
    except FileExistsError:
        raise
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=at)
        raise
