"""The differences between a desired and a live object, and who caused them. Pure.

The record of what was applied (record.py) and managedFields tell the causes apart. If the desired
content is what was applied last, ownership alone is compared: an edit by another manager takes the
field from us. Values are compared only after the desired content changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reconciler.api.plain_json import parse_json
from reconciler.kube.diff.equality import same
from reconciler.kube.diff.managed import (
    HANDOVER_MANAGER,
    OWN_MANAGERS,
    FieldSet,
    Json,
    ManagedFields,
    Path,
    applied,
    child,
    entries,
    is_leaf,
    items,
    show,
)
from reconciler.kube.diff.record import APPLIED_ANNOTATION, AppliedRecord, item_key, record_of
from reconciler.kube.objects import Manifest

# Lists that we render: an entry that others add there changes what we run.
RENDERED_LISTS = frozenset(
    {"args", "command", "containers", "env", "envFrom", "initContainers", "ports", "volumeMounts"}
    | {"volumes"}
)
_SKIPPED = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata", "f:annotations", f"f:{APPLIED_ANNOTATION}"),
        ("f:metadata", "f:resourceVersion"),
        ("f:metadata", "f:uid"),
    }
)


class Cause(StrEnum):
    DECLARED = "declared"  # what should be there changed
    DRIFT = "drift"  # we set it, and it was changed or removed
    ADDED = "added"  # an entry that others added to a list that we render
    CONFLICT = "conflict"  # others set it before we did
    CONTROLLER = "controller"  # set by a controller or by admission


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs. None: missing. `by` is its current owner; None: it is gone, and the
    remover is unknown."""

    path: Path
    before: Any
    after: Any
    cause: Cause
    by: ManagedFields | None = None

    @property
    def field(self) -> str:
        return show(self.path)


def compare(desired: Manifest, live: Manifest) -> tuple[Difference, ...]:
    """All differences of a live object from the desired one, by path."""
    record = record_of(live)
    rows = entries(live)
    others = tuple(entry for entry in rows if not entry.is_ours)
    comparing = _Comparing(record, record.is_of(desired))
    mine = applied(rows) or None  # None is not the empty set, which would own the object as a whole
    differences = list(
        comparing.walk(desired, live, mine, tuple((e, e.fields) for e in others), ())
    )
    if not comparing.is_settled:
        differences += _dropped(mine or {}, desired, live, ())
    differences += _added_by(others, mine, desired, live)
    return tuple(sorted(_once(differences), key=lambda difference: difference.path))


def added(desired: Manifest, live: Manifest) -> tuple[Difference, ...]:
    """Those of them that others added: few objects have any, and that is soon known."""
    rows = entries(live)
    others = (entry for entry in rows if not entry.is_ours)
    return tuple(_once(_added_by(others, applied(rows) or None, desired, live)))


Owned = tuple[tuple[ManagedFields, FieldSet], ...]  # what other managers own at one place


@dataclass(slots=True)
class _Comparing:
    record: AppliedRecord
    is_settled: bool  # the desired content is what was applied last

    def walk(
        self, want: Json, have: Json, mine: FieldSet | None, others: Owned, path: Path
    ) -> Iterator[Difference]:
        if path in _SKIPPED or want == have:  # most of an object, at the speed of C
            return
        if isinstance(want, Mapping) and want and not _is_one_piece(mine, others):
            live = have if isinstance(have, Mapping) else {}
            for name, part in want.items():
                key = f"f:{name}"
                yield from self.walk(
                    part, live.get(name), child(mine, key), _below(others, key), (*path, key)
                )
        elif isinstance(want, list) and _is_keyed(want, have, mine, others):
            yield from self._walk_items(want, have or [], mine, others, path)
        else:
            yield from self._leaf(want, have, mine, others, path)

    def _walk_items(
        self,
        want: list[Mapping[str, Any]],
        have: list[Any],
        mine: FieldSet | None,
        others: Owned,
        path: Path,
    ) -> Iterator[Difference]:
        names = _key_names(mine, others)
        for item in want:
            key, live = _paired(item, have, names, path)
            here = (*path, key)
            if live is None:
                yield self._with_cause(item, None, None, (), here)
            else:
                yield from self.walk(item, live, child(mine, key), _below(others, key), here)

    def _leaf(
        self, want: Json, have: Json, mine: FieldSet | None, others: Owned, path: Path
    ) -> Iterator[Difference]:
        if mine is not None and self.is_settled:
            return  # we own it, so it is what we applied, in whatever form the server stores it
        if not same(want, have, path):
            yield self._with_cause(want, have, mine, others, path)

    def _with_cause(
        self, want: Json, have: Json, mine: FieldSet | None, others: Owned, path: Path
    ) -> Difference:
        """The difference with its cause."""
        foreign = [e for e, _ in others if e.manager != HANDOVER_MANAGER]
        if not foreign:
            was_ours = mine is None and not others and self.record.has(path, want)
            return Difference(path, have, want, Cause.DRIFT if was_ours else Cause.DECLARED)
        latest = max(foreign, key=lambda entry: entry.time or 0)
        was_ours = self.record.has(path, want)
        if latest.is_controller:
            # The autoscaler was given the field by the fleet itself, and returns it.
            is_lent = latest.subresource == "scale" and not was_ours
            cause = Cause.DECLARED if is_lent else Cause.CONTROLLER
        elif mine is None and was_ours:
            cause = Cause.DRIFT
        else:
            cause = Cause.CONFLICT
        return Difference(path, have, want, cause, latest)


def _is_one_piece(mine: FieldSet | None, others: Owned) -> bool:
    """Owned as a whole: a value no part of which has an owner."""
    sets = [fields for fields in (mine, *(f for _, f in others)) if fields is not None]
    return bool(sets) and all(is_leaf(fields) and "." not in fields for fields in sets)


def _is_keyed(want: list[Any], have: Json, mine: FieldSet | None, others: Owned) -> bool:
    """Whether a list is a map by keys of its items, as far as can be told."""
    if not all(isinstance(item, Mapping) for item in want) or not want:
        return False
    sets = [fields for fields in (mine, *(f for _, f in others)) if fields is not None]
    return any(key.startswith("k:") for fields in sets for key in fields)


def _key_names(mine: FieldSet | None, others: Owned) -> tuple[str, ...]:
    for fields in (mine, *(f for _, f in others)):
        for key in fields or ():
            if key.startswith("k:"):
                return tuple(parse_json(key[2:]))
    return ()


def _paired(
    item: Mapping[str, Any], have: list[Any], names: tuple[str, ...], path: Path
) -> tuple[str, Any]:
    """The key of a desired item, and the live one: missing keys have defaults."""
    stated = {name: item[name] for name in names if name in item}
    for live in have:
        if isinstance(live, Mapping) and all(live.get(k) == v for k, v in stated.items()):
            return _key({name: live.get(name) for name in names}), live
    return item_key(item, path), None


def _key(keys: Mapping[str, Any]) -> str:
    return "k:" + json.dumps(dict(keys), sort_keys=True, separators=(",", ":"))


def _below(others: Owned, key: str) -> Owned:
    """The owners of a key, or of the whole that it is a part of."""
    owned = []
    for entry, fields in others:
        below = child(fields, key)
        if below is not None:
            owned.append((entry, below))
    return tuple(owned)


def _dropped(mine: FieldSet, want: Json, have: Json, path: Path) -> Iterator[Difference]:
    """Fields that we own and no longer want."""
    if want == have:
        return
    for key, below in mine.items():
        here, live, wanted = (*path, key), _at(have, key), _at(want, key)
        if here in _SKIPPED or live is None:
            continue
        if wanted is None and not any(path[: len(here)] == here for path in _SKIPPED):
            yield Difference(here, live, None, Cause.DECLARED)
        elif not is_leaf(below):
            yield from _dropped(below, wanted, live, here)


def _added_by(
    others: Iterable[ManagedFields], mine: FieldSet | None, want: Manifest, have: Manifest
) -> Iterator[Difference]:
    """By people and programs that are no controllers, to the spec."""
    for entry in others:
        if not entry.is_controller and entry.manager not in OWN_MANAGERS and not entry.subresource:
            spec = entry.fields.get("f:spec", {})
            yield from _added(entry, {"f:spec": spec}, want, have, mine, ())


def _added(
    entry: ManagedFields,
    fields: FieldSet,
    want: Json,
    have: Json,
    mine: FieldSet | None,
    path: Path,
) -> Iterator[Difference]:
    """What others added to the lists that we render, inside what we render."""
    for key, below in fields.items():
        here, live, wanted, own = (*path, key), _at(have, key), _at(want, key), child(mine, key)
        if live is None:
            continue
        if wanted is not None:
            yield from _added(entry, below, wanted, live, own, here)
        elif own is None and key.startswith("k:"):
            if path[-1].removeprefix("f:") in RENDERED_LISTS:
                yield Difference(here, live, None, Cause.ADDED, entry)
        elif own is None and key.removeprefix("f:") in RENDERED_LISTS and isinstance(live, list):
            if is_leaf(below):
                yield Difference(here, live, None, Cause.ADDED, entry)
            for name, item in items(below, live):
                yield Difference((*here, name), item, None, Cause.ADDED, entry)


def _at(value: Json, key: str) -> Json:
    """The part of a value that a key of a set of fields names; None if it is missing."""
    if key.startswith("f:"):
        return value.get(key[2:]) if isinstance(value, Mapping) else None
    if not isinstance(value, list):
        return None
    for _, item in items({key: {}}, value):
        return item
    if key.startswith("k:"):  # a desired item may omit keys that have a default
        keys = parse_json(key[2:])
        for item in value:
            present = {name for name in keys if isinstance(item, Mapping) and name in item}
            if present and all(item[name] == keys[name] for name in present):
                return item
    return None


def _once(differences: Iterable[Difference]) -> Iterator[Difference]:
    """One for each path: the first that was found."""
    seen: set[Path] = set()
    for difference in differences:
        if difference.path not in seen:
            seen.add(difference.path)
            yield difference
