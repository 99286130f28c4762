"""The status of the Fleet: which revision is followed and applied, and why not a newer one. Pure.

A revision that is refused or held, and a source that gives no answer, change nothing that runs: no
service shows them. Here they are conditions that `kubectl get` and `kubectl wait` see. All of them
are always there, so that nobody else can add one: what is written here is never read back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.core.plan import Action, Blocked, Change
from reconciler.kube.event_note import EventNote
from reconciler.kube.objects import Manifest, id_of, ref_of
from reconciler.kube.status.conditions import (
    APPLIED,
    CURRENT,
    READY,
    RECONCILING,
    SOURCE_READY,
    STALLED,
    Condition,
    Truth,
    cut,
    set_conditions,
)
from reconciler.kube.status.view import ClusterView
from reconciler.loop.interfaces import Following
from reconciler.source.history import VerdictKind
from reconciler.timestamps import timestamp

FLEET_FIELDS = (
    "observedGeneration",
    "observedRevision",
    "appliedRevision",
    "source",
    "head",
    "refused",
    "held",
    "conditions",
)
"""Our fields of a Fleet's status."""
_MOST_NAMES = 10  # of what is not applied; why, each service says itself


@dataclass(frozen=True, slots=True)
class FleetView:
    """What a Fleet's status is made from. `made`: its condition Applied; `applied`: the revision
    that the cluster was made to be last, as a whole; `generation`: that was looked at."""

    following: Following
    made: Condition
    applied: str | None
    generation: int | None


def fleet_status(of: FleetView, live: Manifest, now: str) -> dict[str, Any]:
    """The status of a live Fleet, in FLEET_FIELDS."""
    following = of.following
    before = (live.get("status") or {}).get("conditions") or ()
    status = {
        "observedGeneration": of.generation,
        "observedRevision": following.followed,
        "appliedRevision": of.applied,
        "source": _source(following),
        "head": following.head,
        **_verdict(following),
        "conditions": set_conditions(before, _conditions(of), of.generation, now),
    }
    return {name: value for name, value in status.items() if value is not None}


def fleet_events(of: FleetView, live: Manifest) -> Iterator[EventNote]:
    """What has happened to the fleet as a whole, beside the status that was there before."""
    ref, was, following = ref_of(id_of(live)), live.get("status") or {}, of.following
    before = {c.get("type"): c.get("status") for c in was.get("conditions") or ()}
    for condition in _conditions(of):
        if condition.type in _TOLD and condition.status != "True":
            if condition.reason != "Progressing":
                yield EventNote(ref, condition.reason, "Follow", condition.message, is_bad=True)
        elif condition.type == SOURCE_READY and before.get(SOURCE_READY) not in (None, "True"):
            yield EventNote(ref, "SourceBack", "Follow", condition.message)
    if following.rewritten and was.get("observedRevision") != following.followed:
        yield EventNote(ref, "RevisionRewritten", "Follow", following.rewritten, is_bad=True)
    if of.applied and was.get("appliedRevision") not in (None, of.applied):
        yield EventNote(ref, "RevisionApplied", "Apply", f"revision {of.applied[:12]} is applied")


def applied_condition(view: ClusterView, applied: str | None) -> Condition:
    """Whether all of the followed revision is in this cluster, as far as it is for this cluster."""
    target, revision = f"cluster/{view.cluster}", view.desired.fleet.revision
    if view.failed:
        return Condition(APPLIED, "False", "ApplyFailed", _first(view.failed))
    blocked = list(_blocked(view))
    if blocked:
        why: dict[ObjectRef, str] = {}
        for each in blocked:
            why.setdefault(each.ref, each.message)
        return Condition(APPLIED, "False", blocked[0].reason, _first(why))
    pending = [
        change
        for change in view.plan.changes
        if change.target == target
        and not change.is_shown_only
        and change.action not in (Action.DEFERRED, Action.DRIFT)
    ]
    if pending or applied != revision:
        what = f"{len(pending)} changes" if len(pending) != 1 else "1 change"
        goes = next((f": {c.ref.label} is {c.message}" for c in pending if _goes(c)), "")
        return Condition(APPLIED, "False", "Progressing", f"{revision[:12]}: {what} to go{goes}")
    return Condition(APPLIED, "True", "Applied", f"revision {revision[:12]} is applied")


def _goes(change: Change) -> bool:
    """A removal that waits, and says for what."""
    return change.action is Action.DELETE and bool(change.message)


NOTHING_FOLLOWED = Condition(
    APPLIED,
    "Unknown",
    "NothingFollowed",
    "this process has no revision to follow: nothing is applied, and no drift is repaired",
)


_REASONS = {
    VerdictKind.REFUSED: "RevisionRefused",
    VerdictKind.HELD: "RevisionHeld",
    VerdictKind.FAILED: "InternalError",
}
_TOLD = (SOURCE_READY, CURRENT, APPLIED)
_MOVES = frozenset({"ApplyFailed", "Progressing", "NothingFollowed"})  # the rest waits for a person


def _conditions(of: FleetView) -> tuple[Condition, ...]:
    source, current, made = _source_ready(of.following), _current(of.following), of.made
    worst = next((c for c in (current, made, source) if c.status != "True"), None)
    ready = (
        Condition(READY, "True", made.reason, made.message)
        if worst is None
        else Condition(READY, _less(worst), worst.reason, worst.message)
    )
    waits = current.status == "False" or (made.status == "False" and made.reason not in _MOVES)
    stalled = (current if current.status == "False" else made) if waits else None
    moves = made if made.status == "False" and made.reason in _MOVES else None
    return (
        ready,
        _present(RECONCILING, moves, "nothing is on its way"),
        _present(STALLED, stalled, "nothing waits for a person"),
        source,
        current,
        made,
    )


def _less(worst: Condition) -> Truth:
    """Claim less where the source is lost: whether it has a newer revision is not known."""
    return "Unknown" if worst.type == SOURCE_READY else worst.status


def _present(kind: str, cause: Condition | None, otherwise: str) -> Condition:
    if cause is None:
        return Condition(kind, "False", "NotSo", otherwise)
    return Condition(kind, "True", cause.reason, cause.message)


def _source_ready(following: Following) -> Condition:
    where, record = _where(following), following.record
    if record.unreachable_since is not None:
        why = f"since {timestamp(record.unreachable_since)}: {record.unreachable_why}"
        return Condition(SOURCE_READY, "False", "SourceLost", f"{why}{_goes_on(following)}")
    at = f" is at {following.head[:12]}" if following.head else ""
    return Condition(SOURCE_READY, "True", "Fetched", f"{where}{at}")


def _current(following: Following) -> Condition:
    """Whether the newest revision that is known is the one that is followed."""
    goes_on = _goes_on(following)
    if (verdict := following.verdict) is not None:
        why = verdict.reason
        if verdict.kind is VerdictKind.REFUSED:
            more = f" (and {len(verdict.problems) - 1} more)" if len(verdict.problems) > 1 else ""
            part = " in part" if verdict.revision == following.followed else ""
            why = f"{verdict.revision[:12]} is refused{part}: {why}{more}"
        return Condition(CURRENT, "False", _REASONS[verdict.kind], f"{why}{goes_on}")
    if following.failed:
        return Condition(CURRENT, "False", "FetchFailed", f"{following.failed}{goes_on}")
    if following.record.unreachable_since is not None:
        why = "whether there is a newer one is not known: its source gives no answer"
        return Condition(CURRENT, "Unknown", "SourceLost", why)
    head = following.followed or following.head or ""
    return Condition(CURRENT, "True", "Followed", f"the newest revision, {head[:12]}")


def _blocked(view: ClusterView) -> Iterator[Blocked]:
    """What is kept although nothing has a use for it any more does not count."""
    here = (None, f"cluster/{view.cluster}")
    blocked = (b for b in view.plan.blocked if b.target in here)
    return (b for b in blocked if b.reason != "Guarded" or b.token is None)


def _first(why: Mapping[ObjectRef, str]) -> str:
    """Why the first is not as declared, and which others are not."""
    first, *others = why
    names = ", ".join(ref.label for ref in others[:_MOST_NAMES])
    more = f" and {len(others) - _MOST_NAMES} more" if len(others) > _MOST_NAMES else ""
    return f"{first.label}: {why[first]}" + (f"; also {names}{more}" if others else "")


def _goes_on(following: Following) -> str:
    return f"; {following.followed[:12]} stays applied" if following.followed else ""


def _where(following: Following) -> str:
    return f"{following.location} {following.ref}".strip()


def _source(following: Following) -> Mapping[str, str]:
    ref = {"ref": following.ref} if following.ref else {}
    return {"location": following.location} | ref


def _verdict(following: Following) -> Mapping[str, Any]:
    """The field of the verdict's kind."""
    if (verdict := following.verdict) is None:
        return {}
    since = {"revision": verdict.revision, "since": timestamp(verdict.since)}
    if verdict.kind is not VerdictKind.REFUSED:
        return {"held": since | {"message": cut(verdict.message)}}
    number = len(verdict.problems)
    return {"refused": since | {"problem": cut(verdict.reason), "problems": number}}
