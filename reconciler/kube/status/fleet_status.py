"""The status of the Fleet: which revision is followed and applied, and why not a newer one. Pure.

A revision that is refused or held, and a source that gives no answer, change nothing that runs: no
service shows them. Here they are conditions that `kubectl get` and `kubectl wait` see. All of them
are always there, so that nobody else can add one: what is written here is never read back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from reconciler.core.plan import Action, Blocked
from reconciler.kube.objects import Manifest, id_of, ref_of
from reconciler.kube.status.conditions import (
    APPLIED,
    CURRENT,
    READY,
    RECONCILING,
    SOURCE_READY,
    STALLED,
    Condition,
    cut,
    set_conditions,
)
from reconciler.kube.status.events import EventNote
from reconciler.kube.status.view import ClusterView
from reconciler.loop.interfaces import Following

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

_PERSON = frozenset({"RevisionRefused", "RevisionHeld", "FetchFailed"})  # waiting does not help


def fleet_status(
    view: ClusterView, following: Following, applied: str | None, live: Manifest, now: str
) -> dict[str, Any]:
    """The status of a live Fleet, in FLEET_FIELDS. `applied`: the revision that the cluster was
    made to be last, as a whole."""
    generation = view.observed_generation(live)
    before = (live.get("status") or {}).get("conditions") or ()
    conditions = _conditions(view, following, applied)
    status = {
        "observedGeneration": generation,
        "observedRevision": view.desired.fleet.revision,
        "appliedRevision": applied,
        "source": _source(following),
        "head": following.head,
        "refused": _refused(following),
        "held": _held(following),
        "conditions": set_conditions(before, conditions, generation, now),
    }
    return {name: value for name, value in status.items() if value is not None}


def fleet_events(
    view: ClusterView, following: Following, applied: str | None, live: Manifest
) -> Iterator[EventNote]:
    """What has happened to the fleet as a whole, beside the status that was there before."""
    ref, was = ref_of(id_of(live)), live.get("status") or {}
    before = {c.get("type"): c.get("status") for c in was.get("conditions") or ()}
    for condition in _conditions(view, following, applied):
        if condition.type in _TOLD and condition.status != "True":
            told = condition.reason not in ("Progressing", "NotReady")
            if told:
                yield EventNote(ref, condition.reason, "Follow", condition.message, is_bad=True)
        elif condition.type == SOURCE_READY and before.get(SOURCE_READY) not in (None, "True"):
            yield EventNote(ref, "SourceBack", "Follow", condition.message)
    if following.rewritten and was.get("observedRevision") != view.desired.fleet.revision:
        yield EventNote(ref, "RevisionRewritten", "Follow", following.rewritten, is_bad=True)
    if applied and was.get("appliedRevision") not in (None, applied):
        yield EventNote(ref, "RevisionApplied", "Apply", f"revision {applied[:12]} is applied")


_TOLD = (SOURCE_READY, CURRENT, APPLIED)


def _conditions(
    view: ClusterView, following: Following, applied: str | None
) -> tuple[Condition, ...]:
    source, current = _source_ready(following), _current(view, following)
    made = _applied(view, applied)
    worst = next((c for c in (current, made, source) if c.status != "True"), None)
    revision = view.desired.fleet.revision
    ready = (
        Condition(READY, "True", "Applied", f"revision {revision[:12]} is applied")
        if worst is None
        else Condition(READY, _less(worst), worst.reason, worst.message)
    )
    stalled = next((c for c in (current, made) if c.reason in _PERSON or _is_held(view, c)), None)
    moves = made if made.status != "True" and made is not stalled else None
    return (
        ready,
        _present(RECONCILING, moves, "nothing is on its way"),
        _present(STALLED, stalled, "nothing waits for a person"),
        source,
        current,
        made,
    )


def _less(worst: Condition) -> Any:  # noqa: ANN401 - a Truth
    """Of a source that is lost it is not known whether it has a newer revision."""
    return "Unknown" if worst.type == SOURCE_READY else worst.status


def _present(kind: str, cause: Condition | None, otherwise: str) -> Condition:
    if cause is None:
        return Condition(kind, "False", "NotSo", otherwise)
    return Condition(kind, "True", cause.reason, cause.message)


def _source_ready(following: Following) -> Condition:
    where, record = _where(following), following.record
    if record.unreachable_since is not None:
        why = f"since {_stamp(record.unreachable_since)}: {record.unreachable_why}"
        return Condition(SOURCE_READY, "False", "SourceLost", f"{why}{_goes_on(following)}")
    at = f" is at {following.head[:12]}" if following.head else ""
    return Condition(SOURCE_READY, "True", "Fetched", f"{where}{at}")


def _current(view: ClusterView, following: Following) -> Condition:
    """Whether the newest revision that is known is the one that is followed."""
    goes_on = _goes_on(following)
    if (refused := following.refused) is not None:
        problem = refused.problems[0] if refused.problems else "it has errors"
        more = f" (and {len(refused.problems) - 1} more)" if len(refused.problems) > 1 else ""
        part = " in part" if refused.revision == following.followed else ""
        why = f"{refused.revision[:12]} is refused{part}: {problem}{more}{goes_on}"
        return Condition(CURRENT, "False", "RevisionRefused", why)
    if (held := following.held) is not None:
        return Condition(CURRENT, "False", "RevisionHeld", f"{held.message}{goes_on}")
    if following.failed:
        return Condition(CURRENT, "False", "FetchFailed", f"{following.failed}{goes_on}")
    if following.record.unreachable_since is not None:
        why = "whether there is a newer one is not known: its source gives no answer"
        return Condition(CURRENT, "Unknown", "SourceLost", why)
    return Condition(
        CURRENT, "True", "Followed", f"the newest revision, {view.desired.fleet.revision[:12]}"
    )


def _applied(view: ClusterView, applied: str | None) -> Condition:
    """Whether all of the followed revision is in this cluster, as far as it is for this cluster."""
    target, revision = f"cluster/{view.cluster}", view.desired.fleet.revision
    failed = [f"{ref.label}: {why}" for ref, why in view.failed.items()]
    if failed:
        return Condition(APPLIED, "False", "ApplyFailed", _first(failed))
    blocked = list(_blocked(view))
    if blocked:
        lines = [f"{each.ref.label}: {each.message}" for each in blocked]
        return Condition(APPLIED, "False", blocked[0].reason, _first(lines))
    pending = [
        change
        for change in view.plan.changes
        if change.target == target
        and not change.is_shown_only
        and change.action not in (Action.DEFERRED, Action.DRIFT)
    ]
    if pending or applied != revision:
        what = f"{len(pending)} changes" if len(pending) != 1 else "1 change"
        return Condition(APPLIED, "False", "Progressing", f"{revision[:12]}: {what} to go")
    return Condition(APPLIED, "True", "Applied", f"revision {revision[:12]} is applied")


def _blocked(view: ClusterView) -> Iterator[Blocked]:
    """What is kept although nothing has a use for it any more does not count."""
    here = (None, f"cluster/{view.cluster}")
    found = (b for b in view.plan.blocked if b.target in here)
    return (b for b in found if b.reason != "Guarded" or b.token is None)


def _is_held(view: ClusterView, condition: Condition) -> bool:
    """Whether it is not applied for a reason that does not go away by itself."""
    return condition.type == APPLIED and any(
        condition.reason == blocked.reason for blocked in _blocked(view)
    )


def _first(lines: list[str]) -> str:
    return lines[0] + (f" (and {len(lines) - 1} more)" if len(lines) > 1 else "")


def _goes_on(following: Following) -> str:
    return f"; {following.followed[:12]} stays applied" if following.followed else ""


def _where(following: Following) -> str:
    return f"{following.location} {following.ref}".strip()


def _source(following: Following) -> Mapping[str, str]:
    ref = {"ref": following.ref} if following.ref else {}
    return {"location": following.location} | ref


def _refused(following: Following) -> Mapping[str, Any] | None:
    refused = following.refused
    if refused is None:
        return None
    return {
        "revision": refused.revision,
        "since": _stamp(refused.since),
        "problem": cut(refused.problems[0] if refused.problems else "it has errors"),
        "problems": len(refused.problems),
    }


def _held(following: Following) -> Mapping[str, Any] | None:
    held = following.held
    if held is None:
        return None
    return {
        "revision": held.revision,
        "since": _stamp(held.since),
        "message": cut(held.message),
    }


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
