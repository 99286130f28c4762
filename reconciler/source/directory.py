"""A plain folder as the source of a fleet: no git, no history, links never followed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from reconciler.errors import SourceError
from reconciler.fleet import RepositoryFile
from reconciler.source.checkout import YamlFile
from reconciler.source.tree import (
    GROUP_MARK,
    IGNORE_FILE,
    LFS_MARK,
    MAX_FILE_BYTES,
    describe_lfs,
    ignore_matcher,
    is_candidate,
    is_excluded,
    is_fleet_file,
    repository_path,
    subdirectory,
)

# A file that changed this recently may change again within one tick of its clock, with the same
# size: its bytes are read again. Two seconds is the coarsest clock (FAT) that a fleet may lie on.
_SETTLED_NS = 2_000_000_000
_HEAD_BYTES = 64
_Stamp = tuple[int, int, int, int]  # size, mtime_ns, inode, device


@dataclass(frozen=True, slots=True)
class _Entry:
    """One candidate as the listing saw it. `stamp` is None for a symbolic link."""

    path: str
    stamp: _Stamp | None


class DirectorySource:
    """A folder, read anew at every fetch; unchanged files cost a stat."""

    def __init__(self, path: Path, subdir: str | None = None) -> None:
        self.location = str(path)
        self._root = path
        self._subdir = subdir
        self._texts: dict[str, tuple[_Stamp, bytes, str]] = {}
        self._digests: dict[str, tuple[_Stamp, str]] = {}

    def fetch(self) -> DirectoryCheckout:
        """What the folder holds now. Raises SourceError: it is not there, or not readable."""
        subdir = subdirectory(self._subdir)
        ignored = ignore_matcher(self._ignore_file())
        self._require_folder(subdir)
        known, self._texts = self._texts, {}
        entries = [e for e in _candidates(self._root, subdir) if not ignored(e.path)]
        for entry in entries:
            text = self._read(entry, known.get(entry.path))
            if text:
                self._texts[entry.path] = text
        links = frozenset(entry.path for entry in entries if entry.stamp is None)
        return DirectoryCheckout(self._root, dict(self._texts), links, self._digests)

    def _require_folder(self, subdir: str) -> None:
        folder = self._root
        for part in subdir.split("/") if subdir else ():
            folder = folder / part
            if folder.is_symlink():
                raise SourceError(_describe_link(subdir))
        try:
            os.scandir(folder).close()
        except OSError as error:
            raise SourceError(
                f"{folder}: {error.strerror}; give the folder of the fleet with -C"
            ) from error

    def _ignore_file(self) -> str | None:
        with contextlib.suppress(OSError):
            data = _read_regular(self._root / IGNORE_FILE, MAX_FILE_BYTES)
            return data.decode("utf-8", errors="replace")
        return None

    def _read(
        self, entry: _Entry, known: tuple[_Stamp, bytes, str] | None
    ) -> tuple[_Stamp, bytes, str] | None:
        """(stamp, bytes, digest) of a file; None where it vanished or cannot be read."""
        if entry.stamp is None:
            return None
        if known and known[0] == entry.stamp and _is_settled(entry.stamp):
            return known
        try:
            data = _read_regular(self._root / entry.path, MAX_FILE_BYTES + 1)
        except FileNotFoundError:  # deleted since the listing: absent, as the next look will say
            return None
        except OSError as error:
            raise SourceError(f"{self._root / entry.path}: {error.strerror}") from error
        digest = hashlib.sha256(data).hexdigest()
        # Of what is not ours only the first line matters: a Flux repository has much of it.
        return entry.stamp, data if GROUP_MARK in data else data[:_HEAD_BYTES], digest


class DirectoryCheckout:
    """The YAML files as they were at one moment; model files are read when they are asked for."""

    def __init__(
        self,
        root: Path,
        texts: dict[str, tuple[_Stamp, bytes, str]],
        links: frozenset[str],
        digests: dict[str, tuple[_Stamp, str]],
    ) -> None:
        self._root, self._texts, self._links, self._digests = root, texts, links, digests
        whole = hashlib.sha256()
        for path, (_, data, digest) in sorted(texts.items()):
            if is_fleet_file(data):
                whole.update(f"{path}\0{digest}\0".encode("utf-8", errors="surrogateescape"))
        self.revision = f"dir:{whole.hexdigest()[:8]}"
        self.commit: str | None = None

    def yaml_files(self, held: Collection[str] = ()) -> Iterator[YamlFile]:
        for path in sorted({*self._texts, *(self._links & set(held))}):
            if path in self._links:  # a file of the fleet that became a link holds nothing now
                yield YamlFile(path, b"", "link")
                continue
            _, data, digest = self._texts[path]
            if is_fleet_file(data) or (path in held and not is_excluded(data)):
                yield YamlFile(path, data, digest)

    def model_file(self, path: str) -> RepositoryFile:
        path = repository_path(path)
        with self._open(path) as file:
            stamp = _stamp(os.fstat(file.fileno()))
            known = self._digests.get(path)
            if known and known[0] == stamp and _is_settled(stamp):
                return RepositoryFile(path, stamp[0], known[1])
            try:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise SourceError(f"{path}: {error.strerror}") from error
        self._digests[path] = (stamp, digest)
        return RepositoryFile(path, stamp[0], digest)

    def open(self, path: str) -> BinaryIO:
        return self._open(repository_path(path))

    def commit_of(self, path: str) -> str | None:
        """A folder has no commits."""
        return None

    def _open(self, path: str) -> io.BufferedReader:
        """Step by step from the root, so that no folder on the way is a link either."""
        folder = self._root
        for part in path.split("/")[:-1]:
            folder = folder / part
            if folder.is_symlink():
                raise SourceError(_describe_link(str(folder.relative_to(self._root))))
        try:
            file = _open_regular(self._root / path)
        except OSError as error:
            raise SourceError(_describe(self._root / path, path, error)) from error
        head = file.read(len(LFS_MARK))
        file.seek(0)
        if head == LFS_MARK:
            file.close()
            raise SourceError(describe_lfs(path))
        return file


def _candidates(root: Path, subdir: str) -> list[_Entry]:
    """Every YAML file below `subdir` by name, sorted; folders that are links are not entered."""
    found: list[_Entry] = []
    pending = [subdir]
    while pending:
        folder = pending.pop()
        try:
            listing = list(os.scandir(root / folder))
        except FileNotFoundError:  # deleted since its parent was listed
            continue
        except OSError as error:
            raise SourceError(f"{root / folder}: {error.strerror}; make it readable") from error
        for item in listing:
            path = f"{folder}/{item.name}" if folder else item.name
            if item.is_dir(follow_symlinks=False):
                if not item.name.startswith("."):
                    pending.append(path)
            elif is_candidate(path, subdir):
                found += _entry(item, path)
    return sorted(found, key=lambda entry: entry.path)


def _entry(item: os.DirEntry[str], path: str) -> list[_Entry]:
    """Of a file or a link; nothing of a pipe, a socket or what vanished."""
    if item.is_symlink():
        return [_Entry(path, None)]
    try:
        status = item.stat(follow_symlinks=False)
    except OSError:
        return []
    return [_Entry(path, _stamp(status))] if stat.S_ISREG(status.st_mode) else []


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev


def _is_settled(stamp: _Stamp) -> bool:
    return time.time_ns() - stamp[1] > _SETTLED_NS


def _open_regular(path: Path) -> io.BufferedReader:
    """Open a file that is no link and no pipe (O_NONBLOCK: opening a pipe would wait)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "is no file")
    return os.fdopen(descriptor, "rb")


def _read_regular(path: Path, limit: int) -> bytes:
    with _open_regular(path) as file:
        return file.read(limit)


def _describe(path: Path, name: str, error: OSError) -> str:
    if path.is_symlink():
        return _describe_link(name)
    if isinstance(error, FileNotFoundError):
        return f"{name} is not in the fleet's folder; put it there, or correct spec.source"
    if path.is_dir():
        return f"{name} is a folder; name one file in it"
    return f"{name} cannot be read: {error.strerror}; make it a readable file"


def _describe_link(name: str) -> str:
    return f"{name} is a symbolic link, which is never followed; put the file itself there"
