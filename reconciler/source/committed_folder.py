"""The folder of a work tree as its HEAD has it, and what on disk differs from that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from reconciler.api.errors import SourceError
from reconciler.source.authorship import Authorship
from reconciler.source.commit import TreeEntry, YamlBlobs, list_tree, parse_entry
from reconciler.source.field_history import Edited, FieldHistory
from reconciler.source.mark import may_be_ours
from reconciler.source.objects import GitObjects
from reconciler.source.texts import is_whole
from reconciler.source.tree import LFS_MARK, is_candidate
from reconciler.source.worktree_files import WEIGHTS, WorktreeFiles


class CommittedFolder:
    """The same folder in HEAD."""

    def __init__(self, git_dir: Path, root: str, head: str, subdir: str) -> None:
        self.head = head
        self._objects = GitObjects(git_dir)
        self._blobs = YamlBlobs(self._objects)
        self.authors = Authorship(self._objects, head, root)
        self._fields = FieldHistory(self.authors, self._present, subdir=subdir)
        self._files: WorktreeFiles | None = None  # as they were fetched last
        self._subdir = subdir
        self._entries = self._list(root)
        self._sizes_of: dict[str, int | None] = {}  # by object id; None: it is not here

    def differences(self, files: WorktreeFiles) -> frozenset[str]:
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

    def history(self, files: WorktreeFiles, dirty: frozenset[str]) -> FieldHistory:
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

    def _differs(self, path: str, files: WorktreeFiles, committed: Mapping[str, TreeEntry]) -> bool:
        entry = committed.get(path)
        data = files.yaml.get(path)
        if entry is None or data is None:
            return True
        return entry.oid != files.oids[path]

    def _changed_models(self, files: WorktreeFiles) -> set[str]:
        weights = {path for path in self._entries if path.endswith(WEIGHTS)}
        paths = files.models.keys() | weights
        committed = {entry.path: entry for entry in self._sized(paths)}
        return {path for path in paths if self._model_differs(path, files, committed)}

    def _model_differs(
        self, path: str, files: WorktreeFiles, committed: Mapping[str, TreeEntry]
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
