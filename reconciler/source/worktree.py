"""A git work tree as it is on disk, including uncommitted edits."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import re
import stat
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from reconciler.api.errors import SourceError
from reconciler.source.authorship import Authorship
from reconciler.source.checkout import YamlFile
from reconciler.source.command import read_git
from reconciler.source.commit import TreeEntry, YamlBlobs, list_tree, parse_entry
from reconciler.source.disk import Digests, DiskFiles
from reconciler.source.field_history import Edited, FieldHistory
from reconciler.source.fleetignore import ignore_matcher
from reconciler.source.folders import NOT_FOLLOWED, Folders, is_settled, stamp
from reconciler.source.mark import may_be_ours
from reconciler.source.objects import GitObjects
from reconciler.source.texts import Text, ignore_data, is_whole, read_text
from reconciler.source.tree import (
    LFS_MARK,
    is_candidate,
    is_excluded,
    subdirectory,
)

_WEIGHTS = (".gguf", ".safetensors")
_MOST_HASHED = 64 * 2**20  # of a file beside weights, such as tokenizer.json
_BUSY = {
    "rebase-merge": "a rebase is going on",
    "rebase-apply": "a rebase or git am is going on",
    "MERGE_HEAD": "a merge is going on",
    "CHERRY_PICK_HEAD": "a cherry-pick is going on",
    "REVERT_HEAD": "a revert is going on",
}
_HEAD = re.compile(r"(?:^|\n)[0-9a-f]{40,64}\Z")
_LOCK_AGE_S = 60.0  # an older index.lock is left over from a git that died


@dataclass(slots=True)
class _Cache:
    """What one read keeps for the next: unchanged files cost a stat."""

    algorithm: str = "sha1"  # of object ids in this repository
    texts: dict[str, Text] = field(default_factory=dict)
    digests: Digests = field(default_factory=dict)


class WorktreeSource:
    """The files of a work tree below `path`: tracked ones, and new ones that git does not ignore.

    `path` may be a folder inside the work tree; then that folder is the fleet.
    """

    def __init__(self, path: Path, *, subdir: str | None = None) -> None:
        self.location = str(path)
        self._path = path
        self._subdir = self.folder = subdirectory(subdir)
        self._cache = _Cache()
        self._base: _Committed | None = None
        self._prefix: str | None = None  # of `path` in the work tree, as it was fetched last

    @property
    def root(self) -> str:
        """The folder of the fleet in the repository; empty for all of it."""
        prefix = _locate(self._path)[1] if self._prefix is None else self._prefix
        return "/".join(part for part in (prefix, self._subdir) if part)

    @property
    def is_detached(self) -> bool:
        """Whether HEAD names a commit and no branch."""
        return read_git(self._path, "symbolic-ref", "--quiet", "HEAD").code != 0

    def knows(self, revision: str) -> bool:
        """Whether the repository has this commit."""
        git_dir, _, _ = _locate(self._path)
        return GitObjects(git_dir).resolve(f"{revision}^{{commit}}") is not None

    def fetch(self) -> WorktreeCheckout:
        """The files as they are now. Raises SourceError if the work tree is missing or may not be
        read."""
        git_dir, root, head = _locate(self._path)
        self._prefix = root
        listed = read_git(self._path, "ls-files", "-z", "-co", "--exclude-standard")
        if listed.code != 0:
            raise SourceError(f"{self._path}: {listed.message}")
        paths = sorted({os.fsdecode(p) for p in listed.stdout.split(b"\0") if p})
        if self._subdir and not (self._path / self._subdir).is_dir():
            raise SourceError(f"--path {self._subdir}: no such folder in {self._path}")
        self._cache.algorithm = "sha256" if head and len(head) == 64 else "sha1"
        files = _WorktreeFiles(self._path, paths, self._subdir, self._cache)
        if head is None:
            self._base = None
        elif self._base is None or self._base.head != head:
            self._base = _Committed(git_dir, root, head, self._subdir)
        return WorktreeCheckout(self._path, self._cache.digests, files, self._base)


class WorktreeCheckout(DiskFiles):
    """The files on disk at one moment. YAML is in memory; model files are checked for changes."""

    def __init__(
        self, root: Path, digests: Digests, files: _WorktreeFiles, base: _Committed | None
    ) -> None:
        super().__init__(root, digests)
        self._tree = files
        self._base = base
        self._dirty = base.differences(files) if base else frozenset(files.oids)
        self.history: FieldHistory | None = base.history(files, self._dirty) if base else None
        self.commit = base.head if base else None
        self.revision = self._name_revision()

    @property
    def uncommitted(self) -> tuple[str, ...]:
        """The fleet's files that differ from the commit."""
        return tuple(sorted(self._dirty)) if self._base else ()

    def yaml_files(self, held_paths: Collection[str] = ()) -> Iterable[YamlFile]:
        for path, data in self._tree.yaml.items():
            if (may_be_ours(data) or path in held_paths) and not is_excluded(data):
                yield YamlFile(path, data, self._tree.oids[path])

    def commit_of(self, path: str) -> str | None:
        folder = path if path.endswith("/") else None  # of a model of several files
        if self._base is None or path in self._dirty:
            return None
        if folder and any(dirty.startswith(folder) for dirty in self._dirty):
            return None
        return self._base.authors.commit_of(path)

    def _name_revision(self) -> str:
        if self._base is not None and not self._dirty:
            return self._base.head
        digest = hashlib.sha256()
        for path in sorted(self._dirty):
            digest.update(
                f"{path}\0{self._tree.oids.get(path, 'gone')}\0".encode("utf-8", "surrogateescape")
            )
        short = digest.hexdigest()[:8]
        return f"{self._base.head}+dirty.{short}" if self._base else f"dir:{short}"


class _WorktreeFiles:
    """The files on disk. `oids` are git's ids of their bytes, except for weights; `models` are the
    sizes of weights and of the files beside them, None where there is no file."""

    def __init__(self, root: Path, paths: list[str], subdir: str, cache: _Cache) -> None:
        self._root = root
        self.yaml: dict[str, bytes] = {}
        self.models: dict[str, int | None] = {}
        self.oids: dict[str, str] = {}
        known, cache.texts = cache.texts, {}
        homes = {posixpath.dirname(path) for path in paths if path.endswith(".safetensors")} - {""}
        with Folders(root) as folders:
            self.ignored = ignore_matcher(ignore_data(folders))
            for path in paths:
                is_of_fleet = is_candidate(path, subdir) and not self.ignored(path)
                if is_of_fleet:
                    self._note_yaml(folders, path, known.get(path), cache)
                is_beside = bool(homes) and posixpath.dirname(path) in homes
                if path.endswith(_WEIGHTS) or (
                    is_beside and (not is_of_fleet or path.endswith(".json"))
                ):
                    self._note_model(folders, path, known.get(_as_model(path)), cache)

    @cached_property
    def by_oid(self) -> Mapping[str, bytes]:
        """What was read of each YAML file."""
        return {self.oids[path]: data for path, data in self.yaml.items()}

    def _note_yaml(self, folders: Folders, path: str, known: Text | None, cache: _Cache) -> None:
        try:
            now = stamp(folders.stat(path))
            identify = partial(_blob_id, algorithm=cache.algorithm)
            cache.texts[path] = read = read_text(folders, path, now, known, identify)
            self.yaml[path], self.oids[path] = read.data, read.identity
        except FileNotFoundError:
            return  # deleted
        except OSError as error:
            if error.errno not in NOT_FOLLOWED:
                raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
            self.yaml[path], self.oids[path] = b"", "link"  # its content is not read

    def _note_model(self, folders: Folders, path: str, known: Text | None, cache: _Cache) -> None:
        self.models[path] = None
        with contextlib.suppress(OSError):  # reported if a Model names it
            facts = folders.stat(path)
            if not stat.S_ISREG(facts.st_mode):
                return
            self.models[path] = facts.st_size
            if path.endswith(_WEIGHTS) or facts.st_size > _MOST_HASHED:
                return
            now = stamp(facts)
            if known is None or known.stamp != now or not is_settled(now):
                oid = _blob_id(folders.read(path, _MOST_HASHED), cache.algorithm)
                known = Text(now, b"", oid)
            cache.texts[_as_model(path)] = known
            self.oids[path] = known.identity


def _as_model(path: str) -> str:
    """The key of what is kept of a model's file; JSON beside weights may be a document as well."""
    return f"{path}\0"


class _Committed:
    """The same folder in HEAD."""

    def __init__(self, git_dir: Path, root: str, head: str, subdir: str) -> None:
        self.head = head
        self._objects = GitObjects(git_dir)
        self._blobs = YamlBlobs(self._objects)
        self.authors = Authorship(self._objects, head, root)
        self._fields = FieldHistory(self.authors, self._present, subdir=subdir)
        self._files: _WorktreeFiles | None = None  # as they were fetched last
        self._subdir = subdir
        self._entries = self._list(root)
        self._sizes_of: dict[str, int | None] = {}  # by object id; None: it is not here

    def differences(self, files: _WorktreeFiles) -> frozenset[str]:
        """Paths of fleet files and model files whose bytes on disk differ from HEAD."""
        mine = {p for p, data in files.yaml.items() if may_be_ours(data)}
        committed = {
            p: e
            for p, e in self._entries.items()
            if e.is_file and is_candidate(p, self._subdir) and not files.ignored(p)
        }
        changed = {p for p in files.yaml | committed if self._differs(p, files, committed)}
        before = self._blobs.read(self._sized(p for p in changed - mine if p in committed))
        was_ours = {p for p in changed if p in committed and before.get(committed[p].oid)}
        return frozenset((changed & mine) | was_ours | self._changed_models(files))

    def history(self, files: _WorktreeFiles, dirty: frozenset[str]) -> FieldHistory:
        """Who changed what, with what is not committed as the latest change."""
        self._files = files
        edited = {
            path: Edited(
                entry.oid if (entry := self._entries.get(path)) else None, files.yaml.get(path)
            )
            for path in dirty
            if is_candidate(path, self._subdir)
        }
        if not edited:
            return self._fields  # which keeps what it was asked
        return FieldHistory(self.authors, self._present, edited, self._subdir)

    def _present(self, oids: Iterable[str]) -> Mapping[str, bytes]:
        """Blobs by object id: most of those that are asked for are on disk, as they are in HEAD."""
        here = self._files.by_oid if self._files else {}
        asked = list(oids)
        contents = {oid: here[oid] for oid in asked if oid in here and is_whole(here[oid])}
        return {**contents, **self._blobs.present(oid for oid in asked if oid not in contents)}

    def _differs(
        self, path: str, files: _WorktreeFiles, committed: Mapping[str, TreeEntry]
    ) -> bool:
        entry = committed.get(path)
        data = files.yaml.get(path)
        if entry is None or data is None:
            return True
        return entry.oid != files.oids[path]

    def _changed_models(self, files: _WorktreeFiles) -> set[str]:
        weights = {path for path in self._entries if path.endswith(_WEIGHTS)}
        paths = files.models.keys() | weights
        committed = {entry.path: entry for entry in self._sized(paths)}
        return {path for path in paths if self._model_differs(path, files, committed)}

    def _model_differs(
        self, path: str, files: _WorktreeFiles, committed: Mapping[str, TreeEntry]
    ) -> bool:
        """Weights are compared by size alone: hashing gigabytes would cost more than this label is
        worth. The digest that identifies a model always comes from its bytes."""
        entry, size = committed.get(path), files.models.get(path)
        if entry is None or size is None:
            return entry is not None or size is not None
        if path in files.oids and size == entry.size:
            return files.oids[path] != entry.oid
        return size not in self._sizes(entry)

    def _sizes(self, entry: TreeEntry) -> Iterable[int | None]:
        """Sizes on disk that count as unchanged: the blob's, or that of the file an LFS pointer
        stands for."""
        yield entry.size
        if entry.size is not None and entry.size < 1024:
            head = self._blobs.load_one(entry)
            if head.startswith(LFS_MARK):
                for line in head.splitlines():
                    if line.startswith(b"size ") and line[5:].isdigit():
                        yield int(line[5:])

    def _sized(self, paths: Iterable[str]) -> list[TreeEntry]:
        """Those of these files that are in HEAD, with their sizes, which few are asked for."""
        entries = [self._entries[path] for path in paths if path in self._entries]
        new = {entry.oid for entry in entries} - self._sizes_of.keys()
        self._sizes_of |= {**dict.fromkeys(new), **self._objects.sizes(new)}
        return [replace(entry, size=self._sizes_of[entry.oid]) for entry in entries]

    def _list(self, root: str) -> dict[str, TreeEntry]:
        try:
            rows = list_tree(self._objects, self.head, root, with_sizes=False)
        except SourceError:
            return {}  # the whole folder is new
        return {entry.path: entry for entry in map(parse_entry, rows)}


def busy(path: Path) -> str | None:
    """The git operation in progress, or None. --watch waits until it is over."""
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
    asked = ("--absolute-git-dir", "--show-prefix", "--revs-only", "HEAD^{commit}")
    output = read_git(path, "rev-parse", *asked)
    if output.code != 0:
        raise SourceError(explain_refusal(path, output.stderr, output.message))
    git_dir, _, place = output.text.partition("\n")
    head = _HEAD.search(place)  # a prefix ends with a slash
    prefix = place[: head.start()] if head else place
    return Path(git_dir), prefix.rstrip("/\n"), head[0].strip() if head else None


def explain_refusal(path: Path, stderr: str, message: str) -> str:
    """Why git does not read a work tree, with what to do where git's message tells."""
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
    header = f"blob {len(data)}\0".encode()
    return hashlib.new(algorithm, header + data, usedforsecurity=False).hexdigest()
