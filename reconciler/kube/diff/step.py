"""What to do about one object, desired and live. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from reconciler.api.meta import FORCE_FIELDS_ANNOTATION, HOLD_ANNOTATION, ObjectRef
from reconciler.core.observation import Location
from reconciler.core.plan import Action, Blocked, Change, FieldChange, Impact, ObjectName, Restart
from reconciler.kube.diff.difference import Cause, Difference, compare
from reconciler.kube.diff.immutable import forcing
from reconciler.kube.diff.managed import put_by_others
from reconciler.kube.diff.payload import as_before, as_sized, without
from reconciler.kube.diff.private import shown
from reconciler.kube.diff.record import record_of, recorded
from reconciler.kube.diff.standing import Adopted, as_adopted, otherwise, stands
from reconciler.kube.object_set import later
from reconciler.kube.objects import (
    INPUTS_ANNOTATION,
    INPUTS_DIGEST_ANNOTATION,
    NEEDS_ANNOTATION,
    RENDER_DIGEST_ANNOTATION,
    Manifest,
    ObjectId,
    finalizers_of,
    kind_of,
)


class ObjectSteps(NamedTuple):
    """What is done to one object, and what is not."""

    changes: tuple[Change, ...] = ()
    blocked: tuple[Blocked, ...] = ()


NO_STEPS = ObjectSteps()
Resting = Mapping[tuple[ObjectId, str], str]

_TEMPLATE = ("f:spec", "f:template")
_ADOPTED = {"Deployment": "adopted as it stands, with its pods"}
# Written for ourselves: changes of these are part of the changes they describe, and are not
# reported.
_BOOKKEEPING = frozenset(
    f"f:{name}"
    for name in (
        INPUTS_ANNOTATION,
        INPUTS_DIGEST_ANNOTATION,
        NEEDS_ANNOTATION,
        RENDER_DIGEST_ANNOTATION,
    )
)


@dataclass(frozen=True, slots=True)
class ObjectStep:
    """The object's identity, its ref, and the line that declares it."""

    target: str
    oid: ObjectId
    ref: ObjectRef
    source: Location | None
    is_enforced: bool = True  # drift is corrected
    is_new: bool = False  # its document was added just now
    adopts: bool = False  # it was another controller's until now
    adopted: Adopted | None = None  # how it stood then

    @property
    def object(self) -> ObjectName:
        row = kind_of(self.oid)
        return ObjectName(row.api_version, self.oid.kind, self.oid.namespace, self.oid.name)

    def change(self, action: Action, reason: str, **more: Any) -> Change:  # noqa: ANN401 - Change's
        order = kind_of(self.oid).stage
        impact = replace(more.pop("impact", Impact()), order=order)
        if "manifest" in more:
            more["manifest"] = later(more["manifest"])
        return Change(
            action,
            self.target,
            self.ref,
            reason,
            self.source,
            object=self.object,
            impact=impact,
            **more,
        )

    def blocked(self, reason: str, message: str) -> Blocked:
        return Blocked(self.ref, reason, message, self.source, self.target, (self.ref,))


def step_of(
    at: ObjectStep, want: Manifest, have: Manifest | None, rolls: bool, resting: Resting
) -> ObjectSteps:
    """`rolls`: its pods are replaced even if only our rendering changed."""
    if have is None:
        reason = "Added" if at.is_new else "ObjectMissing"
        return ObjectSteps((at.change(Action.CREATE, reason, manifest=want),))
    if have["metadata"].get("deletionTimestamp"):
        return ObjectSteps(blocked=(at.blocked("ObjectGoing", _going(at.oid, have)),))
    rendered, want = want, as_adopted(want, at.adopted, changes=rolls)
    want = as_sized(want, have)
    meant = want if rolls else as_before(want, have)
    compared = _Differences.of(at, compare(meant, have), want, resting)
    if (compared.takes or compared.reported) and _is_held(want, have):
        drift = "; ".join(_describe(d) for d in (*compared.takes, *compared.reported))
        message = f"{at.oid.label}: {drift}; left by its hold annotation"
        return ObjectSteps(blocked=(at.blocked("Held", message),))
    changes: list[Change] = []
    blocked: list[Blocked] = []
    if compared.takes or at.adopts:
        left = (*compared.reported, *compared.conflicts, *compared.controlled)
        manifest = recorded(without(meant, have, left), want, record_of(have))
        fixed = forcing(at.oid, compared.takes)
        if fixed and kind_of(at.oid).guarded:
            message = f"{at.oid.label}: {_describe(fixed[0])} cannot be changed in place"
            blocked.append(at.blocked("Guarded", f"{message}, and recreating it loses its data"))
        else:
            changes.append(_taking(at, compared, fixed, manifest))
    changes += _shown(at, compared)
    if compared.conflicts:
        blocked.append(at.blocked("FieldConflict", _conflicting(at.oid, compared.conflicts)))
    if meant is not want and not rolls and compare(want, have) != compare(meant, have):
        changes.append(at.change(Action.DEFERRED, "RenderChanged"))
    changes += _standing(at, rendered, rolls=rolls)
    return ObjectSteps(tuple(changes), tuple(blocked))


@dataclass(frozen=True, slots=True)
class _Differences:
    """The differences of one object by what happens to them."""

    declared: tuple[Difference, ...]
    drifted: tuple[Difference, ...]  # corrected, or taken by force
    reported: tuple[Difference, ...]  # drift that is only reported
    fights: tuple[str, ...]  # messages about fields that another program sets again and again
    controlled: tuple[Difference, ...]  # set by a controller or by admission
    conflicts: tuple[Difference, ...]

    @classmethod
    def of(
        cls, at: ObjectStep, differences: Iterable[Difference], want: Manifest, resting: Resting
    ) -> _Differences:
        kept = tuple(differences)
        drift = [d for d in kept if d.cause in (Cause.DRIFT, Cause.ADDED)]
        theirs = [d for d in kept if d.cause in (Cause.CONFLICT, Cause.CONTROLLER)]
        forced = [d for d in theirs if _is_forced(d, want)]
        left = [d for d in theirs if d not in forced]
        fought = [d for d in (*drift, *forced) if (at.oid, d.field) in resting]
        back = [*(drift if at.is_enforced else ()), *forced]
        return cls(
            declared=tuple(d for d in kept if d.cause is Cause.DECLARED),
            drifted=tuple(d for d in back if d not in fought),
            reported=tuple(d for d in (*drift, *forced) if d in fought or d not in back),
            fights=tuple(resting[at.oid, d.field] for d in fought),
            controlled=tuple(d for d in left if d.cause is Cause.CONTROLLER),
            conflicts=tuple(d for d in left if d.cause is Cause.CONFLICT),
        )

    @property
    def takes(self) -> tuple[Difference, ...]:
        return (*self.declared, *self.drifted)


def _taking(
    at: ObjectStep, compared: _Differences, fixed: tuple[Difference, ...], manifest: Manifest
) -> Change:
    recreated = fixed if at.oid.kind == "Deployment" else ()  # its pods with it
    fields = tuple(_field(d, recreated) for d in compared.takes if not _is_bookkeeping(d))
    impact = Impact(restart=_restart(at.oid, compared.takes, manifest))
    more: dict[str, Any] = {"fields": fields, "manifest": manifest, "impact": impact}
    if fixed:
        names = ", ".join(d.field for d in fixed)
        more["message"] = f"{names} cannot be changed in place: deleted and recreated"
        if recreated:
            more["impact"] = Impact(restart=Restart.RESTART)
        return at.change(Action.REPLACE, "ImmutableField", **more)
    more |= _who(compared.drifted)
    if at.adopts:
        return at.change(
            Action.UPDATE, "Adopted", message=_ADOPTED.get(at.oid.kind, "adopted"), **more
        )
    if not compared.declared:
        return at.change(Action.DRIFT, "DriftedByOther", **more)
    if [d.path[-1] for d in compared.takes] == [f"f:{NEEDS_ANNOTATION}"]:
        return at.change(Action.UPDATE, "MemoryKnown", **more)
    if compared.drifted:
        more["message"] = "; ".join(map(_taken, compared.drifted))
    return at.change(Action.UPDATE, "ObjectChanged", **more)


def _standing(at: ObjectStep, rendered: Manifest, *, rolls: bool) -> list[Change]:
    """What waits of an object that stands as another controller made it."""
    record = at.adopted
    if record is None or not stands(rendered, record, changes=rolls):
        return []
    fields = otherwise(rendered, record)
    message = f"with the service's next change: {fields}"
    return [at.change(Action.DEFERRED, "RenderChanged", message=message)] if fields else []


def _taken(difference: Difference) -> str:
    """What we set is restored; what others set first is taken because the fleet declares it."""
    if difference.cause in (Cause.DRIFT, Cause.ADDED):
        return f"{_describe(difference)}: back"
    return f"{difference.field}: taken from {difference.by.label if difference.by else 'someone'}"


def _shown(at: ObjectStep, compared: _Differences) -> list[Change]:
    """Differences that are reported and left alone."""
    rows = (
        (
            "Fight" if compared.fights else "DriftReported",
            compared.reported,
            "; ".join(compared.fights),
        ),
        ("DriftShown", compared.controlled, ""),
    )
    return [
        at.change(
            Action.DRIFT,
            reason,
            fields=tuple(_field(d) for d in differences),
            message=message,
            **_who(differences),
        )
        for reason, differences, message in rows
        if differences
    ]


def _is_bookkeeping(difference: Difference) -> bool:
    return difference.cause is Cause.DECLARED and difference.path[-1] in _BOOKKEEPING


def _field(difference: Difference, recreated: Collection[Difference] = ()) -> FieldChange:
    restarts = difference.path[:2] == _TEMPLATE or difference in recreated
    before = _before(difference)
    return FieldChange(difference.field, before, _sharing(difference.after, before), restarts)


def _sharing(after: Any, before: Any) -> Any:  # noqa: ANN401 - any value of a manifest
    """The value itself, with the words that it shares with the other one held once: a plan of a
    thousand services has a thousand long lists of arguments, twice."""
    if not (isinstance(after, list) and isinstance(before, list)):
        return after
    words = {word: word for word in before if isinstance(word, str)}
    return [words.get(word, word) if isinstance(word, str) else word for word in after]


def _before(difference: Difference) -> Any:  # noqa: ANN401 - any value of a manifest
    """The live value. If others set it, it may be a secret."""
    is_declared = difference.cause is Cause.DECLARED and difference.by is None
    if is_declared:
        return difference.before
    return shown(difference.before, difference.path, difference.after)


def _who(differences: tuple[Difference, ...]) -> dict[str, Any]:
    """Who caused a drift, and the time of the first change."""
    managers = [d.by for d in differences if d.by is not None]
    names = ", ".join(dict.fromkeys(entry.label for entry in managers))
    since = min((entry.time for entry in managers if entry.time is not None), default=None)
    return {"by": names, "since": since}


def _describe(difference: Difference) -> str:
    """`spec.replicas 2 -> 5 by kubectl-edit`: a drift from what we set to what is live."""
    before, after = _before(difference), difference.after
    if difference.cause in (Cause.DRIFT, Cause.ADDED):
        before, after = after, before
    by = f" by {difference.by.label}" if difference.by else ""
    return f"{difference.field} {_short(before)} -> {_short(after)}{by}"


def _short(value: object) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _conflicting(oid: ObjectId, conflicts: Iterable[Difference]) -> str:
    parts = []
    for d in conflicts:
        who = d.by.label if d.by else "someone"
        parts.append(f"{d.field} is {_short(_before(d))} by {who}, declared is {_short(d.after)}")
    fields = ",".join(d.field for d in conflicts)
    return (
        f"{oid.label}: {'; '.join(parts)}. It stays theirs; to take it, declare the annotation"
        f" {FORCE_FIELDS_ANNOTATION}: {fields}"
    )


def _is_forced(difference: Difference, want: Manifest) -> bool:
    """Whether the annotation names a field, or a parent of it."""
    fields = (want["metadata"].get("annotations") or {}).get(FORCE_FIELDS_ANNOTATION, "")
    names = [name.strip() for name in fields.split(",") if name.strip()]
    field = difference.field
    return any(field == name or field.startswith((f"{name}.", f"{name}[")) for name in names)


def _is_held(want: Manifest, have: Manifest) -> bool:
    """Held by the fleet, or by a user in the cluster. An earlier value of the fleet's own does not
    count."""
    hold = (want["metadata"].get("annotations") or {}).get(HOLD_ANNOTATION)
    return "true" in (hold, put_by_others(have, HOLD_ANNOTATION))


def _going(oid: ObjectId, have: Manifest) -> str:
    waits = finalizers_of(have) or "its own end"
    return f"{oid.label} is being deleted and waits for {waits}; it is recreated once it is gone"


def _restart(oid: ObjectId, takes: Iterable[Difference], manifest: Manifest) -> Restart:
    """What a change does to the pods of a Deployment."""
    if oid.kind != "Deployment" or not any(d.path[:2] == _TEMPLATE for d in takes):
        return Restart.NONE
    strategy = manifest.get("spec", {}).get("strategy", {}).get("type")
    return Restart.RESTART if strategy == "Recreate" else Restart.ROLL
