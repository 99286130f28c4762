"""Model files on a disk: read without following links, and watched for changes."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from reconciler.api.errors import SourceError
from reconciler.fleet.fleet import RepositoryFile
from reconciler.lookalike import lookalike
from reconciler.source.folders import Folders, Stamp, files_below, is_settled, names_below, stamp
from reconciler.source.tree import (
    LFS_MARK,
    describe_lfs,
    is_candidate,
    is_lost_behind,
    may_be_folder,
    repository_path,
)

_MOST_NAMES = 1_000  # behind a link
Digests = dict[str, tuple[Stamp, str]]  # sha256 by path, with the stamp for which it holds


def lost_behind(root: Path, path: str, subdir: str) -> str:
    """Return the target of the symbolic link at `path`, if YAML or JSON files behind it are not
    read; else an empty text. Only names are read: a link may lead anywhere."""
    at = root / path
    try:
        if not is_candidate(path, subdir) and not (may_be_folder(path) and _has_documents(at)):
            return ""
        target, folder = (
            os.readlink(at),
            os.path.dirname(os.path.join(os.path.realpath(root), path)),
        )
        inside = os.path.relpath(os.path.realpath(at, strict=True), folder)
    except OSError:  # it leads nowhere
        return ""
    return target if is_lost_behind(path, inside, subdir) else ""


def _has_documents(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    with os.scandir(folder) as entries:
        return any(is_candidate(entry.name) for entry in itertools.islice(entries, _MOST_NAMES))


class DiskFiles:
    """The model files of a checkout on disk, and the base of such checkouts.

    It remembers which files it was asked for: they can change without any YAML file changing, and
    nothing else tells which files matter.
    """

    def __init__(self, root: Path, digests: Digests) -> None:
        self._root = root
        self._digests = digests
        self._files: dict[str, Stamp | None] = {}  # None: no file
        self._folders: dict[str, tuple[str, ...] | None] = {}

    def model_file(self, path: str) -> RepositoryFile:
        """See Checkout.model_file. The bytes are read once, until the file changes."""
        path = repository_path(path)
        # Taken before the file is opened, so that a later change is noticed.
        self._files[path] = self._stamps([path])[path]
        with self._open(path) as file:
            now = stamp(os.fstat(file.fileno()))
            known = self._digests.get(path)
            if known is None or known[0] != now or not is_settled(now):
                try:
                    known = now, hashlib.file_digest(file, "sha256").hexdigest()
                except OSError as error:
                    raise SourceError(f"{path} cannot be read: {error.strerror}") from error
                self._digests[path] = known
        return RepositoryFile(path, now.size, known[1])

    def folder(self, path: str) -> tuple[str, ...]:
        """See Checkout.folder."""
        path = repository_path(path)
        self._folders[path] = None
        self._folders[path] = files_below(self._root, path)
        return self._folders[path] or ()

    def open(self, path: str) -> io.BufferedReader:
        """See Checkout.open."""
        return self._open(repository_path(path))

    def changes(self) -> Mapping[str, object]:
        """The files asked for that have changed since, by path, with a value that stays equal as
        long as the file stays as it is now. Costs a stat per file."""
        changed: dict[str, object] = {
            path: now for path, now in self._stamps(self._files).items() if now != self._files[path]
        }
        for path, before in self._folders.items():
            now = self._list(path)
            if now != before:
                changed[f"{path}/"] = now
        return changed

    def _stamps(self, paths: Mapping[str, object] | list[str]) -> dict[str, Stamp | None]:
        """The stamp of each file; None if it does not exist or cannot be reached."""
        try:
            with Folders(self._root) as folders:
                return {path: _stamp_of(folders, path) for path in paths}
        except OSError:
            return dict.fromkeys(paths)

    def _list(self, path: str) -> tuple[str, ...] | None:
        try:
            return files_below(self._root, path)
        except SourceError:
            return None

    def _open(self, path: str) -> io.BufferedReader:
        """Open a regular file, reached through folders only, that is not an LFS pointer. Raises
        SourceError."""
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


def _stamp_of(folders: Folders, path: str) -> Stamp | None:
    try:
        return stamp(folders.stat(path))
    except OSError:
        return None


def _why_not(root: Path, path: str, error: OSError) -> str:
    """Why a model file cannot be opened, and what to do."""
    at = root
    for part in path.split("/"):
        at = at / part
        if at.is_symlink():
            name = at.relative_to(root)
            return f"{name} is a symbolic link, which is never followed; put the file itself there"
    if isinstance(error, FileNotFoundError):
        remedy = lookalike(path, names_below(root)) or "put it there, or correct the path"
        return f"{path} is not in the fleet's folder; {remedy}"
    if at.is_dir():
        return f"{path} is a folder; write {path}/ for the whole of it, or name a file in it"
    return f"{path} cannot be read: {error.strerror}; make it a readable file"
