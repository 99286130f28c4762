"""Dry-run a plan on the API server, without changing anything.

Only for objects that the plan changes. The server knows immutable fields, quotas, admission and its
own normal forms of values. Of a first install a sample is checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from reconciler.core.plan import Action, Blocked, Change, Impact, Plan, Restart
from reconciler.kube.apply.objects import THREADS, object_id
from reconciler.kube.apply.writer import NONE_YET, are_planned, with_metadata
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.errors import Conflict, Denied, Immutable, InvalidObject, NotFound
from reconciler.kube.client.pace import Pace
from reconciler.kube.diff.difference import compare
from reconciler.kube.diff.private import scrubbed
from reconciler.kube.diff.record import APPLIED_ANNOTATION
from reconciler.kube.object_set import decoded
from reconciler.kube.objects import AUTOSCALERS, Manifest, ObjectId, kind_of

_LONGEST_WAIT_S = 30.0
_JUDGED = (Action.CREATE, Action.UPDATE, Action.DRIFT)
MOST_ALIKE = 25  # creates of one kind in one namespace that are checked, as long as none is refused
_SERVER_OWN = ("managedFields", "resourceVersion", "generation")

_Alike = tuple[str, str, str]  # group, kind, namespace
Verdict = Change | Blocked | None  # None: the server would change nothing


def judged(api: ApiServer, plan: Plan, target: str, live: Mapping[ObjectId, Manifest]) -> Plan:
    """The plan as the server would carry it out, for that target's objects. Raises ClusterError if
    it does not respond."""
    pace = Pace(THREADS, _LONGEST_WAIT_S)

    def ask(change: Change) -> Verdict:
        return pace.run(lambda: _ask(api, change, live.get(object_id(change))))

    here = [change for change in plan.changes if _is_here(change, target)]
    taken_off = {c.ref for c in here if c.action is Action.DELETE and _is_autoscaler(c)}
    asked, others = _first(
        change
        for change in here
        if change.action in _JUDGED
        and not change.is_shown_only
        and not (_is_autoscaler(change) and change.ref in taken_off)
    )
    with ThreadPoolExecutor(THREADS, "judge") as pool:
        # by identity: a change holds manifests, which have no hash
        verdicts = dict(zip(map(id, asked), pool.map(ask, asked), strict=True))
        doubted = {_alike(c) for c in asked if isinstance(verdicts[id(c)], Blocked)}
        rest = [change for change in others if _alike(change) in doubted]
        verdicts |= zip(map(id, rest), pool.map(ask, rest), strict=True)
    verdict_changes = [verdicts.get(id(change), change) for change in plan.changes]
    changes = tuple(v for v in verdict_changes if isinstance(v, Change))
    refused = {(v.ref, v.message): v for v in verdict_changes if isinstance(v, Blocked)}
    return replace(plan, changes=changes, blocked=(*plan.blocked, *refused.values()))


def _is_here(change: Change, target: str) -> bool:
    return change.target == target and change.object is not None


def _is_autoscaler(change: Change) -> bool:
    """KEDA refuses one while the service has another, which is removed first."""
    return object_id(change).kind in AUTOSCALERS


def _first(changes: Iterable[Change]) -> tuple[list[Change], list[Change]]:
    """The changes to check, and those to check only if a similar one is refused: of many creates,
    some of each kind and namespace."""
    creates: defaultdict[_Alike, list[Change]] = defaultdict(list)
    asked: list[Change] = []
    for change in changes:
        (creates[_alike(change)] if change.action is Action.CREATE else asked).append(change)
    left: list[Change] = []
    for alike in creates.values():
        every = max(1, -(-len(alike) // MOST_ALIKE))
        asked += alike[::every]
        left += [change for place, change in enumerate(alike) if place % every]
    return asked, left


def _alike(change: Change) -> _Alike:
    oid = object_id(change)
    return oid.group, oid.kind, oid.namespace


def _ask(api: ApiServer, change: Change, have: Manifest | None) -> Verdict:
    assert change.manifest is not None
    own = {"resourceVersion": NONE_YET} if have is None else {"uid": have["metadata"]["uid"]}
    sent = with_metadata(decoded(change.manifest), **own)
    try:
        after = _dry_run(api, change, sent, have)
    except NotFound as error:
        return _unless_no_namespace(change, error)
    except Denied:
        return change  # a planner may have read access only
    except Immutable as error:
        return _anew(change, error)
    except InvalidObject as error:
        return _blocked(change, "ObjectRefused", scrubbed(str(error), have, change.manifest))
    except Conflict as error:
        why = scrubbed(str(error), have, change.manifest)
        return _blocked(change, "FieldConflict" if error.owners else "NotOurs", why)
    return change if have is None or _would_change(change, have, after) else None


def _dry_run(api: ApiServer, change: Change, sent: Manifest, have: Manifest | None) -> Manifest:
    try:  # what is adopted was taken before, which a dry run does not
        return api.apply(sent, force=change.reason == "Adopted", dry_run=True)
    except Conflict as error:
        if have is None or not error.owners:
            raise
        planned = {field.path for field in change.fields}
        takes = [d for d in compare(sent, have) if d.field in planned]
        if not are_planned(error, takes):
            raise
        return api.apply(sent, force=True, dry_run=True)


def _would_change(change: Change, have: Manifest, after: Manifest) -> bool:
    """Entries that are to be removed are not part of the apply. What is adopted was planned as if
    it were ours already."""
    if change.reason == "Adopted":
        return True
    adds = any(field.after is None for field in change.fields)
    return adds or _content(have) != _content(after)


def _content(manifest: Manifest) -> dict[str, Any]:
    metadata = {k: v for k, v in manifest["metadata"].items() if k not in _SERVER_OWN}
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {k: v for k, v in annotations.items() if k != APPLIED_ANNOTATION}
    return {**{k: v for k, v in manifest.items() if k != "status"}, "metadata": metadata}


def _unless_no_namespace(change: Change, error: NotFound) -> Verdict:
    """A kind that is not installed is reported elsewhere, once."""
    namespace = object_id(change).namespace
    if f'namespaces "{namespace}" not found' not in str(error):
        return change
    message = f"namespace {namespace} is not there: kubectl create namespace {namespace}"
    return _blocked(change, "ObjectRefused", message)


def _anew(change: Change, error: Immutable) -> Verdict:
    fields = ", ".join(name for name, _ in error.causes)
    if kind_of(object_id(change)).guarded:
        return _blocked(change, "Guarded", f"{error}; recreating it would lose its data")
    is_run = object_id(change).kind == "Deployment"
    return replace(
        change,
        action=Action.REPLACE,
        reason="ImmutableField",
        message=f"{fields} cannot be changed in place: deleted and recreated",
        impact=Impact(restart=Restart.RESTART if is_run else Restart.NONE),
    )


def _blocked(change: Change, reason: str, message: str) -> Blocked:
    return Blocked(change.ref, reason, message, change.source, change.target, (change.ref,))
