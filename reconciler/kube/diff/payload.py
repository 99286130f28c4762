"""What is sent of a manifest: without fields that we do not take, and without parts that wait.
Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from reconciler.api.plain_json import parse_json
from reconciler.kube.diff.difference import Cause, Difference, compare
from reconciler.kube.diff.managed import Json, Path, fields_of, items, owned
from reconciler.kube.diff.managed import child as below
from reconciler.kube.objects import (
    INPUTS_DIGEST_ANNOTATION,
    NEEDS_ANNOTATION,
    RENDER_DIGEST_ANNOTATION,
    Manifest,
)

# The part of an object that waits for the next change of its inputs if only our rendering of it
# changed, by kind.
_WAITING = {"Deployment": ("spec", "template"), "Job": ("spec", "template")}


def without(manifest: Manifest, live: Manifest, left: Iterable[Difference]) -> dict[str, Any]:
    """A manifest that leaves these differences as they are. A field that we share with another
    owner is sent with its current value: left out, we would no longer own it."""
    left = tuple(left)
    if not left:
        return dict(manifest)
    made = copy.deepcopy(dict(manifest))
    mine = fields_of(live)
    for difference in left:
        is_shared = _is_in(mine, difference.path)
        _put(made, difference.path, difference.before if is_shared else None)
    return made


def as_sized(manifest: Manifest, live: Manifest) -> Manifest:
    """Keep the memory that its pods were sized for when they were last replaced: a better estimate
    is not a reason to replace them, nor is a hub that is silent. Where nothing was known of them,
    what is known now is noted beside them."""
    wanted, now = (m["metadata"].get("annotations") or {} for m in (manifest, live))
    needs, renders = NEEDS_ANNOTATION, RENDER_DIGEST_ANNOTATION
    if manifest["kind"] != "Deployment" or _made_from(manifest) != _made_from(live):
        return manifest
    made = dict(manifest)
    if wanted.get(needs) != now.get(needs):
        annotations = {**wanted, needs: now.get(needs) or wanted.get(needs)}
        made |= {"metadata": {**manifest["metadata"], "annotations": annotations}}
    same_render = wanted.get(renders) == now.get(renders)
    if same_render and _memory_requests(manifest) != _memory_requests(live):
        return _as_applied(made, live) or made
    return made


def _memory_requests(deployment: Manifest) -> list[object]:
    spec = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    resources = (c.get("resources") or {} for c in spec.get("containers") or ())
    return [(of_one.get("requests") or {}).get("memory") for of_one in resources]


def as_before(manifest: Manifest, live: Manifest) -> Manifest:
    """The manifest with the part in which only our rendering changed as it was last applied; the
    same manifest if nothing waits."""
    wanted, now = (m["metadata"].get("annotations") or {} for m in (manifest, live))
    inputs, renders = INPUTS_DIGEST_ANNOTATION, RENDER_DIGEST_ANNOTATION
    is_waiting = (
        wanted.get(inputs) is not None
        and _made_from(manifest) == _made_from(live)
        and wanted.get(renders) != now.get(renders)
        and now.get(renders) is not None
    )
    if not is_waiting:
        return manifest
    annotations = {**wanted, renders: now[renders]}
    made = {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}
    return _as_applied(made, live) or manifest


def _as_applied(manifest: dict[str, Any], live: Manifest) -> dict[str, Any]:
    """Keep the part that waits as it was last applied. Fields that others took from us are no
    longer in what we own: they keep their current value. Empty: nothing of it is ours."""
    where = _WAITING.get(manifest["kind"])
    applied = owned(live)
    if where is None or where[1] not in applied.get(where[0], {}):
        return {}
    outer, inner = where
    made = {**manifest, outer: {**manifest[outer], inner: applied[outer][inner]}}
    lost = (d for d in compare(manifest, live) if d.cause is Cause.DRIFT)
    for difference in lost:
        if difference.path[:2] == (f"f:{outer}", f"f:{inner}"):
            made = copy.deepcopy(made)
            _put(made, difference.path, difference.after)
    return made


def _made_from(manifest: Manifest) -> object:
    """The digest of inputs in a template, which does not include the number of replicas; the digest
    of the whole for an object without one."""
    template = manifest.get("spec", {}).get("template") or {}
    for metadata in (template.get("metadata") or {}, manifest["metadata"]):
        if digest := (metadata.get("annotations") or {}).get(INPUTS_DIGEST_ANNOTATION):
            return digest
    return None


def pointer(live: Manifest, path: Path) -> str:
    """The JSON pointer (RFC 6901) of a field of a live object. KeyError: it is missing."""
    parts = []
    value: Json = live
    for key in path:
        if key.startswith("f:"):
            name, value = key[2:], value[key[2:]]
            parts.append(name.replace("~", "~0").replace("/", "~1"))
        else:
            place = _place(value, key)
            if place is None:
                raise KeyError(key)
            parts.append(str(place))
            value = value[place]
    return "".join(f"/{part}" for part in parts)


def _is_in(fields: Mapping[str, Any], path: Path) -> bool:
    node: Mapping[str, Any] | None = fields
    for key in path:
        node = below(node, key)
    return node is not None


def _put(manifest: dict[str, Any], path: Path, value: Json) -> None:
    """Set the field at a path, in place; None removes it."""
    holder: Any = manifest
    for key, after in pairwise(path):
        inner = _inside(holder, key)
        if inner is None and value is not None:
            inner = _made_inside(holder, key, {} if after.startswith("f:") else [])
        if inner is None:
            return
        holder = inner
    key = path[-1]
    if key.startswith("f:"):
        if value is None:
            holder.pop(key[2:], None)
        else:
            holder[key[2:]] = copy.deepcopy(value)
        return
    place = _place(holder, key)
    if place is not None:
        del holder[place]
    if value is not None:
        holder.insert(len(holder) if place is None else place, copy.deepcopy(value))


def _made_inside(holder: Json, key: str, empty: Json) -> Json:
    """Get or create the container for a key."""
    if key.startswith("f:"):
        holder[key[2:]] = empty
        return empty
    item = parse_json(key[2:])
    holder.append(item)
    return item


def _inside(value: Json, key: str) -> Json:
    if key.startswith("f:"):
        return value.get(key[2:]) if isinstance(value, dict) else None
    place = _place(value, key)
    return None if place is None else value[place]


def _place(value: list[Any], key: str) -> int | None:
    """The index of the item that a key names; an item may omit keys that have a default."""
    for _, item in items({key: {}}, value):
        return value.index(item)
    keys = parse_json(key[2:]) if key.startswith("k:") else {}
    for place, item in enumerate(value):
        present = {name for name in keys if isinstance(item, Mapping) and name in item}
        if present and all(item[name] == keys[name] for name in present):
            return place
    return None
