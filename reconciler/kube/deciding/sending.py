"""What is sent of a manifest: without what is not ours to take, and with what waits. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from reconciler.kube.deciding.difference import Cause, Difference, compare
from reconciler.kube.deciding.managed import Json, Path, fields_of, items, owned
from reconciler.kube.deciding.managed import child as below
from reconciler.kube.objects import (
    INPUTS_DIGEST_ANNOTATION,
    NEEDS_ANNOTATION,
    RENDER_DIGEST_ANNOTATION,
    Manifest,
)

# The part of an object that waits for the next change of its inputs when only our rendering of it
# changed, by kind.
_WAITING = {"Deployment": ("spec", "template"), "Job": ("spec", "template")}


def without(manifest: Manifest, live: Manifest, left: Iterable[Difference]) -> dict[str, Any]:
    """A manifest that leaves these differences as they are. A field that we own together with
    somebody is sent as it is now: left out, it would no longer be ours."""
    made = copy.deepcopy(dict(manifest))
    mine = fields_of(live)
    for difference in left:
        is_shared = _is_in(mine, difference.path)
        _put(made, difference.path, difference.before if is_shared else None)
    return made


def as_sized(manifest: Manifest, live: Manifest) -> Manifest:
    """With the memory that its pods were sized for when its inputs were last others: that we know
    better now what the same pods take is no reason to write them again."""
    said, now = (m["metadata"].get("annotations") or {} for m in (manifest, live))
    inputs, needs = INPUTS_DIGEST_ANNOTATION, NEEDS_ANNOTATION
    same_inputs = said.get(inputs) is not None and said.get(inputs) == now.get(inputs)
    if not same_inputs or said.get(needs) == now.get(needs):
        return manifest
    told = {k: v for k, v in said.items() if k != needs}
    told |= {needs: now[needs]} if needs in now else {}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": told}}


def as_before(manifest: Manifest, live: Manifest) -> dict[str, Any]:
    """The manifest with the part that only we render otherwise as it was applied last; the same
    manifest where nothing of that kind waits."""
    where = _WAITING.get(manifest["kind"])
    said, now = (m["metadata"].get("annotations") or {} for m in (manifest, live))
    inputs, renders = INPUTS_DIGEST_ANNOTATION, RENDER_DIGEST_ANNOTATION
    is_waiting = (
        where is not None
        and said.get(inputs) is not None
        and _made_from(manifest) == _made_from(live)
        and said.get(renders) != now.get(renders)
        and now.get(renders) is not None
    )
    if where is None or not is_waiting:
        return dict(manifest)
    outer, inner = where
    applied = owned(live)
    if inner not in applied.get(outer, {}):
        return dict(manifest)
    annotations = {**said, renders: now[renders]}
    made = {
        **manifest,
        "metadata": {**manifest["metadata"], "annotations": annotations},
        outer: {**manifest[outer], inner: applied[outer][inner]},
    }
    # What somebody took from us in there is no longer in what we own: it comes back as it is now.
    lost = (d for d in compare(manifest, live) if d.cause is Cause.DRIFT)
    for difference in lost:
        if difference.path[:2] == (f"f:{outer}", f"f:{inner}") and difference.after is not None:
            made = copy.deepcopy(made)
            _put(made, difference.path, difference.after)
    return made


def _made_from(manifest: Manifest) -> object:
    """The digest that a template says its pods are made from: another number of them is not in it.
    Of an object whose template says none, the digest of the whole."""
    template = manifest.get("spec", {}).get("template") or {}
    for metadata in (template.get("metadata") or {}, manifest["metadata"]):
        if found := (metadata.get("annotations") or {}).get(INPUTS_DIGEST_ANNOTATION):
            return found
    return None


def pointer(live: Manifest, path: Path) -> str:
    """The JSON pointer (RFC 6901) of a field of a live object. KeyError: it is not there."""
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
    """Set the field at a path, in place; None: leave it out."""
    holder: Any = manifest
    for key, after in pairwise(path):
        found = _inside(holder, key)
        if found is None and value is not None:
            found = _made_inside(holder, key, {} if after.startswith("f:") else [])
        if found is None:
            return
        holder = found
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
    """A place for what belongs below it."""
    if key.startswith("f:"):
        holder[key[2:]] = empty
        return empty
    item = json.loads(key[2:])
    holder.append(item)
    return item


def _inside(value: Json, key: str) -> Json:
    if key.startswith("f:"):
        return value.get(key[2:]) if isinstance(value, dict) else None
    place = _place(value, key)
    return None if place is None else value[place]


def _place(value: list[Any], key: str) -> int | None:
    """Which item of a list a key names; an item may leave keys out that have a default."""
    for _, item in items({key: {}}, value):
        return value.index(item)
    keys = json.loads(key[2:]) if key.startswith("k:") else {}
    for place, item in enumerate(value):
        said = {name for name in keys if isinstance(item, Mapping) and name in item}
        if said and all(item[name] == keys[name] for name in said):
            return place
    return None
