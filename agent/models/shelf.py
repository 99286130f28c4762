"""The verified models on disk, by digest: of one file its sha256, of several models.tree's formula.

    sha256/<digest>/<file>          the model, read-only; several files under their own names
    sha256/<digest>/<name>/...      a model that is a folder
    sha256/<digest>/.model.json     its files' names, sizes and digests, and its format
    sha256/<digest>/.facts.json     what its header says; a cache, written by one of our versions
    sources/<hash of source>.json   which digest was verified first for a source on this node
    pins/<digest>                   a person brought it: it stays for a while without being needed
    corrupt/<digest>                what `store verify` found damaged

A digest's folder appears by one rename, complete and flushed; it never changes after that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from agent.models.arrival import Arrived, facts_of
from agent.models.header_cache import load_facts, save_facts
from agent.state import atomic_write, sync_directory
from reconciler.errors import HeaderError, ModelError
from reconciler.memory import ModelFacts
from reconciler.models.tree import check_paths

_MANIFEST = ".model.json"
_FACTS = ".facts.json"
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class StoredFile:
    path: str  # below the model's folder
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A verified model. `path` is what an engine is given: its file, the first part of a split one,
    or its folder; absolute if the store's root is. `base` is where its `files` lie."""

    digest: str
    path: Path
    size_bytes: int
    format: str
    base: Path
    files: tuple[StoredFile, ...]

    @property
    def weights_bytes(self) -> int:
        """The bytes of its tensors' files."""
        weights = (f for f in self.files if f.path.endswith((".safetensors", ".gguf")))
        return sum(file.size_bytes for file in weights)


@dataclass(frozen=True, slots=True)
class Stocked:
    """One model of the store, and the sources that it answers for; `resolved` as Listing's."""

    model: StoredModel
    sources: tuple[str, ...]
    resolved: tuple[str, ...]


class Shelf:
    """Reads are cheap (a stat a file) and may come from any thread; one process's writes from one
    thread a digest. `read_only`: for looking at it; what is read is not even cached on disk."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._models = root / "sha256"
        self._sources = root / "sources"
        self._pins = root / "pins"
        self._corrupt = root / "corrupt"
        self._known: dict[str, StoredModel] = {}
        self._facts: dict[str, ModelFacts] = {}

    def get(self, digest: str) -> StoredModel | None:
        """The model, or None: not here, or no longer as long as it was when it was verified."""
        stored = self._known.get(digest) or self._read_manifest(digest)
        if stored is None or not _is_whole(stored):
            self._known.pop(digest, None)
            return None
        self._known[digest] = stored
        return stored

    def all(self) -> tuple[StoredModel, ...]:
        names = sorted(path.name for path in self._models.glob("*"))
        return tuple(m for name in names if _DIGEST.fullmatch(name) and (m := self.get(name)))

    def inventory(self) -> tuple[Stocked, ...]:
        """Every model with the sources that it answers for."""
        notes = [_read_json(note) for note in sorted(self._sources.glob("*.json"))]
        return tuple(
            Stocked(
                model,
                tuple(str(n.get("source")) for n in notes if n.get("sha256") == model.digest),
                tuple(
                    str(n["resolved"])
                    for n in notes
                    if n.get("sha256") == model.digest and n.get("resolved")
                ),
            )
            for model in self.all()
        )

    def first_verified(self, origin: str) -> str | None:
        """The digest that a ModelFile.origin had when it was first verified here."""
        entry = _read_json(self._source_file(origin))
        digest = entry.get("sha256")
        return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None

    def facts(self, digest: str) -> ModelFacts | None:
        """What the header says; None where the model is not here, is no GGUF, or is unreadable."""
        stored = self.get(digest)
        if stored is None or stored.format != "gguf":
            return None
        if digest not in self._facts:
            cache = self._models / digest / _FACTS
            facts = load_facts(cache) or self._read_again(stored, cache)
            if facts is None:
                return None
            self._facts[digest] = facts
        return self._facts[digest]

    def put(self, arrived: Arrived, form: str, place: Path, *, pin: bool = False) -> StoredModel:
        """Move verified, flushed files in; `place` is a folder of the same disk to stage in."""
        staging = place / "staged"
        shutil.rmtree(staging, ignore_errors=True)
        base = staging / arrived.folder
        base.mkdir(parents=True)
        manifest = {
            "file": arrived.entry,
            "folder": arrived.folder,
            "sizeBytes": sum(file.size_bytes for file in arrived.files),
            "format": form,
            "files": [[f.path, f.size_bytes, f.sha256] for f in arrived.files],
        }
        atomic_write(staging / _MANIFEST, json.dumps(manifest).encode())
        if arrived.facts is not None:
            save_facts(staging / _FACTS, arrived.facts)
        for file in arrived.files:
            target = base / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            file.at.chmod(0o444)
            file.at.rename(target)
        for folder in {staging, *(p for p in base.rglob("*") if p.is_dir()), base}:
            sync_directory(folder)
        self._models.mkdir(parents=True, exist_ok=True)
        final = self._models / arrived.digest
        if pin:
            self.pin(arrived.digest)
        if self.get(arrived.digest) is None:
            self._discard(final)  # damaged: its files are not as long as they were
            staging.rename(final)
            sync_directory(self._models)
        stored = self.get(arrived.digest)
        assert stored is not None, "it was renamed in, whole"
        return stored

    def remember(self, origin: str, digest: str, resolved: str = "") -> None:
        """Note the digest of an origin, unless an earlier one is noted and still here."""
        noted = self.first_verified(origin)
        if noted is None or (noted != digest and self.get(noted) is None):
            self._sources.mkdir(parents=True, exist_ok=True)
            source, _, files = origin.partition("\n")
            entry: dict[str, object] = {"source": source, "sha256": digest}
            if files:
                entry["files"] = files.split("\n")
            if resolved:
                entry["resolved"] = resolved
            atomic_write(self._source_file(origin), json.dumps(entry).encode())

    def answer_for(self, origin: str, digest: str) -> None:
        """Let a person decide which digest a source has here, whatever it was before."""
        self._source_file(origin).unlink(missing_ok=True)
        self.remember(origin, digest)

    def pin(self, digest: str) -> None:
        """Keep a model for a while though nothing needs it yet: a person brought it."""
        self._pins.mkdir(parents=True, exist_ok=True)
        (self._pins / digest).touch()

    def pinned_since(self, oldest: float) -> frozenset[str]:
        """What was pinned at or after a moment (epoch seconds); older pins go."""
        kept = set()
        for pin in self._pins.glob("*"):
            with contextlib.suppress(OSError):  # another process was faster
                if pin.stat().st_mtime >= oldest:
                    kept.add(pin.name)
                elif not self._read_only:
                    pin.unlink()
        return frozenset(kept)

    def unneeded(self, keep: Collection[str]) -> tuple[str, ...]:
        """The digests that `collect` would remove."""
        names = sorted(folder.name for folder in self._models.glob("*"))
        return tuple(name for name in names if _DIGEST.fullmatch(name) and name not in keep)

    def collect(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove all other models and the notes on their sources. A running process that has one
        mapped keeps its pages."""
        gone = self.unneeded(keep)
        for folder in sorted(self._models.glob("*")):
            if folder.name not in keep:  # also what an interrupted _discard left
                self._forget(folder.name)
                self._discard(folder)
        for note in self._sources.glob("*.json"):
            if _read_json(note).get("sha256") in gone:
                note.unlink(missing_ok=True)
        return gone

    def set_aside(self, digest: str) -> Path:
        """Take a damaged model out of use; the newest one of a digest is kept to be looked at."""
        aside = self._corrupt / digest
        self._corrupt.mkdir(exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        self._forget(digest)
        (self._models / digest).rename(aside)
        return aside

    def drop_corrupt(self) -> None:
        shutil.rmtree(self._corrupt, ignore_errors=True)

    def _forget(self, digest: str) -> None:
        self._known.pop(digest, None)
        self._facts.pop(digest, None)

    def _discard(self, folder: Path) -> None:
        """Out of sight in one step, then away; a crash in between leaves only a hidden folder."""
        trash = folder.with_name(f".trash-{folder.name}")
        shutil.rmtree(trash, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _read_manifest(self, digest: str) -> StoredModel | None:
        top = self._models / digest
        match _read_json(top / _MANIFEST):
            case {"file": str(name), "sizeBytes": int(size), "format": str(form), **rest}:
                folder = Path(str(rest.get("folder", ""))).name
                files = _read_files(rest.get("files", [[name, size, digest]]))
                if files is None or (name and name not in {file.path for file in files}):
                    return None
                base = top / folder
                return StoredModel(digest, base / name, size, form, base, files)
            case _:
                return None

    def _read_again(self, stored: StoredModel, cache: Path) -> ModelFacts | None:
        try:
            entry = stored.path.relative_to(stored.base).as_posix()
            facts = facts_of({f.path: stored.base / f.path for f in stored.files}, entry)
        except HeaderError:
            return None
        if not self._read_only:
            with contextlib.suppress(OSError):  # only a cache
                save_facts(cache, facts)
        return facts

    def _source_file(self, origin: str) -> Path:
        return self._sources / f"{hashlib.sha256(origin.encode()).hexdigest()}.json"


def _is_whole(stored: StoredModel) -> bool:
    try:
        sizes = ((stored.base / f.path).stat().st_size == f.size_bytes for f in stored.files)
        return all(sizes)
    except OSError:
        return False


def _read_files(entries: object) -> tuple[StoredFile, ...] | None:
    """None where the manifest is damaged, or names something outside its folder."""
    if not isinstance(entries, list):
        return None
    try:
        files = tuple(StoredFile(str(p), int(s), str(d)) for p, s, d in entries)
        check_paths([file.path for file in files])
    except (TypeError, ValueError, ModelError):
        return None
    return files


def _read_json(path: Path) -> dict[str, object]:
    """An object; empty where the file is absent or damaged, which callers treat alike."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
