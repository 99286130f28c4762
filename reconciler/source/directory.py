"""A plain folder as the source of a fleet: no git, no history, links never followed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from reconciler.errors import SourceError
from reconciler.fleet import RepositoryFile
from reconciler.source.checkout import YamlFile
from reconciler.source.folders import (
    NOT_FOLLOWED,
    Folders,
    Stamp,
    files_below,
    is_settled,
    stamp,
)
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

_HEAD_BYTES = 64


class _Text(NamedTuple):
    """The bytes of one file, and what tells that they are still the same."""

    stamp: Stamp
    data: bytes
    digest: str
    is_ours: bool


class _Entry(NamedTuple):
    """One candidate as the listing saw it. `stamp` is None for a symbolic link."""

    path: str
    stamp: Stamp | None


class DirectorySource:
    """A folder, read anew at every fetch; unchanged files cost a stat."""

    def __init__(self, path: Path, subdir: str | None = None) -> None:
        self.location = str(path)
        self._root = path
        self._subdir = subdir
        self._texts: dict[str, _Text] = {}
        self._digests: dict[str, tuple[Stamp, str]] = {}

    def fetch(self) -> DirectoryCheckout:
        """What the folder holds now. Raises SourceError: it is not there, or not readable."""
        subdir = subdirectory(self._subdir)
        try:
            with Folders(self._root) as folders:
                return self._fetch(folders, subdir)
        except OSError as error:  # the root itself; files say what is wrong with them
            raise SourceError(
                f"{self._root / subdir}: {error.strerror}; give the folder of the fleet with -C"
            ) from error

    def _fetch(self, folders: Folders, subdir: str) -> DirectoryCheckout:
        if subdir:
            _require_folder(folders, subdir)
        ignored = ignore_matcher(_ignore_text(folders))
        known, self._texts = self._texts, {}
        entries = [e for e in _candidates(self._root, subdir) if not ignored(e.path)]
        for entry in entries:
            text = self._read(folders, entry, known.get(entry.path))
            if text:
                self._texts[entry.path] = text
        links = frozenset(entry.path for entry in entries if entry.stamp is None)
        return DirectoryCheckout(self._root, dict(self._texts), links, self._digests)

    def _read(self, folders: Folders, entry: _Entry, known: _Text | None) -> _Text | None:
        """None where it vanished, or became a link, since it was listed."""
        if entry.stamp is None:
            return None
        if known and known.stamp == entry.stamp and is_settled(entry.stamp):
            return known
        try:
            with folders.open(entry.path) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or error.errno in NOT_FOLLOWED:
                return None
            raise SourceError(
                f"{self._root / entry.path}: {error.strerror}; make it readable"
            ) from error
        digest = hashlib.sha256(data).hexdigest()
        # Of what is not ours only the first line matters: a Flux repository has much of it.
        shown = data if GROUP_MARK in data else data[:_HEAD_BYTES]
        return _Text(entry.stamp, shown, digest, is_fleet_file(shown))


class DirectoryCheckout:
    """The YAML files as they were at one moment; model files are read when they are asked for."""

    def __init__(
        self,
        root: Path,
        texts: dict[str, _Text],
        links: frozenset[str],
        digests: dict[str, tuple[Stamp, str]],
    ) -> None:
        self._root, self._texts, self._links, self._digests = root, texts, links, digests
        whole = hashlib.sha256()
        for path, text in sorted(texts.items()):
            if text.is_ours:
                whole.update(f"{path}\0{text.digest}\0".encode("utf-8", errors="surrogateescape"))
        self.revision = f"dir:{whole.hexdigest()[:8]}"
        self.commit: str | None = None

    def yaml_files(self, held: Collection[str] = ()) -> Iterator[YamlFile]:
        for path in sorted({*self._texts, *(self._links & set(held))}):
            if path in self._links:  # a file of the fleet that became a link holds nothing now
                yield YamlFile(path, b"", "link")
                continue
            text = self._texts[path]
            if text.is_ours or (path in held and not is_excluded(text.data)):
                yield YamlFile(path, text.data, text.digest)

    def model_file(self, path: str) -> RepositoryFile:
        path = repository_path(path)
        with self._open(path) as file:
            found = stamp(os.fstat(file.fileno()))
            known = self._digests.get(path)
            if known and known[0] == found and is_settled(found):
                return RepositoryFile(path, found.size, known[1])
            try:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise SourceError(f"{path}: {error.strerror}") from error
        self._digests[path] = (found, digest)
        return RepositoryFile(path, found.size, digest)

    def folder(self, path: str) -> tuple[str, ...]:
        return files_below(self._root, path)

    def open(self, path: str) -> BinaryIO:
        return self._open(repository_path(path))

    def commit_of(self, path: str) -> str | None:
        """A folder has no commits."""
        return None

    def _open(self, path: str) -> io.BufferedReader:
        try:
            with Folders(self._root) as folders:
                file = folders.open(path)
        except OSError as error:
            raise SourceError(_why_not(self._root, path, error)) from error
        head = file.read(len(LFS_MARK))
        file.seek(0)
        if head == LFS_MARK:
            file.close()
            raise SourceError(describe_lfs(path))
        return file


def _require_folder(folders: Folders, subdir: str) -> None:
    """`--path` must be there: an empty answer would look like a fleet without anything."""
    try:
        folders.stat(f"{subdir}/.")
    except OSError as error:
        raise SourceError(
            f"--path {subdir}: there is no such folder (links do not count)"
        ) from error


def _ignore_text(folders: Folders) -> str | None:
    with contextlib.suppress(OSError), folders.open(IGNORE_FILE) as file:
        return file.read(MAX_FILE_BYTES).decode("utf-8", errors="replace")
    return None


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
    with contextlib.suppress(FileNotFoundError):
        facts = item.stat(follow_symlinks=False)
        if stat.S_ISLNK(facts.st_mode):
            return [_Entry(path, None)]
        if stat.S_ISREG(facts.st_mode):
            return [_Entry(path, stamp(facts))]
    return []


def _why_not(root: Path, path: str, error: OSError) -> str:
    """Why a model file cannot be opened, and what to do."""
    at = root
    for part in path.split("/"):
        at = at / part
        if at.is_symlink():
            name = at.relative_to(root)
            return f"{name} is a symbolic link, which is never followed; put the file itself there"
    if isinstance(error, FileNotFoundError):
        return f"{path} is not in the fleet's folder; put it there, or correct spec.source"
    if at.is_dir():
        return f"{path} is a folder; write {path}/ for the whole of it, or name a file in it"
    return f"{path} cannot be read: {error.strerror}; make it a readable file"
