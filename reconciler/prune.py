"""Removals: how many may go at once, and the word that releases more. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from reconciler.plan import Action, Blocked, Change, Observation
from reconciler.workload import digest


@dataclass(frozen=True, slots=True)
class PruneLimits:
    """The Fleet's limits, and the tokens that somebody confirmed. `other_fleet` is where the
    services were declared, if not in this fleet: then every removal has to be confirmed."""

    max_count: int = 10
    max_share: float = 0.3
    confirmed: frozenset[str] = frozenset()
    other_fleet: str | None = None


def prune_token(removals: Collection[Change]) -> str:
    """The word that releases exactly these removals and no others."""
    return "prune-" + digest(sorted([c.target, *c.ref] for c in removals))[:8]


def guard_removals(
    changes: list[Change], observed: Observation, limits: PruneLimits
) -> tuple[list[Change], list[Blocked]]:
    """Hold back removals beyond the Fleet's limits, until their token is confirmed."""
    removals = [c for c in changes if c.action == Action.DELETE and c.reason == "Removed"]
    held = guard(removals, len({(i.target, i.ref) for i in observed.instances}), limits)
    if held is None:
        return changes, []
    going = {(c.target, c.ref) for c in removals}
    return [c for c in changes if (c.target, c.ref) not in going], [held]


def guard(removals: Sequence[Change], total: int, limits: PruneLimits) -> Blocked | None:
    """Why the removal of these, of `total` services, has to be confirmed; None: it has not."""
    many = len(removals) > limits.max_count
    large = len(removals) >= 4 and len(removals) > limits.max_share * total
    foreign = bool(removals) and limits.other_fleet is not None
    token = prune_token(removals)
    if not (many or large or foreign) or token in limits.confirmed:
        return None
    why = f"the limits are {limits.max_count} and {limits.max_share:.0%}"
    if foreign:
        why = f"they were started from another fleet, {limits.other_fleet}"
    message = (
        f"{len(removals)} of {total} services would stop; {why}."
        f" If that is meant, commit `confirm: [{token}]` to the Fleet or add --confirm {token}"
    )
    return Blocked(
        removals[0].ref,
        "NeedsConfirmation",
        message,
        removals[0].source,
        removals[0].target,
        tuple(c.ref for c in removals),
        token,
    )
