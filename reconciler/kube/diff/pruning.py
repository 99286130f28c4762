"""Which objects to delete: those with our labels that are no longer declared. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from reconciler.api.meta import HOLD_ANNOTATION, PRUNE_ANNOTATION, ObjectRef
from reconciler.core.observation import Location
from reconciler.core.plan import Action, Blocked, Change
from reconciler.core.planner import Policy
from reconciler.core.prune import guard, prune_token
from reconciler.kube.diff.step import ObjectStep
from reconciler.kube.objects import Manifest, ObjectId, kind_of, ref_of, service_of


@dataclass(frozen=True, slots=True)
class Pruned:
    changes: tuple[Change, ...]
    blocked: tuple[Blocked, ...]


def prune(
    target: str,
    left: Mapping[ObjectId, Manifest],
    *,
    declared: Collection[ObjectRef],
    running: Collection[ObjectRef],
    leaving: Collection[ObjectRef],
    policy: Policy,
    where: Callable[[ObjectRef], Location | None],
    incomplete: str,
) -> Pruned:
    """`left` are live objects of this fleet that are no longer declared. `declared` and `running`
    are the refs of the desired and the live objects; `leaving` are services whose removal the
    services' plan allows; `where` returns the line that a removal comes from."""
    removals: list[Change] = []
    blocked: list[Blocked] = []
    has_services = any(ref.kind == "InferenceService" for ref in running)
    why_not = policy.incomplete or (incomplete if has_services else "")
    for oid, have in sorted(left.items(), reverse=True):
        ref = service_of(have) or ref_of(oid)
        at = ObjectStep(target, oid, ref, where(ref))
        removal = at.change(Action.DELETE, "Removed", manifest=_identity(have))
        if have["metadata"].get("deletionTimestamp"):
            continue  # being deleted: nothing more to do
        refusal = _refusal(at, have, removal, policy, why_not)
        if refusal is not None:
            blocked.append(refusal)
        else:
            removals.append(removal)
    kept, unconfirmed = _limited(removals, declared, running, leaving, policy)
    return Pruned(tuple(kept), (*_once(blocked), *unconfirmed))


def _refusal(
    at: ObjectStep, have: Manifest, removal: Change, policy: Policy, why_not: str
) -> Blocked | None:
    """Why one object stays."""
    annotations = have["metadata"].get("annotations") or {}
    if why_not:
        return at.blocked("RevisionIncomplete", why_not)
    if annotations.get(PRUNE_ANNOTATION) == "disabled":
        return at.blocked("PruneDisabled", f"{at.oid.label} is kept by its prune annotation")
    if annotations.get(HOLD_ANNOTATION) == "true":
        return at.blocked("Held", f"{at.oid.label} would go; left by its hold annotation")
    token = prune_token([removal])
    if kind_of(at.oid).guarded and token not in policy.prune.confirmed:
        row = kind_of(at.oid)
        where = f" -n {at.oid.namespace}" if at.oid.namespace else ""
        message = (
            f"{at.oid.label} is no longer declared and may hold data."
            f" Delete it by hand: kubectl{where} delete {row.plural} {at.oid.name};"
            f" or commit `confirm: [{token}]` to the Fleet"
        )
        return Blocked(at.ref, "Guarded", message, at.source, at.target, (), token)
    return None


def _limited(
    removals: list[Change],
    declared: Collection[ObjectRef],
    running: Collection[ObjectRef],
    leaving: Collection[ObjectRef],
    policy: Policy,
) -> tuple[list[Change], list[Blocked]]:
    """Apply the Fleet's limits to services that are not in the services' plan."""
    checked = {*declared, *leaving}
    orphans: dict[ObjectRef, Change] = {}
    for change in removals:
        if change.ref.kind == "InferenceService" and change.ref not in checked:
            orphans.setdefault(change.ref, change)
    total = sum(ref.kind == "InferenceService" for ref in running)
    refusal = guard([orphans[ref] for ref in sorted(orphans)], total, policy.prune)
    if refusal is None:
        return removals, []
    return [change for change in removals if change.ref not in orphans], [refusal]


def _once(blocked: list[Blocked]) -> list[Blocked]:
    """One line per service and reason: what keeps one object also keeps its siblings."""
    by_key: dict[tuple[ObjectRef, str, str], Blocked] = {}
    for item in blocked:
        by_key.setdefault((item.ref, item.reason, item.message), item)
    return list(by_key.values())


def _identity(have: Manifest) -> Manifest:
    """Identifies exactly this object: a removal has its UID."""
    metadata = {
        k: have["metadata"][k]
        for k in ("name", "namespace", "uid", "labels")
        if k in have["metadata"]
    }
    return {"apiVersion": have["apiVersion"], "kind": have["kind"], "metadata": metadata}
