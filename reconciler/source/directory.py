"""A plain folder as the source of a fleet: no git, no history, links are never followed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reconciler.api.errors import SourceError
from reconciler.source.checkout import FleetFile, Unfollowed, YamlFile
from reconciler.source.disk import Digests, DiskFiles, lost_behind
from reconciler.source.fleetignore import ignore_matcher
from reconciler.source.folders import NOT_FOLLOWED, Folders, Stamp, stamp
from reconciler.source.texts import Text, ignore_data, read_text
from reconciler.source.tree import (
    is_candidate,
    is_excluded,
    is_fleet_file,
    subdirectory,
)

if TYPE_CHECKING:
    from reconciler.source.field_history import FieldHistory


class _Entry(NamedTuple):
    """One candidate in the listing. `stamp` is None for a symbolic link; `leads` is the target of
    one with documents behind it that are not read."""

    path: str
    stamp: Stamp | None
    leads: str = ""


class DirectorySource:
    """A folder, read again at every fetch; unchanged files cost a stat."""

    def __init__(self, path: Path, subdir: str | None = None) -> None:
        self.location = str(path)
        self._root = path
        self._subdir = subdir
        self.folder = (subdir or "").strip("/")
        self._texts: dict[str, Text] = {}
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
        ignored = ignore_matcher(ignore_data(folders))
        known, self._texts = self._texts, {}
        entries = [e for e in _candidates(self._root, subdir) if not ignored(e.path)]
        for entry in entries:
            text = self._read(folders, entry, known.get(entry.path))
            if text:
                self._texts[entry.path] = text
        links = {entry.path: entry.leads for entry in entries if entry.stamp is None}
        return DirectoryCheckout(self._root, self._digests, dict(self._texts), links)

    def _read(self, folders: Folders, entry: _Entry, known: Text | None) -> Text | None:
        """None if the file vanished or became a link since it was listed."""
        if entry.stamp is None:
            return None
        try:
            return read_text(folders, entry.path, entry.stamp, known, _digest)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or error.errno in NOT_FOLLOWED:
                return None
            raise SourceError(
                f"{self._root / entry.path}: {error.strerror}; make it readable"
            ) from error


class DirectoryCheckout(DiskFiles):
    """The YAML files as they were when fetched; model files are read on demand."""

    def __init__(
        self, root: Path, digests: Digests, texts: dict[str, Text], links: Mapping[str, str]
    ) -> None:
        super().__init__(root, digests)
        self._texts, self._links = texts, links
        whole = hashlib.sha256()
        for path, text in sorted(texts.items()):
            if is_fleet_file(text.data):
                whole.update(f"{path}\0{text.identity}\0".encode("utf-8", errors="surrogateescape"))
        self.revision = f"dir:{whole.hexdigest()[:8]}"
        self.commit: str | None = None
        self.history: FieldHistory | None = None

    def yaml_files(self, held_paths: Collection[str] = ()) -> Iterator[FleetFile]:
        for path in sorted({*self._texts, *self._links}):
            if path in held_paths and path in self._links:
                yield YamlFile(path, b"", "link")  # a file that became a link counts as empty
                continue
            if path in self._links:
                if leads := self._links[path]:
                    yield Unfollowed.link(path, leads)
                continue
            text = self._texts[path]
            if is_fleet_file(text.data) or (path in held_paths and not is_excluded(text.data)):
                yield YamlFile(path, text.data, text.identity)

    def commit_of(self, path: str) -> str | None:
        """A folder has no commits."""
        return None


def _require_folder(folders: Folders, subdir: str) -> None:
    """`--path` must exist: an empty result would look like a fleet without services."""
    try:
        folders.stat(f"{subdir}/.")
    except OSError as error:
        raise SourceError(f"--path {subdir}: no such folder (links do not count)") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _candidates(root: Path, subdir: str) -> list[_Entry]:
    """Every YAML file below `subdir`, sorted by name; folders that are links are not entered."""
    entries: list[_Entry] = []
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
            elif is_candidate(path, subdir) or item.is_symlink():
                entries += _entry(item, root, path, subdir)
    return sorted(entries, key=lambda entry: entry.path)


def _entry(item: os.DirEntry[str], root: Path, path: str, subdir: str) -> list[_Entry]:
    """The entry of a file or link; none for a pipe, a socket or a file that vanished."""
    with contextlib.suppress(FileNotFoundError):
        facts = item.stat(follow_symlinks=False)
        if stat.S_ISLNK(facts.st_mode):
            return [_Entry(path, None, lost_behind(root, path, subdir))]
        if stat.S_ISREG(facts.st_mode):
            return [_Entry(path, stamp(facts))]
    return []
