"""A git work tree as it is on disk, including uncommitted edits."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from reconciler.api.errors import SourceError
from reconciler.source.checkout import FleetFile, YamlFile
from reconciler.source.command import read_git
from reconciler.source.committed_folder import CommittedFolder
from reconciler.source.disk import Digests, DiskFiles
from reconciler.source.field_history import FieldHistory
from reconciler.source.mark import may_be_ours
from reconciler.source.objects import GitObjects
from reconciler.source.tree import is_excluded, subdirectory
from reconciler.source.worktree_files import ReadCache, WorktreeFiles

_HEAD = re.compile(r"(?:^|\n)[0-9a-f]{40,64}\Z")


class WorktreeSource:
    """The files of a work tree below `path`: tracked ones, and new ones that git does not ignore.

    `path` may be a folder inside the work tree; then that folder is the fleet.
    """

    def __init__(self, path: Path, *, subdir: str | None = None) -> None:
        self.location = str(path)
        self._path = path
        self._subdir = self.folder = subdirectory(subdir)
        self._cache = ReadCache()
        self._base: CommittedFolder | None = None
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
        files = WorktreeFiles(self._path, paths, self._subdir, self._cache)
        if head is None:
            self._base = None
        elif self._base is None or self._base.head != head:
            self._base = CommittedFolder(git_dir, root, head, self._subdir)
        return WorktreeCheckout(self._path, self._cache.digests, files, self._base)


class WorktreeCheckout(DiskFiles):
    """The files on disk at one moment. YAML is in memory; model files are checked for changes."""

    def __init__(
        self, root: Path, digests: Digests, files: WorktreeFiles, base: CommittedFolder | None
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

    def yaml_files(self, held_paths: Collection[str] = ()) -> Iterable[FleetFile]:
        links = self._tree.not_followed
        files: list[FleetFile] = [link for link in links if link.path not in held_paths]
        for path, data in self._tree.yaml.items():
            if (may_be_ours(data) or path in held_paths) and not is_excluded(data):
                files.append(YamlFile(path, data, self._tree.oids[path]))
        return sorted(files, key=lambda file: file.path)

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
