"""A plain folder as the source of a fleet: no git, no history, links are never followed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from reconciler.api.errors import SourceError
from reconciler.fleet.fleet import RepositoryFile
from reconciler.source.checkout import YamlFile
from reconciler.source.disk import Digests, DiskFiles
from reconciler.source.folders import NOT_FOLLOWED, Folders, Stamp, is_settled, stamp
from reconciler.source.mark import may_be_ours
from reconciler.source.tree import (
    IGNORE_FILE,
    MAX_FILE_BYTES,
    ignore_matcher,
    is_candidate,
    is_excluded,
    is_fleet_file,
    subdirectory,
)

_HEAD_BYTES = 64


class _Text(NamedTuple):
    """The bytes of one file, and a stamp that shows whether it has changed."""

    stamp: Stamp
    data: bytes
    digest: str
    is_ours: bool


class _Entry(NamedTuple):
    """One candidate in the listing. `stamp` is None for a symbolic link."""

    path: str
    stamp: Stamp | None


class DirectorySource:
    """A folder, read again at every fetch; unchanged files cost a stat."""

    def __init__(self, path: Path, subdir: str | None = None) -> None:
        self.location = str(path)
        self._root = path
        self._subdir = subdir
        self.folder = (subdir or "").strip("/")
        self._texts: dict[str, _Text] = {}
        self._digests: Digests = {}

    def fetch(self) -> DirectoryCheckout:
        """The folder as it is now. Raises SourceError if it is missing or not readable."""
        subdir = subdirectory(self._subdir)
        try:
            with Folders(self._root) as folders:
                return self._fetch(folders, subdir)
        except OSError as error:  # the root itself; errors of files name the file
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
        models = DiskFiles(self._root, self._digests)
        return DirectoryCheckout(dict(self._texts), links, models)

    def _read(self, folders: Folders, entry: _Entry, known: _Text | None) -> _Text | None:
        """None if the file vanished or became a link since it was listed."""
        if entry.stamp is None:
            return None
        if known and known.stamp == entry.stamp and is_settled(entry.stamp):
            return known
        try:
            data = folders.read(entry.path, MAX_FILE_BYTES + 1)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or error.errno in NOT_FOLLOWED:
                return None
            raise SourceError(
                f"{self._root / entry.path}: {error.strerror}; make it readable"
            ) from error
        digest = hashlib.sha256(data).hexdigest()
        # Of a file that is not ours only the first line matters: a Flux repository has many of
        # those.
        shown = data if may_be_ours(data) else data[:_HEAD_BYTES]
        return _Text(entry.stamp, shown, digest, is_fleet_file(shown))


class DirectoryCheckout:
    """The YAML files as they were when fetched; model files are read on demand."""

    def __init__(
        self,
        texts: dict[str, _Text],
        links: frozenset[str],
        models: DiskFiles,
    ) -> None:
        self._texts, self._links, self._models = texts, links, models
        whole = hashlib.sha256()
        for path, text in sorted(texts.items()):
            if text.is_ours:
                whole.update(f"{path}\0{text.digest}\0".encode("utf-8", errors="surrogateescape"))
        self.revision = f"dir:{whole.hexdigest()[:8]}"
        self.commit: str | None = None

    def yaml_files(self, held: Collection[str] = ()) -> Iterator[YamlFile]:
        for path in sorted({*self._texts, *(self._links & set(held))}):
            if path in self._links:  # a file that became a link counts as empty
                yield YamlFile(path, b"", "link")
                continue
            text = self._texts[path]
            if text.is_ours or (path in held and not is_excluded(text.data)):
                yield YamlFile(path, text.data, text.digest)

    def model_file(self, path: str) -> RepositoryFile:
        return self._models.model_file(path)

    def folder(self, path: str) -> tuple[str, ...]:
        return self._models.folder(path)

    def open(self, path: str) -> BinaryIO:
        return self._models.open(path)

    def changes(self) -> Mapping[str, object]:
        return self._models.changes()

    def commit_of(self, path: str) -> str | None:
        """A folder has no commits."""
        return None


def _require_folder(folders: Folders, subdir: str) -> None:
    """`--path` must exist: an empty result would look like a fleet without services."""
    try:
        folders.stat(f"{subdir}/.")
    except OSError as error:
        raise SourceError(f"--path {subdir}: no such folder (links do not count)") from error


def _ignore_text(folders: Folders) -> str | None:
    with contextlib.suppress(OSError), folders.open(IGNORE_FILE) as file:
        return file.read(MAX_FILE_BYTES).decode("utf-8", errors="replace")
    return None


def _candidates(root: Path, subdir: str) -> list[_Entry]:
    """Every YAML file below `subdir`, sorted by name; folders that are links are not entered."""
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
    """The entry of a file or link; none for a pipe, a socket or a file that vanished."""
    with contextlib.suppress(FileNotFoundError):
        facts = item.stat(follow_symlinks=False)
        if stat.S_ISLNK(facts.st_mode):
            return [_Entry(path, None)]
        if stat.S_ISREG(facts.st_mode):
            return [_Entry(path, stamp(facts))]
    return []
