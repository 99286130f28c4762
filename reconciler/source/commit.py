"""One commit of a fleet repository, read from our mirror: blobs only, nothing followed or run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from reconciler.errors import SourceError
from reconciler.fleet import RepositoryFile
from reconciler.source.authorship import Authorship
from reconciler.source.checkout import YamlFile
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
)

if TYPE_CHECKING:
    from reconciler.source.mirror import Mirror
    from reconciler.source.objects import Objects

_BATCH_BYTES = 2**25  # of blobs that one cat-file hands over at once
_LFS_MAX_BYTES = 1024
_WHAT = {"120000": "a symbolic link", "160000": "a submodule"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a git tree. `size` is None for a submodule."""

    path: str
    mode: str
    oid: str
    size: int | None

    @property
    def is_file(self) -> bool:
        return self.mode not in _WHAT


class YamlBlobs:
    """The YAML blobs of the commit read last, by object id: the next one reads only new blobs."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: Mapping[str, bytes | None] = {}  # None: does not mention our group

    def read(self, entries: Collection[Entry]) -> Mapping[str, bytes | None]:
        """The bytes of the blobs that mention our group, cut as Checkout.yaml_files says."""
        found = {e.oid: self._known[e.oid] for e in entries if e.oid in self._known}
        new = {e.oid: e.size or 0 for e in entries if e.oid not in found}
        for oid, data in self.load(new):
            found[oid] = data if GROUP_MARK in data else None
        self._known = found
        return found

    def load_one(self, entry: Entry) -> bytes:
        """One blob, cut likewise. Nothing of a link or a submodule is read."""
        return dict(self.load({entry.oid: entry.size or 0}))[entry.oid] if entry.is_file else b""

    def load(self, sizes: Mapping[str, int]) -> Iterable[tuple[str, bytes]]:
        """Blobs by object id, each cut after MAX_FILE_BYTES + 1 bytes."""
        batch: list[str] = []
        pending = 0
        for oid, size in sizes.items():
            if size > MAX_FILE_BYTES:
                with self._objects.stream(oid) as blob:
                    yield oid, blob.read(MAX_FILE_BYTES + 1)
                continue
            batch.append(oid)
            pending += size
            if pending > _BATCH_BYTES:
                yield from self._cat(batch)
                batch, pending = [], 0
        if batch:
            yield from self._cat(batch)

    def _cat(self, oids: list[str]) -> Iterable[tuple[str, bytes]]:
        asked = "".join(f"{oid}\n" for oid in oids).encode()
        out = self._objects.checked("cat-file", "--batch", stdin=asked).stdout
        at = 0
        for oid in oids:
            end_of_header = out.index(b"\n", at)
            header = out[at:end_of_header].split()  # <oid> blob <size>
            if len(header) != 3:
                raise SourceError(f"{self._objects.folder}: object {oid} is missing from the copy")
            start = end_of_header + 1
            at = start + int(header[2])
            yield oid, out[start:at]
            at += 1  # the newline after the bytes


class GitCheckout:
    """A commit, or a folder of it: a snapshot that no push can change.

    `root` is the folder that is the fleet (paths are relative to it), `subdir` narrows the YAML
    files below it further.
    """

    def __init__(
        self, mirror: Mirror, revision: str, blobs: YamlBlobs, *, root: str = "", subdir: str = ""
    ) -> None:
        self.revision = revision
        self.commit: str | None = revision
        self._mirror = mirror
        self._blobs = blobs
        self._subdir = subdir
        self._listing = list_tree(mirror, revision, root)
        self._authors = Authorship(mirror, revision, root)
        if subdir and f"\t{subdir}/".encode() not in self._listing:
            raise SourceError(f"--path {subdir}: no such folder in commit {revision[:12]}")

    def yaml_files(self, held: Collection[str] = ()) -> Iterable[YamlFile]:
        ignored = self._ignored()
        entries = [e for e in self._candidates() if not ignored(e.path)]
        texts = self._blobs.read([e for e in entries if e.is_file])
        for entry in entries:
            data = texts.get(entry.oid)
            if data is None and entry.path in held:
                data = self._blobs.load_one(entry)
            if data is not None and not is_excluded(data):
                yield YamlFile(entry.path, data, entry.oid)

    def model_file(self, path: str) -> RepositoryFile:
        path = repository_path(path)
        entry = self._model(path)
        return RepositoryFile(path, entry.size or 0, self._sha256(entry))

    def folder(self, path: str) -> tuple[str, ...]:
        path = repository_path(path)
        prefix = os.fsencode(path) + b"/"
        rows = (row for row in self._listing.split(b"\0") if b"\t" + prefix in row)
        found = [parse_entry(row) for row in rows]
        entries = [e for e in found if "/." not in e.path.removeprefix(path)]
        if not entries:
            raise SourceError(f"{path}: there is no such folder in commit {self.revision[:12]}")
        for entry in entries:
            self._model(entry.path)
        return tuple(sorted(entry.path for entry in entries))

    def open(self, path: str) -> BinaryIO:
        return self._mirror.stream(self._model(repository_path(path)).oid)

    def commit_of(self, path: str) -> str | None:
        return self._authors.commit_of(path)

    def _candidates(self) -> list[Entry]:
        rows = (row for row in self._listing.split(b"\0") if row.endswith((b".yaml", b".yml")))
        entries = (parse_entry(row) for row in rows)
        found = [e for e in entries if is_candidate(e.path, self._subdir)]
        return sorted(found, key=lambda e: e.path)

    def _ignored(self) -> Callable[[str], bool]:
        entry = self._find(IGNORE_FILE)
        if entry is None or not entry.is_file:
            return ignore_matcher(None)
        return ignore_matcher(self._blobs.load_one(entry).decode("utf-8", "replace"))

    def _find(self, path: str) -> Entry | None:
        name = b"\t" + os.fsencode(path) + b"\0"
        end = self._listing.find(name)
        if end < 0:
            return None
        start = self._listing.rfind(b"\0", 0, end) + 1
        return parse_entry(self._listing[start : end + len(name) - 1])

    def _model(self, path: str) -> Entry:
        """The blob of a model file. Raises SourceError: not there, not a file, a pointer."""
        entry = self._find(path)
        where = f"commit {self.revision[:12]}"
        if entry is None:
            raise SourceError(f"{path}: {self._why_missing(path)} in {where}")
        if not entry.is_file:
            raise SourceError(
                f"{path}: is {_WHAT[entry.mode]} in {where}, and those are never followed; "
                "commit the file itself"
            )
        small = (entry.size or 0) < _LFS_MAX_BYTES
        if small and self._blobs.load_one(entry).startswith(LFS_MARK):
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
        if f"\t{path}/".encode() in self._listing:
            return f"is a folder; write {path}/ for the whole of it, or name a file of it,"
        return "there is no such file"

    def _sha256(self, entry: Entry) -> str:
        """The digest of a blob; an object id never changes its bytes, so it is computed once."""
        known = self._mirror.folder.parent / "sha256" / entry.oid
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = known.read_text()
            if len(text) == 64:
                return text
        digest = hashlib.sha256()
        try:
            with self._mirror.stream(entry.oid) as blob:
                while chunk := blob.read(2**20):
                    digest.update(chunk)
        except OSError as error:
            raise SourceError(f"{entry.path}: {error}") from error
        _write_beside(known, digest.hexdigest())
        return digest.hexdigest()


def list_tree(objects: Objects, revision: str, root: str) -> bytes:
    """Records `<mode> <type> <oid> <size>\\t<path>`, each ended by NUL, with a NUL in front."""
    tree = f"{revision}:{root}" if root else revision
    found = objects.git("ls-tree", "-r", "-z", "-l", "--full-tree", "--end-of-options", tree)
    if found.code != 0 and root and objects.resolve(f"{revision}^{{commit}}"):
        raise SourceError(
            f"{root}: no such folder in commit {revision[:12]}; commit it, or use --watch, which "
            "follows the files as they are"
        )
    if found.code != 0:
        raise SourceError(f"commit {revision[:12]} cannot be read: {found.message}")
    return b"\0" + found.stdout


def parse_entry(row: bytes) -> Entry:
    facts, path = row.split(b"\t", 1)
    mode, _, oid, size = facts.decode("ascii").split()
    return Entry(os.fsdecode(path), mode, oid, int(size) if size != "-" else None)


def _write_beside(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):  # a cache: without it the digest is computed again
        path.parent.mkdir(exist_ok=True)
        half = path.with_name(f"{path.name}.{os.getpid()}")
        half.write_text(text)
        half.replace(path)
