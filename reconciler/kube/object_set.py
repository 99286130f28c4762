"""Objects of a cluster, kept by the thousands: as JSON, decoded on access. Pure.

A decoded object takes eight times as much memory, and a heap keeps the most it ever held. The
questions asked about every object in every pass (whose it is, whether it has changed) need no
decoding.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import orjson
from lz4 import block

from reconciler.api.meta import ObjectRef
from reconciler.kube.json_text import to_json
from reconciler.kube.objects import Manifest, ObjectId, ref_of, service_of

_ROLLOUT = "deployment.kubernetes.io/revision"  # counted by the controller of Deployments
_SMALL = 256  # bytes of JSON: compressing them gains nothing

# The first object of each kind. A fleet's are made alike, and compressed against one of them the
# others take a tenth of what they take alone.
_FIRST: dict[str, bytes] = {}


@dataclass(frozen=True, slots=True)
class Packed:
    """One object. `text` is JSON, compressed `against` another of its kind, or not; `service` is
    the service it is for, or None; `declared` is a digest of what is not its status; `version` is
    as `version_of` has it; `generation` as the API server counts it, None where it does not."""

    kind: str
    text: bytes
    service: ObjectRef | None
    declared: bytes
    version: int
    generation: int | None
    against: bytes | None = None

    def manifest(self) -> Manifest:
        manifest: Manifest = orjson.loads(self._json)
        return manifest

    def smaller(self) -> Packed:
        """A tenth of the size, for objects that are kept for hours. LZ4: 4 us for a Deployment, and
        one on access."""
        if self.against is not None or len(self.text) < _SMALL:
            return self
        first = _FIRST.setdefault(self.kind, self.text)
        return replace(self, text=block.compress(self.text, dict=first), against=first)

    @property
    def _json(self) -> bytes:
        if self.against is None:
            return self.text
        text: bytes = block.decompress(self.text, dict=self.against)
        return text


Held = Packed | Manifest


def packed(manifest: Manifest) -> Packed:
    text = to_json(manifest)
    # a copy, as orjson's own bytes keep the buffer in which they grew: up to three times as much
    text = bytes(memoryview(text))
    service, declared = service_of(manifest), _declared(manifest)
    version, generation = version_of(manifest), generation_of(manifest)
    return Packed(manifest["kind"], text, service, declared, version, generation)


def version_of(manifest: Manifest) -> int:
    """Its resourceVersion; 0: it has none."""
    return as_number(str(manifest["metadata"].get("resourceVersion", "")))


def as_number(version: str) -> int:
    """A resourceVersion; 0: it is none. Those of one kind grow, and may be compared since
    Kubernetes 1.35 (KEP-5504)."""
    return int(version) if version.isdecimal() else 0


def generation_of(manifest: Manifest) -> int | None:
    generation = manifest["metadata"].get("generation")
    return generation if isinstance(generation, int) else None


def _declared(manifest: Manifest) -> bytes:
    """A digest of all but the status, what an API server notes when a status is written, and what a
    controller writes with it."""
    metadata = {**manifest.get("metadata", {})}
    metadata.pop("resourceVersion", None)
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {k: v for k, v in annotations.items() if k != _ROLLOUT}
    if managers := metadata.get("managedFields"):
        metadata["managedFields"] = [m for m in managers if not m.get("subresource")]
    text = to_json({**manifest, "metadata": metadata, "status": None})
    return blake2b(text, digest_size=16).digest()


class LazyManifest(Mapping[str, Any]):
    """A manifest that is decoded on each access: plans hold thousands, and each is needed once
    (`decoded`)."""

    def __init__(self, packed: Packed) -> None:
        self._held = packed

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - any value of a manifest
        return self._held.manifest()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held.manifest())

    def __len__(self) -> int:
        return len(self._held.manifest())

    def decoded(self) -> Manifest:
        return self._held.manifest()


def later(manifest: Manifest) -> LazyManifest:
    """Small, as a plan with all of them is kept until there is another one."""
    if isinstance(manifest, LazyManifest):
        return manifest
    return LazyManifest(packed(manifest).smaller())


def decoded(manifest: Manifest) -> Manifest:
    """All of it at once."""
    return manifest.decoded() if isinstance(manifest, LazyManifest) else manifest


class ObjectSet(Mapping[ObjectId, Manifest]):
    """Objects at one moment. Packed ones are decoded on access, 8 us each: a caller that iterates
    over all of them should keep none."""

    def __init__(self, objects: Mapping[ObjectId, Held]) -> None:
        self._held = objects
        self._by_kind: Mapping[str, Sequence[ObjectId]] | None = None
        self._by_service: Mapping[ObjectRef, Sequence[ObjectId]] | None = None
        self._refs: Mapping[ObjectId, ObjectRef] | None = None
        self._declared_states: Mapping[ObjectId, object] | None = None
        self._joined: tuple[ObjectSet, ObjectSet] | None = None

    @classmethod
    def of(cls, objects: Mapping[ObjectId, Manifest]) -> ObjectSet:
        return objects if isinstance(objects, ObjectSet) else cls(objects)

    def state(self, oid: ObjectId) -> object:
        """A value that is equal if, and only if, the object is unchanged."""
        return self._held.get(oid)

    def declared(self, oid: ObjectId) -> object:
        """The same of all but its status, which controllers write many times a second."""
        entry = self._held.get(oid)
        return entry.declared if isinstance(entry, Packed) else entry

    def states_of(self, oids: Iterable[ObjectId]) -> tuple[object, ...]:
        """`state` of each of these."""
        return tuple(map(self._held.get, oids))

    def states(self) -> Mapping[ObjectId, object]:
        """`state` of each."""
        return self._held

    def declared_states(self) -> Mapping[ObjectId, object]:
        """`declared` of each, found once."""
        if self._declared_states is None:
            held = self._held.items()
            declared = {oid: e.declared if isinstance(e, Packed) else e for oid, e in held}
            self._declared_states = declared
        return self._declared_states

    def version(self, oid: ObjectId) -> int | None:
        """Its version; None: it is not there."""
        entry = self._held.get(oid)
        if isinstance(entry, Packed):
            return entry.version
        return None if entry is None else version_of(entry)

    def generation(self, oid: ObjectId) -> int | None:
        """None: it has none, or is not there."""
        entry = self._held.get(oid)
        if isinstance(entry, Packed):
            return entry.generation
        return None if entry is None else generation_of(entry)

    def later(self, oid: ObjectId) -> LazyManifest:
        """The manifest, not decoded yet."""
        entry = self._held[oid]
        return LazyManifest(entry) if isinstance(entry, Packed) else later(entry)

    def ref(self, oid: ObjectId) -> ObjectRef:
        """The ref that an object belongs to: its service, or the document that it is."""
        return self.service(oid) or ref_of(oid)

    def refs(self, oids: Set[ObjectId]) -> frozenset[ObjectRef]:
        """What those of `oids` belong to that are here."""
        if self._refs is None:
            self._refs = {oid: self.ref(oid) for oid in self._held}
        return frozenset(ref for oid, ref in self._refs.items() if oid in oids)

    def service(self, oid: ObjectId) -> ObjectRef | None:
        """The InferenceService that it is for, or None."""
        entry = self._held[oid]
        return entry.service if isinstance(entry, Packed) else service_of(entry)

    def of_kind(self, kind: str) -> Sequence[ObjectId]:
        """Those of one kind, found in one walk for all kinds."""
        if self._by_kind is None:
            by_kind = defaultdict[str, list[ObjectId]](list)
            for oid in self._held:
                by_kind[oid.kind].append(oid)
            self._by_kind = by_kind
        return self._by_kind.get(kind, ())

    def by_service(self) -> Mapping[ObjectRef, Sequence[ObjectId]]:
        """Those that are for each service, found once."""
        if self._by_service is None:
            by_service = defaultdict[ObjectRef, list[ObjectId]](list)
            for oid, entry in self._held.items():
                service = entry.service if isinstance(entry, Packed) else service_of(entry)
                if service is not None:
                    by_service[service].append(oid)
            self._by_service = by_service
        return self._by_service

    def keys(self) -> KeysView[ObjectId]:
        """A dict's own, as many ask of thousands whether they are in it."""
        return self._held.keys()

    def only(self, oids: Iterable[ObjectId]) -> ObjectSet:
        return ObjectSet({oid: self._held[oid] for oid in oids})

    def changed(self, news: Mapping[ObjectId, Held | None]) -> ObjectSet:
        """A copy with objects replaced; None removes one."""
        if not news:
            return self
        objects = {**self._held, **{oid: new for oid, new in news.items() if new is not None}}
        return ObjectSet(
            {oid: one for oid, one in objects.items() if news.get(oid, one) is not None}
        )

    def joined(self, others: ObjectSet) -> ObjectSet:
        """The objects of both; of two with one id, the other's. The same set for the same two, so
        that a pass sees at once that nothing else is wanted."""
        if not self._held or not others._held:
            return self if self._held else others
        if self._joined is None or self._joined[0] is not others:
            self._joined = (others, ObjectSet({**self._held, **others._held}))
        return self._joined[1]

    def over(self, others: Mapping[ObjectId, Manifest]) -> ObjectSet:
        """A copy with more objects, whose ids are not in it yet."""
        if not others:
            return self
        return ObjectSet(ChainMap(dict(self._held), dict(ObjectSet.of(others)._held)))

    def __getitem__(self, oid: ObjectId) -> Manifest:
        entry = self._held[oid]
        return entry.manifest() if isinstance(entry, Packed) else entry

    def __contains__(self, oid: object) -> bool:
        return oid in self._held

    def __iter__(self) -> Iterator[ObjectId]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)
