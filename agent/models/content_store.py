"""The verified models on disk, by digest: of one file its sha256, of several models.tree's formula.

    sha256/<digest>/<file>          the model, read-only; several files under their own names
    sha256/<digest>/<name>/...      a model that is a folder
                                    (of a model that is served where it lies: links to its files)
    sha256/<digest>/.model.json     its files' names, sizes and digests, its format, what it took
    sha256/<digest>/.facts.json     what its header says; a cache, written by one of our versions
    sha256/<digest>/.verified.json  the identity that each file had when its bytes were verified
    sources/<hash of source>.json   which digest was verified first for a source on this node
    pins/<digest>                   a person brought it: it stays for a while without being needed
    corrupt/<digest>                what `store verify` found damaged

A digest's folder appears by one rename, complete and flushed; it never changes after that.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.models.arrival import ArrivedFiles, facts_of, folder_facts
from agent.models.stored_facts import load_facts, save_facts
from reconciler.api.errors import HeaderError, ModelError
from reconciler.atomic import atomic_write, sync_directory
from reconciler.memory import ModelFacts
from reconciler.models.file import identity_on_disk, version_of
from reconciler.models.tree import check_paths
from reconciler.ownfile import glance, read_or_move

_MANIFEST = ".model.json"
_FACTS = ".facts.json"
_VERIFIED = ".verified.json"
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class StoredFile:
    path: str  # relative to the model's folder
    size_bytes: int
    sha256: str
    version: str | None = None  # of one that lies elsewhere, when it was verified


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A verified model. `path` is what an engine is given: its file, the first part of a split one,
    or its folder; absolute if the store's root is. `base` is the folder of its `files`. `took_s` is
    how long it took to bring it, with all attempts; None where nobody waited for it. `source` is
    where it was fetched from first; empty: it was imported, or that was not noted."""

    digest: str
    path: Path
    size_bytes: int
    format: str
    base: Path
    files: tuple[StoredFile, ...]
    took_s: float | None = None
    source: str = ""

    @property
    def own_bytes(self) -> int:
        """What the store's disk has of it: nothing of a file that lies elsewhere."""
        return sum(file.size_bytes for file in self.files if file.version is None)

    @property
    def weights_bytes(self) -> int:
        """The size of its tensor files."""
        weights = (f for f in self.files if f.path.endswith((".safetensors", ".gguf")))
        return sum(file.size_bytes for file in weights)


@dataclass(frozen=True, slots=True)
class Stocked:
    """One model of the store, and the sources it answers for; `resolved` as in FileListing."""

    model: StoredModel
    sources: tuple[str, ...]
    resolved: tuple[str, ...]


class ContentStore:
    """The store's folder. Reads are cheap (a stat per file) and may come from any thread; writes of
    one digest must come from one thread of a process. `read_only` is for inspecting it: not even
    facts are cached on disk. `shared`: machines with different views of one volume use it, so that
    only sizes identify its files."""

    def __init__(self, root: Path, *, read_only: bool = False, shared: bool = False) -> None:
        self._read_only = read_only
        self._shared = shared
        self._models = root / "sha256"
        self._sources = root / "sources"
        self._pins = root / "pins"
        self._corrupt = root / "corrupt"
        self._known: dict[str, StoredModel] = {}
        self._verified: dict[str, Mapping[str, str]] = {}
        self._facts: dict[str, ModelFacts] = {}

    def why_apart(self, arriving: Path) -> str | None:
        """Return why no model could be renamed from `arriving` into the store; None if one can."""
        devices = {_device(self._models), _device(arriving)} - {None}
        return _apart(self._models, arriving) if len(devices) > 1 else None

    def get(self, digest: str) -> StoredModel | None:
        """Return the model if its files are those that were verified, else None."""
        stored = self.held(digest)
        if stored is None or not self._is_changed(stored):
            return stored
        self._known.pop(digest, None)  # another process may have stored it anew
        return None

    def held(self, digest: str) -> StoredModel | None:
        """Return the model if the store's own files have the verified sizes. They, and files that
        lie elsewhere, may have been changed since."""
        stored = self._known.get(digest) or self._read_manifest(digest)
        if stored is None or not _is_whole(stored):
            self._forget(digest)
            return None
        self._known[digest] = stored
        return stored

    def changed(self, digest: str) -> StoredModel | None:
        """Return a model of the store's own files that were changed since their verification."""
        stored = self.held(digest)
        if stored is None or any(file.version is not None for file in stored.files):
            return None
        return stored if self._is_changed(stored) else None

    def identities(self, stored: StoredModel) -> Mapping[str, str]:
        """Return the identity of each of the store's own files now. Raises OSError."""
        own = (file.path for file in stored.files if file.version is None)
        return {path: identity_on_disk((stored.base / path).stat()) for path in own}

    def note_verified(self, digest: str, identities: Mapping[str, str]) -> None:
        """Note that the files' bytes were verified while they had these identities."""
        note = json.dumps(dict(identities)).encode()
        atomic_write(self._models / digest / _VERIFIED, note)
        self._verified.pop(digest, None)

    def all(self) -> tuple[StoredModel, ...]:
        """Every model that the store holds, also with files that were changed since."""
        names = sorted(path.name for path in self._models.glob("*"))
        return tuple(m for name in names if _DIGEST.fullmatch(name) and (m := self.held(name)))

    def inventory(self) -> tuple[Stocked, ...]:
        """Every model with the sources it answers for: it was the first that came from them."""
        notes = [self._read_json(note) for note in sorted(self._sources.glob("*.json"))]
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

    def newest(self, most: int) -> Iterator[tuple[str, StoredModel]]:
        """The sources that were noted last, each with the model that came from it first."""
        times: list[tuple[float, Path]] = []
        for note in self._sources.glob("*.json"):
            with contextlib.suppress(OSError):  # another process removed it
                times.append((note.stat().st_mtime, note))
        for _, note in sorted(times, reverse=True)[:most]:
            noted = self._read_json(note)
            digest = str(noted.get("sha256"))
            if _DIGEST.fullmatch(digest) and (model := self.get(digest)) is not None:
                yield str(noted.get("source")), model

    def first_verified(self, origin: str) -> str | None:
        """The digest of a ModelFile.origin when it was first verified here."""
        entry = self._read_json(self._source_file(origin))
        digest = entry.get("sha256")
        return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None

    def facts(self, digest: str) -> ModelFacts | None:
        """The facts of its header or config.json; None if it is missing or unreadable."""
        stored = self.held(digest)
        if stored is None:
            return None
        if digest not in self._facts:
            cache = self._models / digest / _FACTS
            facts = load_facts(cache, read_only=self._read_only)
            if facts is None and not self._is_changed(stored):
                facts = self._read_again(stored, cache)
            if facts is None:
                return None
            self._facts[digest] = facts
        return self._facts[digest]

    def put(
        self,
        arrived: ArrivedFiles,
        form: str,
        place: Path,
        *,
        pin: bool = False,
        took_s: float | None = None,
        source: str = "",
    ) -> StoredModel:
        """Move verified, flushed files in; `place` is a folder on the same disk for staging."""
        staging = place / "staged"
        shutil.rmtree(staging, ignore_errors=True)
        base = staging / arrived.folder
        base.mkdir(parents=True)
        manifest = {
            "file": arrived.entry,
            "folder": arrived.folder,
            "sizeBytes": sum(file.size_bytes for file in arrived.files),
            "format": form,
            "files": [
                [f.path, f.size_bytes, f.sha256, *([f.version] if f.version else [])]
                for f in arrived.files
            ],
            "tookSeconds": None if took_s is None else round(took_s, 3),
            "source": source,
        }
        atomic_write(staging / _MANIFEST, json.dumps(manifest).encode())
        if arrived.facts is not None:
            save_facts(staging / _FACTS, arrived.facts)
        identities: dict[str, str] = {}
        for file in arrived.files:
            target = base / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.version is not None:
                target.symlink_to(file.at)
                continue
            file.at.chmod(0o444)
            file.at.rename(target)
            identities[file.path] = identity_on_disk(target.stat())
        if identities and not self._shared:
            atomic_write(staging / _VERIFIED, json.dumps(identities).encode())
        for folder in {staging, *(p for p in base.rglob("*") if p.is_dir()), base}:
            sync_directory(folder)
        self._models.mkdir(parents=True, exist_ok=True)
        final = self._models / arrived.digest
        if pin:
            self.pin(arrived.digest)
        if self.get(arrived.digest) is None:
            # damaged: its files were changed since it was stored, or lay elsewhere
            self._forget(arrived.digest)
            self._discard(final)
            try:
                staging.rename(final)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                raise ModelError(_apart(self._models, place.parent)) from error  # a bind mount
            sync_directory(self._models)
        stored = self.get(arrived.digest)
        assert stored is not None, "it was renamed in, whole"
        return stored

    def remember(self, origin: str, digest: str, resolved: str = "") -> None:
        """Note the digest of an origin, unless an earlier one is noted and still stored."""
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

    def assign(self, origin: str, digest: str) -> None:
        """Note the digest of an origin because a user says so, whatever it was before."""
        self._source_file(origin).unlink(missing_ok=True)
        self.remember(origin, digest)

    def pin(self, digest: str) -> None:
        """Keep a model for a while that nothing needs yet, because a user fetched it."""
        self._pins.mkdir(parents=True, exist_ok=True)
        (self._pins / digest).touch()

    def unpin(self, digest: str) -> None:
        """No user asks for it any more."""
        (self._pins / digest).unlink(missing_ok=True)

    def pinned_since(self, oldest: float) -> frozenset[str]:
        """Models pinned at or after a moment (epoch seconds); older pins are removed."""
        kept = set()
        for pin in self._pins.glob("*"):
            with contextlib.suppress(OSError):  # another process removed it
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
            if folder.name not in keep:  # also remains of an interrupted _discard
                self._forget(folder.name)
                self._discard(folder)
        for note in self._sources.glob("*.json"):
            if self._read_json(note).get("sha256") in gone:
                note.unlink(missing_ok=True)
        return gone

    def remove(self, digest: str) -> None:
        """Remove one model; what is known of its sources stays, so that it comes back the same."""
        self._forget(digest)
        self._discard(self._models / digest)

    def set_aside(self, digest: str) -> Path:
        """Take a damaged model out of use; the latest one of each digest is kept for inspection."""
        aside = self._corrupt / digest
        self._corrupt.mkdir(exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        self._forget(digest)
        (self._models / digest).rename(aside)
        os.utime(aside)
        return aside

    def drop_corrupt(self, oldest: float = math.inf) -> None:
        """Remove what was set aside before a moment (epoch seconds)."""
        for aside in self._corrupt.glob("*"):
            with contextlib.suppress(OSError):  # another process removed it
                if aside.stat().st_mtime < oldest:
                    shutil.rmtree(aside)

    def _forget(self, digest: str) -> None:
        self._known.pop(digest, None)
        self._facts.pop(digest, None)
        self._verified.pop(digest, None)

    def _discard(self, folder: Path) -> None:
        """Hide the folder in one step, then remove it; a crash in between leaves only a hidden
        folder."""
        trash = folder.with_name(f".trash-{folder.name}")
        shutil.rmtree(trash, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _read_manifest(self, digest: str) -> StoredModel | None:
        top = self._models / digest
        match self._read_json(top / _MANIFEST):
            case {"file": str(name), "sizeBytes": int(size), "format": str(form), **rest}:
                folder = Path(str(rest.get("folder", ""))).name
                files = _read_files(rest.get("files", [[name, size, digest]]))
                if files is None or (name and name not in {file.path for file in files}):
                    return None
                base = top / folder
                took_s = _read_seconds(rest.get("tookSeconds"))
                source = str(rest.get("source", ""))
                return StoredModel(digest, base / name, size, form, base, files, took_s, source)
            case _:
                return None

    def _is_changed(self, stored: StoredModel) -> bool:
        """True if a file has another identity than when it was verified. The store's own files
        without a noted identity were stored by an earlier version, and are unchanged."""
        if not _are_in_place(stored):
            return True
        if self._shared:
            return False
        known = self._verified.get(stored.digest)
        if known is not None and self._is_as_noted(stored, known):
            return False
        noted = self._read_json(
            self._models / stored.digest / _VERIFIED
        )  # another process may write it
        known = {path: str(identity) for path, identity in noted.items()}
        self._verified[stored.digest] = known
        return not self._is_as_noted(stored, known)

    def _is_as_noted(self, stored: StoredModel, noted: Mapping[str, str]) -> bool:
        try:
            now = self.identities(stored) if noted else {}
        except OSError:
            return False
        return all(now.get(path, identity) == identity for path, identity in noted.items())

    def _read_again(self, stored: StoredModel, cache: Path) -> ModelFacts | None:
        try:
            entry = stored.path.relative_to(stored.base).as_posix()
            files = {f.path: stored.base / f.path for f in stored.files}
            facts = facts_of(files, entry) if stored.format == "gguf" else folder_facts(files)
        except (HeaderError, OSError):
            return None
        if not self._read_only:
            with contextlib.suppress(OSError):  # only a cache
                save_facts(cache, facts)
        return facts

    def _read_json(self, path: Path) -> dict[str, object]:
        """A JSON object; empty if the file is missing or damaged, which callers treat alike."""
        read = glance if self._read_only else read_or_move
        return read(path, dict) or {}

    def _source_file(self, origin: str) -> Path:
        return self._sources / f"{hashlib.sha256(origin.encode()).hexdigest()}.json"


def _apart(models: Path, arriving: Path) -> str:
    return (
        f"{models} and {arriving} are on different file systems, between which no model can be"
        " renamed; keep the whole store on one: remove that link or mount, and name a folder there"
        " with --model-store"
    )


def _device(folder: Path) -> int | None:
    """Return the file system of a folder that may still have to be made; None if unknown."""
    for path in (folder, *folder.parents):
        try:
            return path.stat().st_dev
        except FileNotFoundError:
            continue
        except OSError:
            break
    return None


def _is_whole(stored: StoredModel) -> bool:
    own = (file for file in stored.files if file.version is None)
    try:
        return all((stored.base / f.path).stat().st_size == f.size_bytes for f in own)
    except OSError:
        return False


def _are_in_place(stored: StoredModel) -> bool:
    """True if the files that lie elsewhere are those that were verified."""
    elsewhere = (file for file in stored.files if file.version is not None)
    try:
        return all(version_of((stored.base / f.path).stat()) == f.version for f in elsewhere)
    except OSError:
        return False


def _read_files(entries: object) -> tuple[StoredFile, ...] | None:
    """None if the manifest is damaged, or names a path outside its folder."""
    if not isinstance(entries, list):
        return None
    try:
        files = tuple(
            StoredFile(str(p), int(s), str(d), *map(str, version)) for p, s, d, *version in entries
        )
        check_paths([file.path for file in files])
    except (TypeError, ValueError, ModelError):
        return None
    return files


def _read_seconds(value: object) -> float | None:
    """None if none were noted, or what no clock counts: users may write there."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return None
    return float(value)
