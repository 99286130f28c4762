"""Why a service does not fit a node's memory, with the arithmetic, and what would fit. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.api.meta import ObjectRef
from reconciler.api.quantity import show_bytes
from reconciler.capacity.ledger import Ledger
from reconciler.capacity.pools import MemoryPool, spelled
from reconciler.capacity.smaller import Asked, offers
from reconciler.fleet.workload import PoolNeed


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A node from the point of view of one service: the pools with their budgets, and the services
    already there."""

    node: str
    pools: tuple[MemoryPool, ...]
    taken: Ledger = field(default_factory=lambda: Ledger(()))


def refusal(asked: Asked, room: Occupancy, elsewhere: Sequence[Occupancy] = ()) -> str | None:
    """Why a service does not fit, and what would; None if it fits.

    `elsewhere` are the other nodes that could take the service.
    """
    reason = shortfall(asked.needs_in(room.pools), room)
    if reason is None:
        return None
    smaller = offers(asked, lambda tried: shortfall(tried.needs_in(room.pools), room) is None)
    ways = [*smaller, *_other_nodes(asked, elsewhere)]
    return f"{reason}; {'; or '.join(ways) or 'nothing smaller of it fits here'}"


def shortfall(wanted: Sequence[PoolNeed], room: Occupancy) -> str | None:
    """The arithmetic of the first pool that is too small for `wanted`; None if all fit."""
    for need in wanted:
        pool = next((pool for pool in room.pools if pool.name == need.pool), None)
        taken = room.taken.taken_bytes(need.pool)
        in_use = room.taken.used_by_others(need.pool)
        more = room.taken.more_bytes(need)
        if pool is not None and taken + in_use + more > pool.budget_bytes:
            free = max(pool.budget_bytes - taken - in_use, 0)
            by_others = f", {show_bytes(in_use)} in use by other processes" if in_use else ""
            return (
                f"needs {show_bytes(more)} of {spelled(pool.name)}, {show_bytes(free)} are free"
                f" ({pool.basis} budget{_taken_by(room, pool.name, taken)}{by_others})"
            )
    return None


def freed_by_others(ref: ObjectRef, ledger: Ledger, largest: Mapping[str, str]) -> Iterator[str]:
    """What other processes would have to free for `ref`, which is in the ledger, if that alone
    would be enough; `largest` names the largest of them per pool."""
    need = ledger.too_small(ref)
    assert need is not None, "it fits"
    in_use = ledger.used_by_others(need.pool)
    missing = ledger.taken_bytes(need.pool) + in_use - need.budget_bytes
    if missing <= in_use:
        named = largest.get(need.pool)
        yield f"free {show_bytes(missing)} of what others use there" + (
            f" (the largest: {named})" if named else ""
        )


def _taken_by(room: Occupancy, pool: str, taken: int) -> str:
    tenants = room.taken.tenants(pool)
    if not tenants:
        return ""
    shown = ", ".join(ref.label for ref in tenants[:4])
    shown += f" and {len(tenants) - 4} more" if len(tenants) > 4 else ""
    return f", {show_bytes(taken)} taken by {shown}"


def _other_nodes(asked: Asked, elsewhere: Sequence[Occupancy]) -> Iterator[str]:
    names = [room.node for room in elsewhere if _fits_in(asked, room)]
    if names:
        yield f"node {' or '.join(names[:3])} has room"


def _fits_in(asked: Asked, room: Occupancy) -> bool:
    wanted = asked.needs_in(room.pools)
    return bool(wanted) and shortfall(wanted, room) is None
