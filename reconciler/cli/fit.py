"""Whether a draft of `reconcile deploy` may be written: by what validate says, the plan, and the
catalogue's figure where the header of the file cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from reconciler.api.quantity import show_bytes

if TYPE_CHECKING:
    from reconciler.capacity.admission import Admission, Sized
    from reconciler.catalogue import CatalogueEntry
    from reconciler.cli.draft import Draft
    from reconciler.core.observation import Observation
    from reconciler.loop.desired import Desired

_DISAGREES = 0.25  # a share of the catalogue's figure


def why_not(
    draft: Draft, entry: CatalogueEntry | None, node: str, desired: Desired, observed: Observation
) -> str | None:
    """What keeps it from running there, or another service from where it runs; None: nothing."""
    title = f"{draft.args.name} ({entry.quantisation})" if entry else draft.args.name
    for item in desired.plan(observed).blocked:
        if draft.ref in (item.ref, *item.holds) or item.ref == draft.model_ref:
            return _refused(title, node, item.reason, item.message, _estimate(draft, desired))
    for hold in draft.newly_held(desired):  # the plan is about what was observed; this, about all
        rule, message, ref = hold.finding.rule, hold.finding.message, hold.finding.ref
        if draft.ref in hold.services:
            return _refused(title, node, rule, message, _estimate(draft, desired))
        return f"{title} leaves no room for {ref.label}: {rule}: {message}\nNothing was written."
    if entry is not None and (short := _short_by_figure(draft, entry, node, desired, observed)):
        figure = f"{show_bytes(entry.memory_bytes)} (the catalogue's figure)"
        return _insufficient(title, node, figure, short, ["a smaller quantisation", "another node"])
    return None


def warnings(draft: Draft, entry: CatalogueEntry | None, desired: Desired) -> Iterator[str]:
    """What is not known, what is of no use, and where the catalogue and the header disagree."""
    if draft.why_unknown:
        yield f"its memory is checked once it is downloaded: {draft.why_unknown}"
    homes = {a.node.ref for a, _ in _sized(draft, desired)}
    for finding in desired.assignment.warnings:
        if finding.ref == draft.ref or finding.ref in homes:
            yield finding.message
    for _, sized in _sized(draft, desired) if entry else ():
        memory = sized.workload.memory
        if entry and memory and abs(memory.total_bytes / entry.memory_bytes - 1) > _DISAGREES:
            yield (
                f"the catalogue says that {draft.args.name} takes"
                f" {show_bytes(entry.memory_bytes)}, its header"
                f" {show_bytes(memory.total_bytes)}: the header is right"
            )


def _sized(draft: Draft, desired: Desired) -> Iterator[tuple[Admission, Sized]]:
    """The service on the nodes that were asked to take it."""
    for admission in desired.assignment.admissions:
        for sized in (*admission.admitted, *admission.refused):
            if sized.workload.ref == draft.ref:
                yield admission, sized


def _refused(title: str, node: str, reason: str, message: str, estimate: str) -> str:
    if reason != "MemoryFits":
        return f"{title} cannot run on node {node}: {reason}: {message}\nNothing was written."
    arithmetic, *ways = message.split("; ")
    return _insufficient(title, node, estimate, arithmetic, ways)


def _insufficient(
    title: str, node: str, estimate: str, arithmetic: str, ways: Iterable[str]
) -> str:
    suggestions = "\n              ".join(ways) or "another node, or a smaller quantisation"
    return (
        f"Error: insufficient memory for {title} on node {node}\n"
        f"  Estimated requirement: {estimate}\n"
        f"  Available budget: {arithmetic}\n"
        f"  Suggestion: {suggestions}\n"
        "Nothing was written."
    )


def _estimate(draft: Draft, desired: Desired) -> str:
    """What it would take in all, as far as that is known."""
    known = (sized.workload.memory for _, sized in _sized(draft, desired))
    return next((show_bytes(memory.total_bytes) for memory in known if memory), "not known")


def _short_by_figure(
    draft: Draft, entry: CatalogueEntry, node: str, desired: Desired, observed: Observation
) -> str | None:
    """Where no header could be read: the catalogue's figure against what is free where the weights
    would lie."""
    from reconciler.capacity.remedies import Occupancy, shortfall
    from reconciler.fleet.workload import PoolNeed
    from reconciler.loop.desired import used_by_others

    for admission, sized in _sized(draft, desired):
        if admission.node.metadata.name != node or sized.workload.memory is not None:
            continue
        devices = [pool for pool in sized.pools if pool.name.startswith("device")]
        for pool in (devices or sized.pools)[:1]:
            need = PoolNeed(pool.name, entry.memory_bytes, pool.budget_bytes)
            room = admission.room(used_by_others(observed))
            return shortfall([need], Occupancy(node, sized.pools, room.taken))
    return None
