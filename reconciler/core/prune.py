"""Removals: how many may go at once, and the word that releases more. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.api.digest import digest
from reconciler.core.observation import Observation
from reconciler.core.plan import Action, Blocked, Change, Restart


@dataclass(frozen=True, slots=True)
class PruneLimits:
    """The Fleet's limits, and the tokens that were confirmed. `foreign` says of services that
    another fleet started where it is: to remove or replace one of them has to be confirmed."""

    max_count: int = 10
    max_share: float = 0.3
    confirmed: frozenset[str] = frozenset()
    foreign: Mapping[str, str] = field(default_factory=dict)
    are_lower: bool = False  # than what this revision states, since it raises them


@dataclass(frozen=True, slots=True)
class Before:
    """What the revision that was applied last has to do with removals: its limits, None where there
    is none, and `foreign` as in PruneLimits."""

    foreign: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[int, float] | None = None


def limits_of(
    max_count: int, max_share: float, before: Before, confirmed: Collection[str]
) -> PruneLimits:
    """A revision's own limits, unless the one before has lower ones: the commit that removes, or
    loses the Fleet document itself, raises nothing for its own removals."""
    count, share = before.limits or (max_count, max_share)
    count, share = min(count, max_count), min(share, max_share)
    lower = (count, share) != (max_count, max_share)
    return PruneLimits(count, share, frozenset(confirmed), before.foreign, lower)


def prune_token(removals: Collection[Change]) -> str:
    """The word that releases exactly these removals (or replacements) and no others."""
    return "prune-" + digest(sorted([c.target, *c.ref] for c in removals))[:8]


def guard_removals(
    changes: list[Change], observed: Observation, limits: PruneLimits
) -> tuple[list[Change], list[Blocked]]:
    """Hold back removals beyond the Fleet's limits, whatever would end what another fleet started,
    and what a drained node would stop, until their token is confirmed."""
    changes, stuck = _guard_drained([_placed(c, limits) for c in changes], limits)
    ending = [c for c in changes if _is_removal(c) or _ends_foreign(c, limits)]
    held = guard(ending, len({(i.target, i.ref) for i in observed.instances}), limits)
    if held is None:
        return changes, stuck
    going = {(c.target, c.ref) for c in ending}
    return [c for c in changes if (c.target, c.ref) not in going], [*stuck, held]


def _placed(change: Change, limits: PruneLimits) -> Change:
    """Without the place of a removal that another fleet declared: it is in no file of this one."""
    is_foreign = _is_removal(change) and change.ref.label in limits.foreign
    return replace(change, source=None) if is_foreign else change


def _guard_drained(
    changes: list[Change], limits: PruneLimits
) -> tuple[list[Change], list[Blocked]]:
    """What has nowhere to go from a drained node. Each node has a token of its own, which its agent
    gives as well as the reconciler that plans for all nodes."""
    kept, held = [c for c in changes if c.reason != "NodeDrained"], []
    for target in sorted({c.target for c in changes if c.reason == "NodeDrained"}):
        stops = [c for c in changes if c.reason == "NodeDrained" and c.target == target]
        token = prune_token(stops)
        if token in limits.confirmed:
            kept += stops
            continue
        refs = tuple(c.ref for c in stops)
        message = (
            f"{', '.join(ref.label for ref in refs)} would stop: {target.replace('/', ' ')} is"
            " drained, and no other node of placement.nodes takes over."
            f" {_if_meant(token)}"
        )
        stop = stops[0]
        held.append(
            Blocked(stop.ref, "NeedsConfirmation", message, stop.source, target, refs, token)
        )
    return kept, held


def _if_meant(token: str) -> str:
    return f"If that is meant, commit `confirm: [{token}]` to the Fleet or add --confirm {token}"


def guard(ending: Sequence[Change], total: int, limits: PruneLimits) -> Blocked | None:
    """Why the end of these, of `total` services, has to be confirmed; None: it has not."""
    removals = sum(map(_is_removal, ending))
    many = removals > limits.max_count
    large = removals >= 4 and removals > limits.max_share * total
    foreign = sorted({limits.foreign[c.ref.label] for c in ending if c.ref.label in limits.foreign})
    token = prune_token(ending)
    if not (many or large or foreign) or token in limits.confirmed:
        return None
    would = "would stop" if removals == len(ending) else "would stop or be replaced"
    why = f"the limits are {limits.max_count} and {limits.max_share:.0%}"
    if limits.are_lower:
        why += ", as before: higher ones count once this is done"
    if foreign:
        why = f"they were started from another fleet, {' and '.join(foreign)}"
    message = f"{len(ending)} of {total} services {would}; {why}. {_if_meant(token)}"
    return Blocked(
        ending[0].ref,
        "NeedsConfirmation",
        message,
        ending[0].source,
        ending[0].target,
        tuple(c.ref for c in ending),
        token,
    )


def _is_removal(change: Change) -> bool:
    return change.action is Action.DELETE and change.reason == "Removed"


def _ends_foreign(change: Change, limits: PruneLimits) -> bool:
    """Whether a process that another fleet started ends with it: it was declared here as well, and
    otherwise."""
    if change.ref.label not in limits.foreign or change.is_shown_only:
        return False
    ends = change.action in (Action.DELETE, Action.STOP, Action.REPLACE, Action.MOVE)
    return ends or change.impact.restart is not Restart.NONE
