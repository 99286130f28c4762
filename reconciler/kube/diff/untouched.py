"""Whether an object is as we last applied it, judged without reading its values. Pure.

Most objects are, in every pass: this makes it cheap to observe thousands of them. Anyone who
changes one of our fields takes it from us in managedFields, so a field that we still own has our
value.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from reconciler.api.plain_json import parse_json
from reconciler.kube.diff.managed import (
    OWN_MANAGERS,
    FieldSet,
    Json,
    entries_as_they_are,
)
from reconciler.kube.diff.record import record_of
from reconciler.kube.objects import Manifest

_IDENTITY = frozenset({"name", "namespace", "uid", "resourceVersion"})


def is_untouched(desired: Manifest, live: Manifest) -> bool:
    """True: it is what we applied last and others own no part of it. False: compare it in full."""
    mine: FieldSet | None = None
    for entry in entries_as_they_are(live):
        if entry.is_ours:
            if mine is not None:
                return False
            mine = entry.fields
        elif entry.is_controller or entry.manager in OWN_MANAGERS or entry.subresource:
            continue
        elif "f:spec" in entry.fields:
            return False
    return mine is not None and record_of(live).is_of(desired) and _covers_object(mine, desired)


def _covers_object(mine: FieldSet, desired: Manifest) -> bool:
    for name, part in desired.items():
        if name in ("apiVersion", "kind"):
            continue
        below = mine.get(f"f:{name}")
        if name == "metadata":
            part = {k: v for k, v in part.items() if k not in _IDENTITY}
            if not part:
                continue
        if below is None or not _covers(below, part):
            return False
    return True


def _covers(mine: FieldSet, want: Json) -> bool:
    if not mine:
        return True  # atomic, and all ours
    if not isinstance(mine, dict):
        return False  # users who may edit an object may write anything there
    if isinstance(want, dict):
        for name, part in want.items():
            below = mine.get(f"f:{name}")
            if below is None or (below and not _covers(below, part)):
                return False
        return True
    if not isinstance(want, list):
        return True
    keyed = [(_keys(key), below) for key, below in mine.items() if key.startswith("k:")]
    return len(keyed) == len(want) and all(_has_item(keyed, item) for item in want)


def _has_item(keyed: list[tuple[Mapping[str, Any] | None, FieldSet]], item: Json) -> bool:
    if not isinstance(item, dict):
        return False
    for keys, below in keyed:
        if keys is not None and all(item.get(name, value) == value for name, value in keys.items()):
            return _covers(below, item)
    return False


@functools.lru_cache(maxsize=4096)
def _keys(key: str) -> Mapping[str, Any] | None:
    """None: not a key of an item."""
    try:
        keys = parse_json(key[2:])
    except ValueError:
        return None
    return keys if isinstance(keys, dict) else None
