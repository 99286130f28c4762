"""What controllers of other projects make of the objects that we write for them. Pure.

Each says it in the conditions that its project has. Those of an older generation are of the past.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import OWNED_KINDS, Manifest, ObjectId, finalizers_of
from reconciler.kube.running.readiness import conditions_of

OF_OTHERS = tuple(row.kind for row in OWNED_KINDS.values() if row.project)
_MOST = 300  # characters of what one object is told
_NAMED = 3
_ACCEPTED = ("Accepted", "ResolvedRefs")  # of a route and of a pool, each parent for itself
_PARENT = ("namespace", "name", "sectionName", "port")
_TRIGGER_ERROR, _AT_ZERO = "TriggerError", "ScalingDisabled"
_FROM_PODS = "aggregateFromKubeServiceEndpoints"
_PAUSED = "autoscaling.keda.sh/paused"
_PAUSED_AT = f"{_PAUSED}-replicas"  # whatever it says
_FALSE = frozenset({"false", "f", "0"})  # as Go's strconv.ParseBool has it


def unaccepted(live: Manifest) -> str:
    """Why its controller does not do what it says; empty: it does, or the kind has none."""
    judge = _JUDGES.get(live["kind"])
    if judge is None:
        return ""
    is_going = live["metadata"].get("deletionTimestamp")
    return _line("; ".join((_going if is_going else judge)(live)))


def unaccepted_of(children: Iterable[Manifest]) -> str:
    """The same of all objects of a service, each with its kind."""
    judged = ((live["kind"], unaccepted(live)) for live in children)
    return "; ".join(f"{kind}: {why}" for kind, why in judged if why)


def of_others(objects: ObjectSet) -> tuple[ObjectId, ...]:
    """Those of kinds of other projects."""
    return tuple(oid for kind in OF_OTHERS for oid in objects.of_kind(kind))


def unaccepted_note(objects: ObjectSet, others: Iterable[ObjectId]) -> str:
    """What a plan and a status say of them; empty: all are accepted."""
    by_reason = defaultdict[tuple[str, str], list[str]](list)
    for oid in others:
        if why := unaccepted(objects[oid]):
            by_reason[oid.kind, why].append(f"{oid.namespace}/{oid.name}")
    notes = [_note(kind, why, names) for (kind, why), names in by_reason.items()]
    more = [f"and {len(notes) - _NAMED} other reasons"] if len(notes) > _NAMED else []
    return "; ".join(notes[:_NAMED] + more)


def starts_none(scaled_object: Manifest | None) -> str:
    """Why KEDA starts no pod for a trigger; empty: it does."""
    if scaled_object is None:
        return "it has no ScaledObject here"
    if scaled_object["metadata"].get("deletionTimestamp"):
        return "its ScaledObject is being deleted"
    if why := _unasked(scaled_object, is_at_zero=True):
        return f"of its ScaledObject, {_line(why)}"
    return _paused(scaled_object)


def _note(kind: str, why: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{kind} {', '.join(names[:_NAMED])}{more}: {why}"


def _line(words: str) -> str:
    text = " ".join(words.split())
    return text if len(text) <= _MOST else f"{text[: _MOST - 1].rstrip()}…"


def _going(live: Manifest) -> Iterator[str]:
    """What is deleted ends at once, but for what its controller has to do before."""
    if waits := finalizers_of(live):
        yield f"it is being deleted and waits for {waits}; is its controller running?"


def _scaled_object(live: Manifest) -> Iterator[str]:
    scaler = conditions_of(live.get("status") or {}).get("HPAActive", {})
    if why := _unasked(live, scaler.get("reason") == _AT_ZERO):
        yield why
    elif scaler.get("status") == "False":
        yield f"its HorizontalPodAutoscaler gets no number: {scaler.get('reason')}"


def _unasked(live: Manifest, is_at_zero: bool) -> str:
    """Why KEDA cannot ask its triggers; empty: it can. One that reads the service's own pods fails
    while there are none, whatever the others do."""
    ready = conditions_of(live.get("status") or {}).get("Ready", {})
    reason = ready.get("reason")
    if reason is None:
        return "KEDA has not looked at it; is its operator running?"
    is_excused = is_at_zero and reason == _TRIGGER_ERROR and _reads_pods(live)
    is_unable = ready.get("status") == "False" and not is_excused
    return _words(ready) if is_unable else ""


def _reads_pods(live: Manifest) -> bool:
    triggers = (live.get("spec") or {}).get("triggers") or ()
    return any(_FROM_PODS in (trigger.get("metadata") or {}) for trigger in triggers)


def _paused(scaled_object: Manifest) -> str:
    """By an annotation that people put on it."""
    notes = scaled_object["metadata"].get("annotations") or {}
    stated = (
        n for n in (_PAUSED, f"{_PAUSED}-scale-out") if notes.get(n, "f").lower() not in _FALSE
    )
    by = _PAUSED_AT if _PAUSED_AT in notes else next(stated, None)
    return f"its ScaledObject is paused by {by}" if by else ""


def _route(live: Manifest) -> Iterator[str]:
    parents = _parents(live)
    for wanted in live["spec"].get("parentRefs") or ():
        if not any(_same(wanted, parent.get("parentRef") or {}, live) for parent in parents):
            yield f"no controller has taken it up for Gateway {wanted.get('name')}"
    yield from _refusals(live, parents)


def _pool(live: Manifest) -> Iterator[str]:
    """Nobody has to lead to it."""
    yield from _refusals(live, _parents(live))


def _refusals(live: Manifest, parents: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for parent in parents:
        conditions = conditions_of(parent)
        for condition in map(conditions.get, _ACCEPTED):
            if condition and condition.get("status") == "False" and _is_current(condition, live):
                name = (parent.get("parentRef") or {}).get("name")
                yield f"{name}: {_words(condition)}"


def _words(condition: Mapping[str, Any]) -> str:
    """Some controllers give a reason alone."""
    return ": ".join(str(condition[key]) for key in ("reason", "message") if condition.get(key))


def _is_current(condition: Mapping[str, Any], live: Manifest) -> bool:
    return condition.get("observedGeneration") in (None, live["metadata"].get("generation"))


def _same(wanted: Mapping[str, Any], answered: Mapping[str, Any], live: Manifest) -> bool:
    here = {"namespace": live["metadata"].get("namespace")}
    one, other = ({**here, **ref} for ref in (wanted, answered))
    return all(one.get(key) == other.get(key) for key in _PARENT)


def _parents(live: Manifest) -> list[Mapping[str, Any]]:
    listed = (live.get("status") or {}).get("parents") or ()
    return [parent for parent in listed if isinstance(parent, Mapping)]


_JUDGES: Mapping[str, Callable[[Manifest], Iterator[str]]] = MappingProxyType(
    {"ScaledObject": _scaled_object, "HTTPRoute": _route, "InferencePool": _pool}
)
