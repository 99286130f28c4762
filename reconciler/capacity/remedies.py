"""Why a service does not fit a node's memory, with the arithmetic, and what would fit. Pure.

Every remedy is tried by estimating again: one that is offered fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.api.meta import ObjectRef
from reconciler.api.quantity import show_bytes
from reconciler.capacity.estimates import Estimates
from reconciler.capacity.ledger import Ledger
from reconciler.capacity.pools import Pool, needs
from reconciler.memory import CACHE_TYPES, MemorySettings, ModelFacts
from reconciler.workload import PoolNeed

SMALLEST_CONTEXT = 512
_SMALLER_CACHE = "q8_0"
_SMALLEST_QUANTISATION = 8  # a file of two bits a weight is an eighth of one of sixteen


@dataclass(frozen=True, slots=True)
class Room:
    """A node as one service finds it: the pools with their budgets, and who is there already."""

    node: str
    pools: tuple[Pool, ...]
    taken: Ledger = field(default_factory=lambda: Ledger(()))


@dataclass(frozen=True, slots=True)
class Request:
    """One process of one model. `file` names its weights (sha256 or source), to share them."""

    facts: ModelFacts
    settings: MemorySettings
    file: str | None = None
    estimates: Estimates = field(default_factory=Estimates, compare=False, repr=False)

    def needs_in(self, room: Room) -> tuple[PoolNeed, ...]:
        answer = self.estimates.of(self.facts, self.settings)
        return needs(answer, self.settings, room.pools, self.facts.block_count, self.file)


def refusal(request: Request, room: Room, elsewhere: Sequence[Room] = ()) -> str | None:
    """Why one model does not fit the room, and what would; None when it fits.

    `elsewhere` are the rooms on other nodes that could take the service.
    """
    reason = shortfall(request.needs_in(room), room)
    if reason is None:
        return None
    offers = [*_remedies(request, room), *_other_nodes(request, elsewhere)]
    return f"{reason}; {'; or '.join(offers) or 'nothing smaller of it fits here'}"


def shortfall(wanted: Sequence[PoolNeed], room: Room) -> str | None:
    """The arithmetic of the first pool that is too small for `wanted`; None when all fit."""
    for need in wanted:
        pool = next((pool for pool in room.pools if pool.name == need.pool), None)
        taken = room.taken.taken_bytes(need.pool)
        in_use = room.taken.used_by_others(need.pool)
        more = room.taken.more_bytes(need)
        if pool is not None and taken + in_use + more > pool.budget_bytes:
            free = max(pool.budget_bytes - taken - in_use, 0)
            by_others = f", {show_bytes(in_use)} in use by others" if in_use else ""
            return (
                f"needs {show_bytes(more)} of {pool.name}, {show_bytes(free)} are free"
                f" ({pool.basis} budget{_taken_by(room, pool.name, taken)}{by_others})"
            )
    return None


def freed_by_others(ref: ObjectRef, ledger: Ledger, largest: Mapping[str, str]) -> Iterator[str]:
    """What others would have to give back for `ref`, which the ledger holds, where that alone would
    be enough; `largest` names the largest of them a pool."""
    need = ledger.too_small(ref)
    assert need is not None, "it fits"
    in_use = ledger.used_by_others(need.pool)
    missing = ledger.taken_bytes(need.pool) + in_use - need.budget_bytes
    if missing <= in_use:
        named = largest.get(need.pool)
        yield f"free {show_bytes(missing)} of what others use there" + (
            f" (the largest: {named})" if named else ""
        )


def _taken_by(room: Room, pool: str, taken: int) -> str:
    tenants = room.taken.tenants(pool)
    if not tenants:
        return ""
    shown = ", ".join(ref.label for ref in tenants[:4])
    shown += f" and {len(tenants) - 4} more" if len(tenants) > 4 else ""
    return f", {show_bytes(taken)} taken by {shown}"


def _remedies(request: Request, room: Room) -> Iterator[str]:
    """What fits with one setting changed, the largest of each kind; else with several changed."""
    found = False
    for steps in _single_steps(request.settings):
        for words, settings in steps:
            changed = replace(request, settings=settings)
            if shortfall(changed.needs_in(room), room) is None:
                yield f"{words} fits ({_total(changed)})"
                found = True
                break
    if not found:
        for words, settings in _combined(request.settings):
            changed = replace(request, settings=settings)
            if shortfall(changed.needs_in(room), room) is None:
                yield f"{words} fit together ({_total(changed)})"
                break
    yield from _quantisation(request, room)


Step = tuple[str, MemorySettings]


def _single_steps(settings: MemorySettings) -> Iterator[Iterator[Step]]:
    """For each setting the smaller values to try, the nearest first."""
    yield (
        (f"contextSize: {size}", replace(settings, context=size))
        for size in _halves(settings.context, SMALLEST_CONTEXT)
    )
    if cache := _small_cache(settings):
        yield iter([cache])
    yield (
        (f"parallelSlots: {count}", replace(settings, slots=count))
        for count in _halves(settings.slots, 1)
    )
    if settings.prompt_cache_bytes:
        yield iter([("promptCache: 0", replace(settings, prompt_cache_bytes=0))])


def _combined(settings: MemorySettings) -> Iterator[Step]:
    """No prompt cache, a small cache type and one slot, with smaller and smaller contexts."""
    words, start = [], settings
    if settings.prompt_cache_bytes:
        words, start = ["promptCache: 0"], replace(start, prompt_cache_bytes=0)
    if cache := _small_cache(start):
        words, start = [*words, cache[0]], cache[1]
    if settings.slots > 1:
        words, start = [*words, "parallelSlots: 1"], replace(start, slots=1)
    if len(words) > 1:
        yield ", ".join(words), start
    for size in _halves(settings.context, SMALLEST_CONTEXT) if words else ():
        yield ", ".join([f"contextSize: {size}", *words]), replace(start, context=size)


def _small_cache(settings: MemorySettings) -> Step | None:
    """Keys and values in eight bits; llama.cpp quantises values only with flash attention."""
    eight = _bits(_SMALLER_CACHE)
    types = (settings.cache_type_k, settings.cache_type_v)
    if not settings.flash_attention or all(_bits(each) <= eight for each in types):
        return None
    key, value = (_SMALLER_CACHE if _bits(each) > eight else each for each in types)
    words = f"cacheTypeK: {key} with cacheTypeV: {value}"
    return words, replace(settings, cache_type_k=key, cache_type_v=value)


def _bits(cache_type: str) -> float:
    block, size = CACHE_TYPES.get(cache_type, (1, 4))
    return 8 * size / block


def _halves(value: int, smallest: int) -> Iterator[int]:
    while (value := value // 2) >= smallest:
        yield value


def _quantisation(request: Request, room: Room) -> Iterator[str]:
    """The largest weights, in steps of a twentieth, with which the same settings fit."""
    facts = request.facts
    for part in range(19, 0, -1):
        size = facts.weights_bytes * part // 20
        if size * _SMALLEST_QUANTISATION < facts.weights_bytes:
            return
        repackable = facts.repackable_bytes * part // 20
        smaller = replace(facts, weights_bytes=size, repackable_bytes=repackable)
        tried = replace(request, facts=smaller, file=None, estimates=Estimates())
        if shortfall(tried.needs_in(room), room) is None:
            yield (
                f"a smaller quantisation fits, with weights of {show_bytes(size)} at most"
                f" (they are {show_bytes(facts.weights_bytes)})"
            )
            return


def _other_nodes(request: Request, elsewhere: Sequence[Room]) -> Iterator[str]:
    names = [room.node for room in elsewhere if _fits_in(request, room)]
    if names:
        yield f"node {' or '.join(names[:3])} has room"


def _fits_in(request: Request, room: Room) -> bool:
    wanted = request.needs_in(room)
    return bool(wanted) and shortfall(wanted, room) is None


def _total(request: Request) -> str:
    return show_bytes(request.estimates.of(request.facts, request.settings).total_bytes)
