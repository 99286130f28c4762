"""What we last applied to an object, kept on the object as one short annotation. Pure.

managedFields forget that we set a field once another manager has changed it. To tell such a field
from one that another manager always owned, the object carries a fingerprint of the content that we
applied, and 24 bits for each path that we ever set and still want.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.digest import digest
from reconciler.api.meta import GROUP
from reconciler.kube.diff.managed import ATOMIC_MAPS, Json, Path, show
from reconciler.kube.objects import Manifest

APPLIED_ANNOTATION = f"{GROUP}/applied"
_VERSION = "v1"
_PATH_BYTES = 3  # a path that was never ours is mistaken for one of 60 once in 280,000

# Keys of the lists that are maps in the kinds that we write, by the list's field. managedFields
# take precedence: this is for lists that were never applied.
_LIST_KEYS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
    "volumeMounts": (("mountPath",),),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
    "hostAliases": (("ip",),),
}
_DEFAULT_KEYS = (("name",),)


@dataclass(frozen=True, slots=True)
class AppliedRecord:
    """`content` is the digest of what was applied, empty if unknown; `hashes` those of its paths,
    one after another."""

    content: str = ""
    hashes: bytes = b""

    @property
    def paths(self) -> frozenset[bytes]:
        """Cut apart only where they are asked for: most objects are as they were applied."""
        starts = range(0, len(self.hashes), _PATH_BYTES)
        return frozenset(self.hashes[i : i + _PATH_BYTES] for i in starts)

    def is_of(self, manifest: Manifest) -> bool:
        return bool(self.content) and self.content == _content(manifest)

    def has(self, path: Path, value: Json) -> bool:
        """Whether we ever set a field, or a part of its current value."""
        paths = self.paths
        return any(_hash(part) in paths for part in (path, *_leaves(value, path)))


def record_of(live: Manifest) -> AppliedRecord:
    """The record on a live object."""
    text = (live["metadata"].get("annotations") or {}).get(APPLIED_ANNOTATION, "")
    version, _, rest = text.partition(".")
    content, _, packed = rest.partition(".")
    try:
        raw = base64.urlsafe_b64decode(packed)
    except ValueError:
        return AppliedRecord()
    if version != _VERSION or len(raw) % _PATH_BYTES:
        return AppliedRecord()
    return AppliedRecord(content, raw)


def recorded(manifest: Manifest, full: Manifest, before: AppliedRecord) -> dict[str, Any]:
    """A manifest with the record of its own application. `full` is the whole desired object: its
    fields that are left out this time and were set before stay in the record."""
    hashes = {_hash(path) for path in _leaves(manifest, ())}
    if before.hashes and manifest != full:
        hashes |= before.paths & {_hash(path) for path in _leaves(full, ())}
    packed = base64.urlsafe_b64encode(b"".join(sorted(hashes))).decode()
    metadata = manifest["metadata"]
    text = f"{_VERSION}.{_content(manifest)}.{packed}"
    annotations = {**(metadata.get("annotations") or {}), APPLIED_ANNOTATION: text}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def item_key(item: Mapping[str, Any], path: Path) -> str:
    """The key of an item of a list that is a map, for a list that the server does not have yet."""
    field = next((key[2:] for key in reversed(path) if key.startswith("f:")), "")
    for names in _LIST_KEYS.get(field, _DEFAULT_KEYS):
        if names[0] in item:
            keys = {name: item[name] for name in names if name in item}
            return "k:" + json.dumps(keys, sort_keys=True, separators=(",", ":"))
    return ""


def _leaves(value: Json, path: Path) -> list[Path]:
    leaves: list[Path] = []
    _collect(value, path, leaves)
    return leaves


def _collect(value: Json, path: Path, leaves: list[Path]) -> None:
    if isinstance(value, dict) and value:
        if path and path[-1] in ATOMIC_MAPS:  # with other keys it is still the same field
            leaves.append(path)
        for name, part in value.items():
            _collect(part, (*path, f"f:{name}"), leaves)
    elif keys := _keys(value, path):
        for key, item in zip(keys, value, strict=True):
            _collect(item, (*path, key), leaves)
    else:
        leaves.append(path)


def _keys(value: Json, path: Path) -> list[str]:
    """The keys of a list's items, if it is a map; empty for any other value."""
    if not isinstance(value, list):
        return []
    keys = [item_key(item, path) if isinstance(item, dict) else "" for item in value]
    return keys if all(keys) else []


@functools.lru_cache(maxsize=2048)  # services are similar: most have the same paths
def _hash(path: Path) -> bytes:
    return hashlib.sha256(show(path).encode()).digest()[:_PATH_BYTES]


def _content(manifest: Manifest) -> str:
    """The content but for the record itself and preconditions."""
    metadata = dict(manifest["metadata"])
    metadata.pop("uid", None)
    metadata.pop("resourceVersion", None)
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {k: v for k, v in annotations.items() if k != APPLIED_ANNOTATION}
    return digest({**manifest, "metadata": metadata})[:16]
