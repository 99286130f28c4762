"""Which manager owns which field of a live object, from its metadata.managedFields. Pure.

The API server keeps a set of fields for each (manager, operation, subresource) as FieldsV1: nested
keys `f:name` (a field), `k:{"name":"x"}` (an item of a list that is a map), `v:"x"` (an item of a
list that is a set), `i:0` (an item by index) and `.` (the value itself). A path here is a tuple of
such keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from reconciler.api.plain_json import parse_json
from reconciler.kube.objects import AGENT_MANAGER, MANAGER, Manifest
from reconciler.timestamps import parse_timestamp

Json = Any  # any value of a manifest
FieldSet = Mapping[str, Any]  # one FieldsV1, or a node inside of it
Path = tuple[str, ...]

# Maps of strings that a server treats as atomic: changing a key takes ownership of all of it.
ATOMIC_MAPS = frozenset({"f:selector", "f:nodeSelector", "f:matchLabels"})

HANDOVER_MANAGER = f"{MANAGER}-handover"  # keeps a released field's value until its new owner acts
OWN_MANAGERS = (MANAGER, AGENT_MANAGER, HANDOVER_MANAGER)

# Prefixes of managers whose changes are intended: never taken back.
CONTROLLERS = (
    "kube-controller-manager",  # deployments, jobs, and the autoscaler by the scale subresource
    "kube-scheduler",
    "kube-apiserver",
    "kubelet",
    "cloud-controller-manager",
    "cluster-autoscaler",
    "karpenter",
    "keda",
    "vpa-",
)


@dataclass(frozen=True, slots=True)
class ManagedFields:
    """The fields that one manager owns by one operation. `time`: when that set last changed, in
    seconds since the epoch."""

    manager: str
    operation: str  # Apply or Update
    subresource: str
    time: float | None
    fields: FieldSet

    @property
    def is_ours(self) -> bool:
        """Whether we applied it to the object itself."""
        return self.manager == MANAGER and self.operation == "Apply" and not self.subresource

    @property
    def is_admission(self) -> bool:
        """Whether admission changed it in our own requests: the server records that as our
        Update."""
        return self.manager == MANAGER and self.operation == "Update"

    @property
    def is_controller(self) -> bool:
        return self.manager.startswith(CONTROLLERS) or self.is_admission

    @property
    def label(self) -> str:
        """For messages: `kubectl-edit`, `admission`."""
        return "admission" if self.is_admission else self.manager


def entries(live: Manifest) -> tuple[ManagedFields, ...]:
    """The owners of a live object's fields. Malformed keys are left out."""
    read = ((entry, _readable(entry.fields)) for entry in entries_as_they_are(live))
    return tuple(replace(entry, fields=fields) for entry, fields in read if fields is not None)


def entries_as_they_are(live: Manifest) -> tuple[ManagedFields, ...]:
    """The same at a fraction of the cost, unvalidated: keys and values may be anything."""
    return tuple(
        ManagedFields(
            row.get("manager", ""),
            row.get("operation", ""),
            row.get("subresource", ""),
            parse_timestamp(row.get("time")),
            fields if isinstance(fields := row.get("fieldsV1"), Mapping) else {},
        )
        for row in live["metadata"].get("managedFields") or ()
    )


def fields_of(live: Manifest, manager: str = MANAGER) -> FieldSet:
    """The fields that a manager applied to the object itself."""
    return applied(entries(live), manager)


def applied(rows: Iterable[ManagedFields], manager: str = MANAGER) -> FieldSet:
    """The same, given an object's entries."""
    merged: dict[str, Any] = {}
    for entry in rows:
        is_applied = entry.operation == "Apply" and not entry.subresource
        if is_applied and entry.manager == manager:
            _merge(merged, entry.fields)
    return merged


def put_by_others(live: Manifest, annotation: str) -> str | None:
    """The value of an annotation that others set, as with `kubectl annotate`; None if there is
    none."""
    value = (live["metadata"].get("annotations") or {}).get(annotation)
    if value is None:
        return None
    mine = child(child(fields_of(live), "f:metadata"), "f:annotations")
    return None if child(mine, f"f:{annotation}") is not None else str(value)


def owned(live: Manifest, manager: str = MANAGER) -> dict[str, Any]:
    """What a manager applied, with the current values: a manifest that, applied again, changes
    nothing. Fields that the server omits, such as empty ones, are left out."""
    identity = {key: live[key] for key in ("apiVersion", "kind") if key in live}
    metadata = {k: live["metadata"][k] for k in ("name", "namespace") if k in live["metadata"]}
    others = tuple(e.fields for e in entries(live) if e.manager != manager)
    sent = _extract(fields_of(live, manager), live, others) or {}
    return identity | sent | {"metadata": metadata | sent.get("metadata", {})}


def owners(live: Manifest, path: Path) -> tuple[ManagedFields, ...]:
    """The owners of a field or of the atomic value that it is part of, the latest first."""
    owning = (entry for entry in entries(live) if _holds(entry.fields, path))
    return tuple(sorted(owning, key=lambda entry: -(entry.time or 0)))


def show(path: Path) -> str:
    """A path for messages: `spec.containers[llama].env[LANG].value`."""
    text = ""
    for key in path:
        kind, _, name = key.partition(":")
        if kind == "f" and not set(name) & set("./["):
            text += f".{name}" if text else name
        elif kind == "k":
            text += f"[{key_label(parse_json(name))}]"
        else:
            text += f"[{parse_json(name) if kind == 'v' else name}]"
    return text


def server_path(path: Path) -> str:
    """A path as the API server writes it in a conflict: `.spec.containers[name="c"].image`."""
    text = ""
    for key in path:
        kind, _, name = key.partition(":")
        if kind == "f":
            text += f".{name}"
        elif kind == "k":
            keys = parse_json(name)
            parts = (f"{k}={json.dumps(keys[k], ensure_ascii=False)}" for k in sorted(keys))
            text += f"[{','.join(parts)}]"
        else:
            text += f"[={name}]" if kind == "v" else f"[{name}]"
    return text


def key_label(keys: Mapping[str, Any]) -> str:
    """The keys of an item of a list that is a map: the protocol only if it is not TCP."""
    values = (str(keys[name]) for name in sorted(keys) if (name, keys[name]) != ("protocol", "TCP"))
    return "/".join(values)


def child(fields: FieldSet | None, key: str) -> FieldSet | None:
    """A node of a set of fields, None if it is not in the set."""
    subset = fields.get(key) if fields is not None else None
    return subset if isinstance(subset, Mapping) else None


def is_leaf(fields: FieldSet) -> bool:
    """Whether it is owned as a whole, or empty."""
    return not any(key != "." for key in fields)


def items(fields: FieldSet, value: list[Any]) -> Iterator[tuple[str, Any]]:
    """The items of a live list that a set of fields names, with their keys, in the list's order."""
    named = [(key, *key.split(":", 1)) for key in fields if key != "."]
    for place, item in enumerate(value):
        for key, kind, text in named:
            if kind == "k":
                is_it = isinstance(item, Mapping) and _has_keys(item, parse_json(text))
            else:
                is_it = parse_json(text) == (item if kind == "v" else place)
            if is_it:
                yield key, item
                break


def _has_keys(item: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    return all(item.get(name) == value for name, value in keys.items())


def _extract(fields: FieldSet, value: Json, others: tuple[FieldSet, ...]) -> Json:
    """The part of a live value that a set of fields names; None if it is missing."""
    if is_leaf(fields):
        is_shared = any(not is_leaf(other) for other in others)  # so it is not atomic
        is_itself_only = "." in fields
        if isinstance(value, Mapping) and (is_shared or is_itself_only):
            return {}
        return [] if isinstance(value, list) and (is_shared or is_itself_only) else value
    if isinstance(value, Mapping):
        named = ((key, key.removeprefix("f:")) for key in fields if key.startswith("f:"))
        extracted = {
            name: _extract(fields[key], value[name], _below(others, key))
            for key, name in named
            if name in value
        }
        return {name: part for name, part in extracted.items() if part is not None}
    if isinstance(value, list):
        return [
            _extract(fields[key], item, _below(others, key)) for key, item in items(fields, value)
        ]
    return value


def _below(sets: tuple[FieldSet, ...], key: str) -> tuple[FieldSet, ...]:
    return tuple(subset for fields in sets if (subset := child(fields, key)) is not None)


def _holds(fields: FieldSet, path: Path) -> bool:
    node: FieldSet | None = fields
    for key in path:
        assert node is not None
        below = child(node, key)
        if below is None:
            return bool(node is not fields and is_leaf(node) and "." not in node)
        node = below
    return True


def _readable(fields: FieldSet, depth: int = 0) -> FieldSet | None:
    """None if nothing of it can be read. An empty set would mean that the whole value is owned."""
    if depth == _DEEPEST:
        return None
    kept: dict[str, FieldSet] = {}
    for key, below in fields.items():
        if isinstance(below, Mapping) and (key.startswith("f:") or _is_key(key)):
            part = _readable(below, depth + 1) if below else below
            if part is not None:
                kept[key] = part
    return kept or None


_DEEPEST = 100  # levels of an object


@lru_cache(maxsize=1024)
def _is_key(key: str) -> bool:
    kind, _, text = key.partition(":")
    if kind not in _KEYS:
        return key == "."
    try:
        return isinstance(parse_json(text), _KEYS[kind])
    except ValueError:
        return False


_KEYS: Mapping[str, type] = {"k": dict, "v": object, "i": int}


def _merge(into: dict[str, Any], fields: FieldSet) -> None:
    for key, below in fields.items():
        _merge(into.setdefault(key, {}), below)
