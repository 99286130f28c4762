"""One commit of a fleet repository, read from our mirror: blobs only, nothing followed or run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from reconciler.api.errors import NoSuchFolder, SourceError, error_text
from reconciler.atomic import atomic_write
from reconciler.fleet.fleet import RepositoryFile
from reconciler.lookalike import lookalike
from reconciler.ownfile import read_bytes_or_move
from reconciler.source.authorship import Authorship
from reconciler.source.checkout import FleetFile, Unfollowed, YamlFile
from reconciler.source.field_history import FieldHistory
from reconciler.source.fleetignore import ignore_matcher
from reconciler.source.mark import may_be_ours
from reconciler.source.tree import (
    IGNORE_FILE,
    LFS_MARK,
    MAX_FILE_BYTES,
    SUFFIXES,
    check_total,
    describe_lfs,
    is_candidate,
    is_excluded,
    is_lost_behind,
    may_be_folder,
    repository_path,
)

if TYPE_CHECKING:
    from reconciler.source.mirror import Mirror
    from reconciler.source.objects import GitObjects

_SUFFIXES = tuple(map(str.encode, SUFFIXES))
_BATCH_BYTES = 2**25  # of blobs from one run of cat-file
_ROW_BYTES = 128  # of a batch, for each blob: its header
_LFS_MAX_BYTES = 1024
_DIGEST = re.compile(rb"[0-9a-f]{64}")
_MISSING = re.compile(rb"(?m)^[0-9a-f]{40,64} missing$")
_LINK, _SUBMODULE = "120000", "160000"
_WHAT = {_LINK: "a symbolic link", _SUBMODULE: "a submodule"}
_NOT_FOLLOWED = (_LINK.encode(), _SUBMODULE.encode())


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One line of a git tree. `size` is None for a submodule, for a blob missing from this copy,
    and where it was not asked for."""

    path: str
    mode: str
    oid: str
    size: int | None

    @property
    def is_file(self) -> bool:
        return self.mode not in _WHAT


class YamlBlobs:
    """The YAML blobs of the last commit read, by object id: the next commit reads only new
    blobs."""

    def __init__(self, objects: GitObjects) -> None:
        self._objects = objects
        self._known: Mapping[str, bytes | None] = {}  # None: not ours

    def read(self, entries: Collection[TreeEntry]) -> Mapping[str, bytes | None]:
        """The bytes of the blobs that may be ours, cut as in Checkout.yaml_files."""
        contents = {e.oid: self._known[e.oid] for e in entries if e.oid in self._known}
        new = {e.oid: e.size or 0 for e in entries if e.oid not in contents}
        kept = sum(len(data) for data in contents.values() if data)
        for oid, data in self.load(new):
            contents[oid] = data if may_be_ours(data) else None
            kept += len(contents[oid] or b"")
            check_total(kept)
        self._known = contents
        return contents

    def load_one(self, entry: TreeEntry) -> bytes:
        """One blob, cut likewise; empty for a link or a submodule."""
        return dict(self.load({entry.oid: entry.size or 0}))[entry.oid] if entry.is_file else b""

    def load(self, sizes: Mapping[str, int]) -> Iterable[tuple[str, bytes]]:
        """Blobs by object id, each cut after MAX_FILE_BYTES + 1 bytes."""
        batch: list[str] = []
        pending = 0
        for oid, size in sizes.items():
            if size > MAX_FILE_BYTES:
                try:
                    with self._objects.stream(oid) as blob:
                        yield oid, blob.read(MAX_FILE_BYTES + 1)
                except OSError as error:
                    raise SourceError(
                        f"{self._objects.folder}: object {oid}: {error_text(error)}"
                    ) from error
                continue
            batch.append(oid)
            pending += size + _ROW_BYTES
            if pending > _BATCH_BYTES:
                yield from self._cat(batch)
                batch, pending = [], 0
        if batch:
            yield from self._cat(batch)

    def present(self, oids: Iterable[str]) -> Mapping[str, bytes]:
        """Those of these blobs that this copy has, as far as they fit into one answer, and that are
        no longer than a fleet's file."""
        known, asked = dict[str, bytes](), ""
        for oid in oids:
            data = self._known.get(oid)
            if data and len(data) <= MAX_FILE_BYTES:
                known[oid] = data
            else:
                asked += f"{oid}\n"
        return {**known, **self._present(asked.encode())} if asked else known

    def _present(self, asked: bytes) -> Mapping[str, bytes]:
        done = self._objects.git_beginning(
            "cat-file", "--batch", most_bytes=_BATCH_BYTES, stdin=asked
        )
        contents: dict[str, bytes] = {}
        out, at = done.stdout, 0
        while done.code == 0 and (end_of_header := out.find(b"\n", at)) >= 0:
            header = out[at:end_of_header].split()  # <oid> blob <size>, or <oid> missing
            start = at = end_of_header + 1
            if len(header) == 3 and header[1] == b"blob":
                end = start + int(header[2])
                if end <= len(out) and end - start <= MAX_FILE_BYTES:
                    contents[header[0].decode("ascii")] = out[start:end]
                at = end + 1
        return contents

    def _cat(self, oids: list[str]) -> Iterable[tuple[str, bytes]]:
        asked = "".join(f"{oid}\n" for oid in oids).encode()
        out = self._objects.checked("cat-file", "--batch", stdin=asked).stdout
        if _MISSING.search(out) and self._objects.mended("objects are missing"):
            out = self._objects.checked("cat-file", "--batch", stdin=asked).stdout
        at = 0
        for oid in oids:
            end_of_header = out.index(b"\n", at)
            header = out[at:end_of_header].split()  # <oid> blob <size>
            if len(header) != 3:
                raise self._objects.lacks(f"object {oid}")
            start = end_of_header + 1
            at = start + int(header[2])
            yield oid, out[start:at]
            at += 1  # the newline after the bytes


class GitCheckout:
    """A commit, or a folder of it: a snapshot that no push can change.

    `root` is the folder of the fleet (paths are relative to it); `subdir` narrows the YAML files
    further.
    """

    def __init__(
        self, mirror: Mirror, revision: str, blobs: YamlBlobs, *, root: str = "", subdir: str = ""
    ) -> None:
        self.revision = revision
        self.commit: str | None = revision
        self._mirror = mirror
        self._blobs = blobs
        self._subdir = subdir
        self._rows = list_tree(mirror, revision, root)
        self._authors = Authorship(mirror, revision, root)
        self.history: FieldHistory | None = FieldHistory(
            self._authors, blobs.present, subdir=subdir
        )
        if subdir and not self._below(subdir):
            raise NoSuchFolder(
                f"--path {subdir}: no such folder in commit {revision[:12]}", revision
            )

    def yaml_files(self, held_paths: Collection[str] = ()) -> Iterable[FleetFile]:
        ignored = self._ignored()
        entries = [e for e in self._candidates() if not ignored(e.path)]
        texts = self._blobs.read([e for e in entries if e.is_file])
        not_followed = (f for f in self._not_followed() if not ignored(f.path))
        files: list[FleetFile] = [f for f in not_followed if f.path not in held_paths]
        for entry in entries:
            data = texts.get(entry.oid)
            if data is None and entry.path in held_paths:
                data = self._blobs.load_one(entry)
            if data is not None and not is_excluded(data):
                files.append(YamlFile(entry.path, data, entry.oid))
        return sorted(files, key=lambda file: file.path)

    def model_file(self, path: str) -> RepositoryFile:
        path = repository_path(path)
        entry = self._model(path)
        return RepositoryFile(path, entry.size or 0, self._sha256(entry))

    def folder(self, path: str) -> tuple[str, ...]:
        path = repository_path(path)
        rows = [parse_entry(row) for row in self._below(path)]
        entries = [e for e in rows if "/." not in e.path.removeprefix(path)]
        if not entries:
            raise SourceError(
                f"{path}: there is no such folder in commit {self.revision[:12]}"
                f"{self._lookalike(path)}"
            )
        for entry in entries:
            self._model(entry.path)
        return tuple(sorted(entry.path for entry in entries))

    def open(self, path: str) -> BinaryIO:
        return self._mirror.stream(self._model(repository_path(path)).oid)

    def commit_of(self, path: str) -> str | None:
        return self._authors.commit_of(path)

    def _candidates(self) -> list[TreeEntry]:
        rows = (row for row in self._rows if row.lower().endswith(_SUFFIXES))
        entries = (parse_entry(row) for row in rows)
        candidates = [e for e in entries if is_candidate(e.path, self._subdir)]
        return sorted(candidates, key=lambda e: e.path)

    def _not_followed(self) -> Iterable[Unfollowed]:
        """Links out of the fleet, and submodules."""
        entries = [parse_entry(row) for row in self._rows if row.startswith(_NOT_FOLLOWED)]
        below = f"{self._subdir}/" if self._subdir else ""
        there = [e for e in entries if e.path.startswith(below) and "/." not in f"/{e.path}"]
        links = {e.oid: e.size or 0 for e in there if e.mode == _LINK}
        targets = dict(self._blobs.load(links))
        for entry in there:
            if entry.mode != _LINK:
                yield Unfollowed.repository(entry.path)
                continue
            target = os.fsdecode(targets[entry.oid])
            is_meant = is_candidate(entry.path, self._subdir) or may_be_folder(entry.path)
            if is_meant and is_lost_behind(entry.path, target, self._subdir):
                yield Unfollowed.link(entry.path, target)

    def _ignored(self) -> Callable[[str], bool]:
        entry = self._find(IGNORE_FILE)
        if entry is None or not entry.is_file:
            return ignore_matcher(None)
        return ignore_matcher(self._blobs.load_one(entry))

    def _find(self, path: str) -> TreeEntry | None:
        name = os.fsencode(path)
        at = bisect_left(self._rows, name, key=_path_of)
        is_there = at < len(self._rows) and _path_of(self._rows[at]) == name
        return parse_entry(self._rows[at]) if is_there else None

    def _below(self, folder: str) -> list[bytes]:
        """The tree entries below a folder."""
        name = os.fsencode(folder)
        start = bisect_left(self._rows, name + b"/", key=_path_of)
        return self._rows[start : bisect_left(self._rows, name + b"0", start, key=_path_of)]

    def _model(self, path: str) -> TreeEntry:
        """The blob of a model file. Raises SourceError if it is missing, not a file, or an LFS
        pointer."""
        entry = self._find(path)
        where = f"commit {self.revision[:12]}"
        if entry is None:
            why = self._why_missing(path)
            raise SourceError(f"{path}: {why} in {where}{self._lookalike(path)}")
        if not entry.is_file:
            raise SourceError(
                f"{path}: is {_WHAT[entry.mode]} in {where}, which is never followed; "
                "commit the file itself"
            )
        if entry.size is None:
            raise self._mirror.lacks(path)
        if entry.size < _LFS_MAX_BYTES and self._blobs.load_one(entry).startswith(LFS_MARK):
            raise SourceError(describe_lfs(path))
        return entry

    def _why_missing(self, path: str) -> str:
        parent = posixpath.dirname(path)
        while parent:
            above = self._find(parent)
            if above is not None:
                kind = _WHAT.get(above.mode, "a file")
                return f"{parent} is {kind}, and nothing is read through it,"
            parent = posixpath.dirname(parent)
        if self._below(path):
            return f"is a folder; write {path}/ for the whole of it, or name a file of it,"
        return "there is no such file"

    def _lookalike(self, path: str) -> str:
        similar = lookalike(path, self._names_in)
        return f"; {similar}" if similar else ""

    def _names_in(self, folder: str) -> set[str]:
        rows = self._rows if folder == "." else self._below(folder)
        start = 0 if folder == "." else len(os.fsencode(folder)) + 1
        return {os.fsdecode(_path_of(row)[start:].partition(b"/")[0]) for row in rows}

    def _sha256(self, entry: TreeEntry) -> str:
        """The digest of a blob. It is computed once per object id, which determines the bytes."""
        known = self._mirror.folder.parent / "sha256" / entry.oid
        if text := read_bytes_or_move(known, _digest):
            return text
        digest = hashlib.sha256()
        try:
            with self._mirror.stream(entry.oid) as blob:
                while chunk := blob.read(2**20):
                    digest.update(chunk)
        except OSError as error:
            raise SourceError(f"{entry.path}: {error_text(error, entry.path)}") from error
        _write_beside(known, digest.hexdigest())
        return digest.hexdigest()


def list_tree(
    objects: GitObjects, revision: str, root: str, *, with_sizes: bool = True
) -> list[bytes]:
    """Records `<mode> <type> <oid> <size>\\t<path>`, sorted by path. For sizes git opens every
    object: of a repository that is not packed, that takes ten times as long as the list."""
    tree = f"{revision}:{root}" if root else revision
    sizes = ("-l",) if with_sizes else ()
    argv = ("ls-tree", "-r", "-z", *sizes, "--full-tree", "--end-of-options", tree)
    output = objects.git(*argv)
    if b" BAD\t" in output.stdout and objects.mended("objects are missing"):
        output = objects.git(*argv)
    if output.code != 0 and root and objects.resolve(f"{revision}^{{commit}}"):
        raise NoSuchFolder(
            f"{root}: no such folder in commit {revision[:12]}; commit it, or use `reconcile"
            " watch`, which follows the files as they are",
            revision,
        )
    if output.code != 0:
        raise SourceError(
            f"{objects.folder}: commit {revision[:12]} cannot be read: {output.message}"
        )
    return sorted(filter(None, output.stdout.split(b"\0")), key=_path_of)


def _path_of(row: bytes) -> bytes:
    return row.partition(b"\t")[2]


def parse_entry(row: bytes) -> TreeEntry:
    facts, path = row.split(b"\t", 1)
    mode, _, oid, *size = facts.decode("ascii").split()
    is_known = bool(size) and size[0].isdigit()
    return TreeEntry(os.fsdecode(path), mode, oid, int(size[0]) if is_known else None)


def _write_beside(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):  # only a cache: without it the digest is computed again
        path.parent.mkdir(exist_ok=True)
        atomic_write(path, text.encode(), durable=False)


def _digest(data: bytes) -> str:
    if not _DIGEST.fullmatch(data):
        raise ValueError("it is no digest")
    return data.decode("ascii")
