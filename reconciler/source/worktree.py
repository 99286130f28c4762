"""A git work tree as it is on disk, uncommitted edits included: what a person is editing now."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from reconciler.errors import SourceError
from reconciler.fleet import RepositoryFile
from reconciler.source.authorship import Authorship
from reconciler.source.checkout import YamlFile
from reconciler.source.command import read_git
from reconciler.source.commit import Entry, YamlBlobs, list_tree, parse_entry
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
_NOT_FOLLOWED = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.EISDIR, errno.EINVAL})
_LOCK_AGE_S = 60.0  # an older index.lock was left behind by a git that died


class WorktreeSource:
    """The files of a work tree below `path`: tracked ones, and new ones that git does not ignore.

    `path` may be a folder inside the work tree; then that folder is the fleet.
    """

    def __init__(self, path: Path, *, subdir: str | None = None) -> None:
        self.location = str(path)
        self._path = path
        self._subdir = subdirectory(subdir)
        self._digests: dict[tuple[object, ...], str] = {}

    def fetch(self) -> WorktreeCheckout:
        """The files as they are now. Raises SourceError: not there, not ours to read."""
        git_dir, root, head = _locate(self._path)
        listed = read_git(self._path, "ls-files", "-z", "-co", "--exclude-standard")
        if listed.code != 0:
            raise SourceError(f"{self._path}: {listed.message}")
        paths = sorted({os.fsdecode(p) for p in listed.stdout.split(b"\0") if p})
        if self._subdir and not (self._path / self._subdir).is_dir():
            raise SourceError(f"--path {self._subdir}: no such folder in {self._path}")
        files = _Files(self._path, paths, self._subdir)
        base = _Committed(git_dir, root, head, self._subdir) if head else None
        return WorktreeCheckout(files, base, self._digests)


class WorktreeCheckout:
    """What was on disk at one moment. YAML is in memory; model files are checked for change."""

    def __init__(
        self, files: _Files, base: _Committed | None, digests: dict[tuple[object, ...], str]
    ) -> None:
        self._files = files
        self._base = base
        self._digests = digests
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
            facts = os.fstat(file.fileno())
            key = (path, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
            if key not in self._digests:
                if file.read(len(LFS_MARK)) == LFS_MARK:
                    raise SourceError(describe_lfs(path))
                file.seek(0)
                self._digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return RepositoryFile(path, facts.st_size, self._digests[key])

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

    def __init__(self, root: Path, paths: list[str], subdir: str) -> None:
        self._root = root
        self._listed = frozenset(paths)
        self.ignored = ignore_matcher(self._ignore_text())
        self.yaml: dict[str, bytes] = {}
        self.models: dict[str, int] = {}
        self.oids: dict[str, str] = {}
        for path in paths:
            if is_candidate(path, subdir) and not self.ignored(path):
                self._read_yaml(path)
            elif path.endswith(_MODEL_SUFFIXES):
                self._note_model(path)

    def open(self, path: str) -> io.BufferedReader:
        """A regular file, reached through folders only. Raises SourceError."""
        try:
            return _open_inside(self._root, path)
        except FileNotFoundError:
            raise SourceError(f"{path}: there is no such file in {self._root}") from None
        except IsADirectoryError:
            raise SourceError(f"{path}: is a folder; name a file of it") from None
        except OSError as error:
            raise SourceError(
                f"{path}: cannot be read: {error.strerror}; links are never followed"
            ) from error

    def _read_yaml(self, path: str) -> None:
        try:
            with _open_inside(self._root, path) as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return  # deleted
        except OSError as error:
            if error.errno not in _NOT_FOLLOWED:
                raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
            data = b""  # became a link or a folder: nothing of it is read
        self.yaml[path] = data
        self.oids[path] = _blob_id(data)

    def _note_model(self, path: str) -> None:
        try:
            with _open_inside(self._root, path) as file:
                facts = os.fstat(file.fileno())
        except OSError:
            return
        self.models[path] = facts.st_size
        self.oids[path] = f"{facts.st_size} {facts.st_mtime_ns}"

    def _ignore_text(self) -> str | None:
        try:
            with _open_inside(self._root, IGNORE_FILE) as file:
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
        wide = len(entry.oid) == 64
        return entry.oid != (_blob_id(data, "sha256") if wide else files.oids[path])

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


def _open_inside(root: Path, path: str) -> io.BufferedReader:
    """Open a regular file below root without following any link. Raises OSError."""
    *folders, name = path.split("/")
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise (
            IsADirectoryError(errno.EISDIR, "is a folder")
            if stat.S_ISDIR(mode)
            else OSError(errno.EINVAL, "not a regular file")
        )
    return os.fdopen(handle, "rb")


def _blob_id(data: bytes, algorithm: str = "sha1") -> str:
    """The object id that git gives these bytes."""
    header = f"blob {len(data)}\0".encode()
    return hashlib.new(algorithm, header + data, usedforsecurity=False).hexdigest()
