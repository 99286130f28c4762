"""A cache of header facts on disk. It can be rebuilt: damaged entries are dropped, and a full disk
costs repeated requests."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reconciler import __version__
from reconciler.atomic import atomic_write
from reconciler.memory import ModelFacts
from reconciler.ownfile import read_or_move

_MOST_BYTES = 64 << 20  # of all entries; one is some KiB
_LARGEST_ENTRY = 2 << 20
_MOST_LAYERS = 10_000
_NAME = re.compile(r"[0-9a-f]{64}\.json")

Identity = tuple[tuple[str, str | None, int], ...]
"""For each file of a model its path, a value that changes with its bytes, and its size."""


@dataclass(frozen=True, slots=True)
class RemoteHeader:
    """What is known of a model that was not fetched. `digest` is stated by its host. `why` is the
    reason if `facts` or the size are unknown, else empty. `host_is_away`: its host could not be
    reached just now; what is known is from the cache. `refused`: why its host does not give it, or
    not as a model that can be used, else empty."""

    size_bytes: int | None = None
    digest: str | None = None
    facts: ModelFacts | None = None
    why: str = ""
    host_is_away: bool = False
    refused: str = ""


@dataclass(frozen=True, slots=True)
class KnownHeader:
    """Cached facts, and the identity of the bytes they belong to."""

    identity: Identity
    ahead: RemoteHeader


class HeaderCache:
    """Entries by name in one folder, private to this user. Safe for several threads and processes:
    an entry is written to a temporary file and renamed."""

    def __init__(self, folder: Path | None, *, most_entries: int = 2000) -> None:
        """Nothing is kept where `folder` is None."""
        self._folder = folder
        self._most_entries = most_entries

    def get(self, name: str) -> KnownHeader | None:
        if self._folder is None:
            return None
        path = self._folder / f"{name}.json"
        entry = read_or_move(path, _parse, lost="the header is read again")
        with contextlib.suppress(OSError):
            if entry is None:
                path.unlink(missing_ok=True)  # of another version
            else:
                os.utime(path)  # entries in use stay
        return entry

    def put(self, name: str, entry: KnownHeader) -> None:
        data = _dump(entry)
        if self._folder is None or len(data) > _LARGEST_ENTRY:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write(self._folder / f"{name}.json", data, durable=False)
            self._bound(self._folder)

    def _bound(self, folder: Path) -> None:
        """Drop the entries not used for longest. By order, not by age: a clock may jump."""
        with os.scandir(folder) as entries:
            by_age = sorted((e.stat().st_mtime, e.stat().st_size, e.name) for e in entries)
        count, size = len(by_age), sum(size for _, size, _ in by_age)
        for _, length, name in by_age:
            if count <= self._most_entries and size <= _MOST_BYTES:
                return
            if _NAME.fullmatch(name) or name.endswith((".tmp", ".corrupt")):
                (folder / name).unlink(missing_ok=True)
                count, size = count - 1, size - length


_COUNTS = (
    *("file_bytes", "weights_bytes", "repackable_bytes", "tensor_count"),
    *("vocabulary", "merges", "packed_bytes"),
    *("embedding_bytes", "lookup_bytes", "head_bytes", "largest_bytes", "heads"),
)
_TEXTS = ("architecture", "tokenizer", "first_tokens")
_BY_LAYER = ("block_bytes", "expert_bytes")


def dump_facts(facts: ModelFacts) -> dict[str, Any]:
    return {f.name: getattr(facts, f.name) for f in fields(facts)} | {"keys": dict(facts.keys)}


def parse_facts(values: Mapping[str, Any]) -> ModelFacts:
    """The inverse of `dump_facts`; KeyError, TypeError, ValueError or AttributeError if the data is
    malformed."""
    keys = {
        str(key): tuple(value) if isinstance(value, list) else value
        for key, value in values["keys"].items()
    }
    known = {f.name: values[f.name] for f in fields(ModelFacts)}
    layers = {name: tuple(int(size) for size in values[name]) for name in _BY_LAYER}
    tensors = {
        "layer_tensors": tuple(
            (str(name), tuple((int(first), _few(n), int(size)) for first, n, size in runs))
            for name, runs in values["layer_tensors"]
        ),
        "other_tensors": tuple((str(name), int(size)) for name, size in values["other_tensors"]),
    }
    facts = ModelFacts(**known | {"keys": MappingProxyType(keys)} | layers | tensors)
    for name in _COUNTS:
        if not isinstance(getattr(facts, name), int):
            raise TypeError(name)
    for name in _TEXTS:
        if not isinstance(getattr(facts, name), str):
            raise TypeError(name)
    return facts


def _few(layers: Any) -> int:  # noqa: ANN401 - any JSON value
    """What is gone through one by one; ValueError for more than any model has."""
    if not 0 < layers <= _MOST_LAYERS:
        raise ValueError(layers)
    return int(layers)


def _dump(entry: KnownHeader) -> bytes:
    ahead = entry.ahead
    value = {
        "version": __version__,
        "identity": entry.identity,
        "sizeBytes": ahead.size_bytes,
        "digest": ahead.digest,
        "facts": dump_facts(ahead.facts) if ahead.facts else None,
        "why": ahead.why,
    }
    return json.dumps(value).encode()


def _parse(value: Mapping[str, Any]) -> KnownHeader | None:
    """None if it is of another version, which may have read headers differently."""
    if value["version"] != __version__:
        return None
    identity = tuple((str(path), mark, int(size)) for path, mark, size in value["identity"])
    facts = parse_facts(value["facts"]) if value["facts"] else None
    match value:
        case {"sizeBytes": int() | None as size, "digest": str() | None as digest}:
            return KnownHeader(identity, RemoteHeader(size, digest, facts, str(value["why"])))
    raise ValueError("it is no header")
