"""Removals: how many may go at once, and the word that releases more. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.api.digest import digest
from reconciler.api.fleet import Prune
from reconciler.core.observation import Observation
from reconciler.core.plan import ENDED, Action, Blocked, Change, Restart

_LEAST = 4  # fewer are never a large share of a fleet
_SEVERAL = 2  # a target that has this many is not left without any unasked
_UNSTATED = Prune.model_construct()


@dataclass(frozen=True, slots=True)
class SinceApplied:
    """What became of the fleet since the revision that a target applied last: the names of the
    services that are no longer declared, how many were, and the names of those that were not."""

    gone: frozenset[str]
    total: int
    new: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PruneLimits:
    """The Fleet's limits, and the tokens that were confirmed. `foreign` says of services that
    another fleet started where it is: to remove or replace one of them has to be confirmed.
    `since` is by target, where its last revision is known."""

    max_count: int = _UNSTATED.max_count
    max_share: float = _UNSTATED.max_share
    confirmed: frozenset[str] = frozenset()
    foreign: Mapping[str, str] = field(default_factory=dict)
    are_lower: bool = False  # than what this revision states, since it raises them
    since: Mapping[str, SinceApplied] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Before:
    """What the revision that was applied last has to do with removals: its limits, the services
    and the nodes that it declared, None where there is none, and `foreign` as in PruneLimits."""

    foreign: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[int, float] | None = None
    services: frozenset[str] | None = None
    nodes: frozenset[str] = frozenset()
    revision: str | None = None


def limits_of(
    max_count: int,
    max_share: float,
    before: Before,
    confirmed: Collection[str],
    since: Mapping[str, SinceApplied],
) -> PruneLimits:
    """A revision's own limits, unless the one before has lower ones: the commit that removes, or
    loses the Fleet document itself, raises nothing for its own removals."""
    count, share = before.limits or (max_count, max_share)
    count, share = min(count, max_count), min(share, max_share)
    lower = (count, share) != (max_count, max_share)
    return PruneLimits(count, share, frozenset(confirmed), before.foreign, lower, since)


def prune_token(removals: Collection[Change]) -> str:
    """The word that releases exactly these removals (or replacements) and no others."""
    return "prune-" + digest(sorted([c.target, *c.ref] for c in removals))[:8]


def guard_removals(
    changes: list[Change], observed: Observation, limits: PruneLimits
) -> tuple[list[Change], list[Blocked]]:
    """Hold back removals beyond the Fleet's limits, removals of all services of a target that has
    several, whatever would end what another fleet started, and what a drained node would stop,
    until their token is confirmed.

    An agent sees its own node, a plan for all nodes sees each of them. Both count the whole fleet,
    by the revisions alone: what was declared when the target applied one last, and is no longer.
    """
    changes, blocked = _guard_drained([_placed(c, limits) for c in changes], limits)
    theirs = [c for c in changes if _ends(c) and c.ref.label in limits.foreign]
    own = [c for c in changes if _is_removal(c) and c.ref.label not in limits.foreign]
    staying: list[Change] = []
    if theirs and (stuck := guard(theirs, _running(observed), limits)):
        blocked.append(stuck)
        staying += theirs
    emptied = _emptied(changes, observed, limits) if own else set()
    for token, together in _together(own, observed, limits).items():
        if token in limits.confirmed:
            continue
        if unconfirmed := _unconfirmed(together, token, limits):
            blocked.append(unconfirmed)
            staying += together.removals
            continue
        for target in sorted({c.target for c in together.removals} & emptied):
            all_there = [c for c in together.removals if c.target == target]
            if len(all_there) >= _SEVERAL:
                blocked.append(_unconfirmed_end(all_there, token))
                staying += all_there
    stays = {(c.target, c.ref) for c in staying}
    kept = [c for c in changes if (c.target, c.ref) not in stays] if stays else changes
    return kept, blocked


def _running(observed: Observation) -> int:
    """How many services run, on all targets."""
    return len({(i.target, i.ref) for i in observed.instances})


@dataclass(slots=True)
class _Together:
    """Removals on targets for which the same services of the fleet go."""

    since: SinceApplied
    removals: list[Change]


def _together(
    removals: list[Change], observed: Observation, limits: PruneLimits
) -> dict[str, _Together]:
    """By their token, which targets that applied the same revision last share."""
    groups: dict[str, _Together] = {}
    unknown = [c for c in removals if c.target not in limits.since]
    for target in sorted({c.target for c in removals}):
        here = [c for c in removals if c.target == target]
        known = limits.since.get(target) or _as_seen(unknown, observed, limits)
        labels = {c.ref.label for c in here}  # also of one that an earlier revision left behind
        since = SinceApplied(known.gone | labels, known.total + len(labels - known.gone))
        together = groups.setdefault(removal_token(since.gone), _Together(since, []))
        together.removals += here
    return groups


def _emptied(changes: list[Change], observed: Observation, limits: PruneLimits) -> set[str]:
    """Return the targets that keep none of their services. A service that is placed there by the
    changes is kept, unless this revision adds it to the fleet: a rename replaces all of them."""
    going = {(c.target, c.ref) for c in changes if _is_removal(c)}
    there = {(i.target, i.ref) for i in observed.instances} | {(c.target, c.ref) for c in changes}
    new = {target: since.new for target, since in limits.since.items()}
    keeping = {target for target, ref in there - going if ref.label not in new.get(target, ())}
    return {target for target, _ in going} - keeping


def _unconfirmed_end(all_there: Sequence[Change], token: str) -> Blocked:
    """Return the question about the removals of all services of one target."""
    first, refs = all_there[0], tuple(change.ref for change in all_there)
    message = (
        f"all {len(refs)} services of {first.target.replace('/', ' ')} would stop."
        f" {_if_meant(token)}"
    )
    return Blocked(first.ref, "NeedsConfirmation", message, first.source, first.target, refs, token)


def _unconfirmed(together: _Together, token: str, limits: PruneLimits) -> Blocked | None:
    """Why these have to be confirmed; None: they have not."""
    count, total, going = len(together.since.gone), together.since.total, together.removals
    large = count >= _LEAST and count > limits.max_share * total
    if count <= limits.max_count and not large:
        return None
    refs = tuple(dict.fromkeys(c.ref for c in going))
    part = "" if len(refs) == count else f", {len(refs)} of them here"
    message = (
        f"{count} of {total} services of this fleet would stop{part}; {_limits_text(limits)}."
        f" {_if_meant(token)}"
    )
    first, targets = going[0], {c.target for c in going}
    target = first.target if len(targets) == 1 else None
    return Blocked(first.ref, "NeedsConfirmation", message, first.source, target, refs, token)


def _as_seen(unknown: list[Change], observed: Observation, limits: PruneLimits) -> SinceApplied:
    """Where no last revision is known: by what runs there and on others of which none is known."""
    there = {i.ref.label for i in observed.instances if i.target not in limits.since}
    return SinceApplied(frozenset(c.ref.label for c in unknown), len(there))


def removal_token(labels: Collection[str]) -> str:
    """The word that releases the end of exactly these services of a fleet, on every node."""
    return "prune-" + digest(sorted(labels))[:8]


def _limits_text(limits: PruneLimits) -> str:
    text = (
        f"the limits are {limits.max_count} services, and {limits.max_share:.0%} of all where"
        f" {_LEAST} or more would go"
    )
    return f"{text}, as before: higher ones count once this is done" if limits.are_lower else text


def _placed(change: Change, limits: PruneLimits) -> Change:
    """Without the place of a removal that another fleet declared: it is in no file of this one."""
    is_foreign = _is_removal(change) and change.ref.label in limits.foreign
    return replace(change, source=None) if is_foreign else change


def _guard_drained(
    changes: list[Change], limits: PruneLimits
) -> tuple[list[Change], list[Blocked]]:
    """What has nowhere to go from a drained node. Each node has a token of its own, which its agent
    gives as well as the reconciler that plans for all nodes."""
    kept, blocked = [c for c in changes if c.reason != "NodeDrained"], []
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
        blocked.append(
            Blocked(stop.ref, "NeedsConfirmation", message, stop.source, target, refs, token)
        )
    return kept, blocked


def _if_meant(token: str) -> str:
    return f"If that is meant, commit `confirm: [{token}]` to the Fleet or add --confirm {token}"


def guard(ending: Sequence[Change], total: int, limits: PruneLimits) -> Blocked | None:
    """Why the end of these, of `total` services, has to be confirmed; None: it has not."""
    removals = sum(map(_is_removal, ending))
    many = removals > limits.max_count
    large = removals >= _LEAST and removals > limits.max_share * total
    foreign = sorted({limits.foreign[c.ref.label] for c in ending if c.ref.label in limits.foreign})
    token = prune_token(ending)
    if not (many or large or foreign) or token in limits.confirmed:
        return None
    would = "would stop" if removals == len(ending) else "would stop or be replaced"
    why = _limits_text(limits)
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


def _ends(change: Change) -> bool:
    """Whether a process ends with it: of one that another fleet started also where it is declared
    here as well, and otherwise."""
    if change.is_shown_only:
        return False
    if change.reason in ENDED:
        return False  # it has ended by itself
    ends = change.action in (Action.DELETE, Action.STOP, Action.REPLACE, Action.MOVE)
    return ends or change.impact.restart is not Restart.NONE
