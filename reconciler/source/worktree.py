"""A git work tree as it is on disk, uncommitted edits included: what a person is editing now."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from reconciler.errors import SourceError
from reconciler.fleet import RepositoryFile
from reconciler.source.authorship import Authorship
from reconciler.source.checkout import YamlFile
from reconciler.source.command import read_git
from reconciler.source.commit import Entry, YamlBlobs, list_tree, parse_entry
from reconciler.source.folders import NOT_FOLLOWED, Folders, Stamp, files_below, is_settled, stamp
from reconciler.source.objects import Objects
from reconciler.source.tree import (
    GROUP_MARK,
    IGNORE_FILE,
    LFS_MARK,
    MAX_FILE_BYTES,
    describe_lfs,
    ignore_matcher,
    is_candidate,
    is_excluded,
    repository_path,
    subdirectory,
)

_MODEL_SUFFIXES = (".gguf", ".safetensors")
_BUSY = {
    "rebase-merge": "a rebase is going on",
    "rebase-apply": "a rebase or git am is going on",
    "MERGE_HEAD": "a merge is going on",
    "CHERRY_PICK_HEAD": "a cherry-pick is going on",
    "REVERT_HEAD": "a revert is going on",
}
_LOCK_AGE_S = 60.0  # an older index.lock was left behind by a git that died


_HEAD_BYTES = 64  # of a file that is not ours only the first line matters
_Text = tuple[Stamp, bytes, str]  # of a YAML file: its stamp, its bytes, git's id of them


@dataclass(slots=True)
class _Cache:
    """What one look leaves for the next: unchanged files cost a stat."""

    algorithm: str = "sha1"  # of object ids in this repository
    texts: dict[str, _Text] = field(default_factory=dict)
    digests: dict[str, tuple[Stamp, str]] = field(default_factory=dict)


class WorktreeSource:
    """The files of a work tree below `path`: tracked ones, and new ones that git does not ignore.

    `path` may be a folder inside the work tree; then that folder is the fleet.
    """

    def __init__(self, path: Path, *, subdir: str | None = None) -> None:
        self.location = str(path)
        self._path = path
        self._subdir = subdirectory(subdir)
        self._cache = _Cache()
        self._base: _Committed | None = None

    def fetch(self) -> WorktreeCheckout:
        """The files as they are now. Raises SourceError: not there, not ours to read."""
        git_dir, root, head = _locate(self._path)
        listed = read_git(self._path, "ls-files", "-z", "-co", "--exclude-standard")
        if listed.code != 0:
            raise SourceError(f"{self._path}: {listed.message}")
        paths = sorted({os.fsdecode(p) for p in listed.stdout.split(b"\0") if p})
        if self._subdir and not (self._path / self._subdir).is_dir():
            raise SourceError(f"--path {self._subdir}: no such folder in {self._path}")
        self._cache.algorithm = "sha256" if head and len(head) == 64 else "sha1"
        files = _Files(self._path, paths, self._subdir, self._cache)
        if head is None:
            self._base = None
        elif self._base is None or self._base.head != head:
            self._base = _Committed(git_dir, root, head, self._subdir)
        return WorktreeCheckout(files, self._base, self._cache)


class WorktreeCheckout:
    """What was on disk at one moment. YAML is in memory; model files are checked for change."""

    def __init__(self, files: _Files, base: _Committed | None, cache: _Cache) -> None:
        self._files = files
        self._base = base
        self._cache = cache
        self._dirty = base.differences(files) if base else frozenset(files.oids)
        self.commit = base.head if base else None
        self.revision = self._name_revision()

    def yaml_files(self, held: Collection[str] = ()) -> Iterable[YamlFile]:
        for path, data in self._files.yaml.items():
            if (GROUP_MARK in data or path in held) and not is_excluded(data):
                yield YamlFile(path, data, self._files.oids[path])

    def model_file(self, path: str) -> RepositoryFile:
        path = repository_path(path)
        with self._files.open(path) as file:
            found = stamp(os.fstat(file.fileno()))
            known = self._cache.digests.get(path)
            if known is None or known[0] != found or not is_settled(found):
                try:
                    known = found, hashlib.file_digest(file, "sha256").hexdigest()
                except OSError as error:
                    raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
                self._cache.digests[path] = known
        return RepositoryFile(path, found.size, known[1])

    def folder(self, path: str) -> tuple[str, ...]:
        return files_below(self._files.root, path)

    def open(self, path: str) -> BinaryIO:
        return self._files.open(repository_path(path))

    def commit_of(self, path: str) -> str | None:
        if self._base is None or path in self._dirty:
            return None
        return self._base.authors.commit_of(path)

    def _name_revision(self) -> str:
        if self._base is not None and not self._dirty:
            return self._base.head
        digest = hashlib.sha256()
        for path in sorted(self._dirty):
            digest.update(
                f"{path}\0{self._files.oids.get(path, 'gone')}\0".encode("utf-8", "surrogateescape")
            )
        short = digest.hexdigest()[:8]
        return f"{self._base.head}+dirty.{short}" if self._base else f"dir:{short}"


class _Files:
    """The files on disk. `oids` are git's ids of the YAML bytes; of a model, its size and time."""

    def __init__(self, root: Path, paths: list[str], subdir: str, cache: _Cache) -> None:
        self.root = root
        self.ignored = ignore_matcher(self._ignore_text())
        self.yaml: dict[str, bytes] = {}
        self.models: dict[str, int] = {}
        self.oids: dict[str, str] = {}
        known, cache.texts = cache.texts, {}
        with Folders(root) as folders:
            for path in paths:
                if is_candidate(path, subdir) and not self.ignored(path):
                    self._note_yaml(folders, path, known.get(path), cache)
                elif path.endswith(_MODEL_SUFFIXES):
                    self._note_model(folders, path)

    def open(self, path: str) -> io.BufferedReader:
        """A regular file, reached through folders only, no LFS pointer. Raises SourceError."""
        try:
            with Folders(self.root) as folders:
                file = folders.open(path)
        except FileNotFoundError:
            raise SourceError(f"{path}: there is no such file in {self.root}") from None
        except IsADirectoryError:
            raise SourceError(
                f"{path}: is a folder; write {path}/ for the whole of it, or name a file of it"
            ) from None
        except OSError as error:
            raise SourceError(
                f"{path}: cannot be read: {error.strerror}; links are never followed"
            ) from error
        if file.read(len(LFS_MARK)) == LFS_MARK:
            file.close()
            raise SourceError(describe_lfs(path))
        file.seek(0)
        return file

    def _note_yaml(self, folders: Folders, path: str, known: _Text | None, cache: _Cache) -> None:
        try:
            found = stamp(folders.stat(path))
            if known is None or known[0] != found or not is_settled(found):
                with folders.open(path) as file:
                    data = file.read(MAX_FILE_BYTES + 1)
                shown = data if GROUP_MARK in data else data[:_HEAD_BYTES]
                known = found, shown, _blob_id(data, cache.algorithm)
            cache.texts[path] = known
            _, self.yaml[path], self.oids[path] = known
        except FileNotFoundError:
            return  # deleted
        except OSError as error:
            if error.errno not in NOT_FOLLOWED:
                raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
            self.yaml[path], self.oids[path] = b"", "link"  # nothing of it is read

    def _note_model(self, folders: Folders, path: str) -> None:
        with contextlib.suppress(OSError):  # said when a Model names it
            facts = folders.stat(path)
            if stat.S_ISREG(facts.st_mode):
                self.models[path] = facts.st_size
                self.oids[path] = f"{facts.st_size} {facts.st_mtime_ns}"

    def _ignore_text(self) -> str | None:
        try:
            with Folders(self.root) as folders, folders.open(IGNORE_FILE) as file:
                return file.read(MAX_FILE_BYTES).decode("utf-8", "replace")
        except OSError:
            return None


class _Committed:
    """What HEAD says of the same folder."""

    def __init__(self, git_dir: Path, root: str, head: str, subdir: str) -> None:
        self.head = head
        self._objects = Objects(git_dir)
        self._blobs = YamlBlobs(self._objects)
        self.authors = Authorship(self._objects, head, root)
        self._subdir = subdir
        self._entries = self._list(root)

    def differences(self, files: _Files) -> frozenset[str]:
        """Paths of fleet files and model files whose bytes on disk are not those of HEAD."""
        mine = {p for p, data in files.yaml.items() if GROUP_MARK in data}
        committed = {
            p: e
            for p, e in self._entries.items()
            if e.is_file and is_candidate(p, self._subdir) and not files.ignored(p)
        }
        changed = {p for p in files.yaml | committed if self._differs(p, files, committed)}
        before = self._blobs.read([committed[p] for p in changed - mine if p in committed])
        was_ours = {p for p in changed if p in committed and before.get(committed[p].oid)}
        return frozenset((changed & mine) | was_ours | self._changed_models(files))

    def _differs(self, path: str, files: _Files, committed: Mapping[str, Entry]) -> bool:
        entry = committed.get(path)
        data = files.yaml.get(path)
        if entry is None or data is None:
            return True
        return entry.oid != files.oids[path]

    def _changed_models(self, files: _Files) -> set[str]:
        """By size alone: hashing gigabytes would cost more than this label is worth; the digest
        that a model is known by always comes from its bytes."""
        sizes = {p: e for p, e in self._entries.items() if p.endswith(_MODEL_SUFFIXES)}
        return {
            p
            for p in files.models.keys() | sizes.keys()
            if p not in sizes or files.models.get(p) not in self._sizes(sizes[p])
        }

    def _sizes(self, entry: Entry) -> Iterable[int | None]:
        """The sizes on disk that mean unchanged: the blob's, or what an LFS pointer stands for."""
        yield entry.size
        if (entry.size or 0) < 1024:
            head = self._blobs.load_one(entry)
            if head.startswith(LFS_MARK):
                for line in head.splitlines():
                    if line.startswith(b"size ") and line[5:].isdigit():
                        yield int(line[5:])

    def _list(self, root: str) -> dict[str, Entry]:
        try:
            listing = list_tree(self._objects, self.head, root)
        except SourceError:
            return {}  # the whole folder is new
        rows = (parse_entry(row) for row in listing.split(b"\0") if row)
        return {entry.path: entry for entry in rows}


def busy(path: Path) -> str | None:
    """What git is doing to the work tree right now, or None. --watch waits until it is over."""
    git_dir = _find_git_dir(path.absolute())
    if git_dir is None:
        return None
    for name, what in _BUSY.items():
        if (git_dir / name).exists():
            return what
    try:
        age = time.time() - (git_dir / "index.lock").stat().st_mtime
    except OSError:
        return None
    return "git is writing the index" if age < _LOCK_AGE_S else None


def _locate(path: Path) -> tuple[Path, str, str | None]:
    """The git directory, the path of the folder in the work tree, and HEAD (None: no commit)."""
    found = read_git(path, "rev-parse", "--absolute-git-dir", "--show-prefix")
    if found.code != 0:
        raise SourceError(explain_refusal(path, found.stderr, found.message))
    git_dir, _, prefix = found.text.partition("\n")
    head = Objects(Path(git_dir)).resolve("HEAD^{commit}")
    return Path(git_dir), prefix.rstrip("/\n"), head


def explain_refusal(path: Path, stderr: str, message: str) -> str:
    """Why git would not read a work tree, with what to do where git knows it."""
    if "dubious ownership" in stderr:
        return (
            f"{path}: the repository belongs to another user; if you trust it: "
            f"git config --global --add safe.directory {path}"
        )
    return f"{path}: {message}"


def _find_git_dir(path: Path) -> Path | None:
    for folder in (path, *path.parents):
        mark = folder / ".git"
        if mark.is_dir():
            return mark
        if mark.is_file():
            text = mark.read_text(encoding="utf-8", errors="replace")
            return (folder / text.removeprefix("gitdir:").strip()).absolute()
    return None


def _blob_id(data: bytes, algorithm: str = "sha1") -> str:
    """The object id that git gives these bytes."""
    header = f"blob {len(data)}\0".encode()
    return hashlib.new(algorithm, header + data, usedforsecurity=False).hexdigest()
