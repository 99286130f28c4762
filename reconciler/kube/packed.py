"""Objects of a cluster as thousands of them are kept: as JSON, decoded when one is looked at. Pure.

Decoded, an object takes eight times as much, and a heap keeps the most it ever held. What is asked
of every object in every pass (whose it is, whether it is the same as before) needs no decoding.
"""

from __future__ import annotations

import zlib
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from reconciler.api.meta import ObjectRef
from reconciler.kube.json_text import to_json
from reconciler.kube.objects import Manifest, ObjectId, ref_of, service_of

_LEVEL = 1  # of zlib: the quickest


@dataclass(frozen=True, slots=True)
class Packed:
    """One object. `text` is JSON, or that compressed; `service` the one that it is for; None: for
    none."""

    text: bytes
    service: ObjectRef | None

    def manifest(self) -> Manifest:
        found: Manifest = orjson.loads(self._json)
        return found

    def smaller(self) -> Packed:
        """A third of it, for what lies here for hours: 100 us for a Deployment, and 30 when it is
        looked at."""
        return Packed(zlib.compress(self._json, _LEVEL), self.service)

    @property
    def _json(self) -> bytes:
        return self.text if self.text.startswith(b"{") else zlib.decompress(self.text)


Held = Packed | Manifest


def packed(manifest: Manifest) -> Packed:
    text = to_json(manifest)
    # a copy, as orjson's own bytes keep the room in which they grew: up to three times theirs
    return Packed(bytes(memoryview(text)), service_of(manifest))


class Later(Mapping[str, Any]):
    """A manifest that is decoded each time that somebody looks at it: plans hold thousands, and
    each is needed once."""

    def __init__(self, held: Packed) -> None:
        self._held = held

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any value of a manifest
        return self._held.manifest()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held.manifest())

    def __len__(self) -> int:
        return len(self._held.manifest())


def later(manifest: Manifest) -> Later:
    return manifest if isinstance(manifest, Later) else Later(packed(manifest))


class Objects(Mapping[ObjectId, Manifest]):
    """Objects at one moment. Those that are packed are decoded as they are looked at, 8 us each:
    whoever goes through all of them should keep none."""

    def __init__(self, held: Mapping[ObjectId, Held]) -> None:
        self._held = held

    @classmethod
    def of(cls, objects: Mapping[ObjectId, Manifest]) -> Objects:
        return objects if isinstance(objects, Objects) else cls(objects)

    def state(self, oid: ObjectId) -> object:
        """Equal to what it was before if, and only if, the object is."""
        return self._held.get(oid)

    def later(self, oid: ObjectId) -> Later:
        """One that is not looked at yet."""
        held = self._held[oid]
        return Later(held) if isinstance(held, Packed) else later(held)

    def ref(self, oid: ObjectId) -> ObjectRef:
        """What an object stands for: its service, or the document that it is."""
        return self.service(oid) or ref_of(oid)

    def service(self, oid: ObjectId) -> ObjectRef | None:
        """The InferenceService that it is for; None: for none."""
        held = self._held[oid]
        return held.service if isinstance(held, Packed) else service_of(held)

    def only(self, oids: Iterable[ObjectId]) -> Objects:
        """Some of them."""
        return Objects({oid: self._held[oid] for oid in oids})

    def changed(self, news: Mapping[ObjectId, Held | None]) -> Objects:
        """With others in their place; None: without it."""
        if not news:
            return self
        held = {**self._held, **{oid: new for oid, new in news.items() if new is not None}}
        return Objects({oid: one for oid, one in held.items() if news.get(oid, one) is not None})

    def over(self, others: Mapping[ObjectId, Manifest]) -> Objects:
        """With others beside them, under names that are not among them."""
        if not others:
            return self
        return Objects(ChainMap(dict(self._held), dict(Objects.of(others)._held)))

    def __getitem__(self, oid: ObjectId) -> Manifest:
        held = self._held[oid]
        return held.manifest() if isinstance(held, Packed) else held

    def __contains__(self, oid: object) -> bool:
        return oid in self._held

    def __iter__(self) -> Iterator[ObjectId]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)
