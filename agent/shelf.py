"""The verified model files on disk, by the sha256 of their bytes.

    sha256/<digest>/<file>          the model, read-only
    sha256/<digest>/.model.json     its file's name, size and format
    sha256/<digest>/.facts.json     what its header says; a cache, written by one of our versions
    sources/<hash of source>.json   which digest was verified first for a source on this node

A digest's folder appears by one rename, complete and flushed; it never changes after that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType

from agent.state import atomic_write, sync_directory
from reconciler import __version__
from reconciler.errors import HeaderError
from reconciler.memory import ModelFacts
from reconciler.workload import ModelFile

_MANIFEST = ".model.json"
_FACTS = ".facts.json"
_DIGEST = re.compile("[0-9a-f]{64}")
_LONGEST_NAME = 128


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A verified model file. `path` is absolute if the store's root is."""

    digest: str
    path: Path
    size_bytes: int
    format: str


class Shelf:
    """Reads are cheap (a stat) and may come from any thread; one process's writes from one thread
    a digest. `read_only`: for looking at it; what is read is not even cached on disk."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._root = root
        self._models = root / "sha256"
        self._sources = root / "sources"
        self._known: dict[str, StoredModel] = {}
        self._facts: dict[str, ModelFacts] = {}

    def get(self, digest: str) -> StoredModel | None:
        """The model, or None: not here, or no longer as long as it was when it was verified."""
        stored = self._known.get(digest) or self._read_manifest(digest)
        if stored is None:
            return None
        try:
            whole = stored.path.stat().st_size == stored.size_bytes
        except OSError:
            whole = False
        if not whole:
            self._known.pop(digest, None)
            return None
        self._known[digest] = stored
        return stored

    def first_verified(self, source: str) -> str | None:
        """The digest that a source had when it was first verified here."""
        entry = _read_json(self._source_file(source))
        digest = entry.get("sha256")
        return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None

    def facts(self, digest: str) -> ModelFacts | None:
        """What the header says; None where the model is not here, is no GGUF, or is unreadable."""
        stored = self.get(digest)
        if stored is None or stored.format != "gguf":
            return None
        if digest not in self._facts:
            facts = _load_facts(stored.path.with_name(_FACTS)) or self._read_again(stored.path)
            if facts is None:
                return None
            self._facts[digest] = facts
        return self._facts[digest]

    def put(self, path: Path, model: ModelFile, digest: str, facts: ModelFacts | None) -> None:
        """Move a verified, flushed file in, and remember which source it came from."""
        staging = path.with_name("staged")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        name = _file_name(model)
        manifest = {"file": name, "sizeBytes": path.stat().st_size, "format": model.format}
        atomic_write(staging / _MANIFEST, json.dumps(manifest).encode())
        if facts is not None:
            _save_facts(staging / _FACTS, facts)
        path.chmod(0o444)
        path.rename(staging / name)
        sync_directory(staging)
        self._models.mkdir(parents=True, exist_ok=True)
        final = self._models / digest
        if self.get(digest) is None:
            self._discard(final)  # damaged: its file is not as long as it was
            staging.rename(final)
            sync_directory(self._models)
        self.remember(model.source, digest)

    def remember(self, source: str, digest: str) -> None:
        """Note the digest of a source, unless an earlier one is noted and still here."""
        noted = self.first_verified(source)
        if noted is None or (noted != digest and self.get(noted) is None):
            self._sources.mkdir(parents=True, exist_ok=True)
            entry = json.dumps({"source": source, "sha256": digest})
            atomic_write(self._source_file(source), entry.encode())

    def collect(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove all other models and the notes on their sources. A running process that has one
        mapped keeps its pages."""
        gone = []
        for folder in sorted(self._models.glob("*")):
            if folder.name not in keep:  # also what an interrupted _discard left
                self._known.pop(folder.name, None)
                self._facts.pop(folder.name, None)
                self._discard(folder)
                if _DIGEST.fullmatch(folder.name):
                    gone.append(folder.name)
        for note in self._sources.glob("*.json"):
            if _read_json(note).get("sha256") in gone:
                note.unlink(missing_ok=True)
        return tuple(gone)

    def _discard(self, folder: Path) -> None:
        """Out of sight in one step, then away; a crash in between leaves only a hidden folder."""
        trash = folder.with_name(f".trash-{folder.name}")
        shutil.rmtree(trash, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _read_manifest(self, digest: str) -> StoredModel | None:
        folder = self._models / digest
        entry = _read_json(folder / _MANIFEST)
        match entry:
            case {"file": str(name), "sizeBytes": int(size), "format": str(form)}:
                return StoredModel(digest, folder / Path(name).name, size, form)
            case _:
                return None

    def _read_again(self, path: Path) -> ModelFacts | None:
        from reconciler.gguf.header import read_path

        try:
            facts = read_path(path)
        except HeaderError:
            return None
        if not self._read_only:
            with contextlib.suppress(OSError):  # only a cache
                _save_facts(path.with_name(_FACTS), facts)
        return facts

    def _source_file(self, source: str) -> Path:
        return self._sources / f"{hashlib.sha256(source.encode()).hexdigest()}.json"


def _file_name(model: ModelFile) -> str:
    """Readable in `ps` and in error messages, harmless in a shell."""
    last = model.source.partition("?")[0].rpartition("/")[2].replace("==", "-")
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", last).lstrip(".-_")[-_LONGEST_NAME:] or "model"
    suffix = ".gguf"
    return name + suffix if model.format == "gguf" and not name.endswith(suffix) else name


def _read_json(path: Path) -> dict[str, object]:
    """An object; empty where the file is absent or damaged, which callers treat alike."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _save_facts(path: Path, facts: ModelFacts) -> None:
    values = {f.name: getattr(facts, f.name) for f in fields(facts)} | {"keys": dict(facts.keys)}
    atomic_write(path, json.dumps({"version": __version__, "facts": values}).encode())


def _load_facts(path: Path) -> ModelFacts | None:
    """None where another version of ours wrote them: it may have read the header differently."""
    entry = _read_json(path)
    values = entry.get("facts")
    if entry.get("version") != __version__ or not isinstance(values, dict):
        return None
    try:
        keys = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in values["keys"].items()
        }
        return ModelFacts(**values | {"keys": MappingProxyType(keys)})
    except (AttributeError, KeyError, TypeError):
        return None
