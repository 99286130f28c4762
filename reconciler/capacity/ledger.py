"""What the services of one node take of its memory pools, change by change. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Protocol

from reconciler.api.meta import ObjectRef
from reconciler.api.quantity import show_bytes
from reconciler.capacity.pools import spelled
from reconciler.fleet.workload import PoolNeed

Needs = tuple[PoolNeed, ...]
_SHOWN = 4  # neighbours named in a refusal


@dataclass(frozen=True, slots=True)
class MemoryImpact:
    """A pool of the node with all its services. Bytes; None where a part is not known."""

    pool: str
    before_bytes: int | None
    after_bytes: int | None
    peak_bytes: int | None
    budget_bytes: int | None


class Tenant(Protocol):
    """Anything that takes memory under a ref: an Instance, a Workload."""

    @property
    def ref(self) -> ObjectRef: ...
    @property
    def needs(self) -> Needs: ...


class Ledger:
    """The memory that each service takes. A model file that several processes map is counted once
    per pool.

    Tenants are listed in the order in which they were added. `others` is what other processes use
    of each pool, as measured.
    """

    def __init__(
        self, tenants: Iterable[Tenant], others: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self._others = others
        self._needs: dict[ObjectRef, Needs] = {}
        self._tenants: dict[str, dict[ObjectRef, int]] = {}  # pool -> bytes of each service
        self._beside: Counter[str] = Counter()  # pool -> bytes that are not shared
        self._files: dict[tuple[str, str], Counter[int]] = {}  # (pool, file) -> sizes in use
        self._shared: Counter[str] = Counter()  # pool -> bytes of shared files
        self._last: tuple[ObjectRef, Needs] | None = None
        for tenant in tenants:
            self._put(tenant.ref, tenant.needs)

    def taken_bytes(self, pool: str) -> int:
        """Bytes that all services together take of the pool."""
        return self._beside[pool] + self._shared[pool]

    def used_by_others(self, pool: str) -> int:
        """Bytes of the pool that other processes use; 0 if unknown."""
        return self._others.get(pool, 0)

    def without(self, ref: ObjectRef) -> Ledger:
        """The same node without one service."""
        ledger = Ledger((), self._others)
        for tenant, needs in self._needs.items():
            if tenant != ref:
                ledger._put(tenant, needs)
        return ledger

    def more_bytes(self, need: PoolNeed) -> int:
        """Bytes that one more process would add to its pool: a file that is already mapped adds
        nothing."""
        files: dict[str, int] = {}
        for file, size in need.weights:
            files[file] = max(files.get(file, 0), size)
        beside = need.bytes - sum(size for _, size in need.weights)
        return beside + sum(
            max(size - self._mapped(need.pool, file), 0) for file, size in files.items()
        )

    def tenants(self, pool: str) -> Sequence[ObjectRef]:
        """The services that take memory of the pool, in the order in which they were added."""
        return tuple(self._tenants.get(pool, ()))

    def needs_of(self, ref: ObjectRef) -> Needs:
        """What `ref` takes now; empty if nothing."""
        return self._needs.get(ref, ())

    def files(self, pool: str, ref: ObjectRef) -> tuple[str, ...]:
        """The shared files that a service uses there."""
        needs = self._needs.get(ref, ())
        return tuple(file for need in needs if need.pool == pool for file, _ in need.weights)

    def replace(self, ref: ObjectRef, needs: Needs) -> tuple[MemoryImpact, ...]:
        """Set what `ref` takes to `needs`; empty needs remove it."""
        before_needs = self._needs.get(ref, ())
        pools = sorted({need.pool for need in (*before_needs, *needs)})
        budgets = {need.pool: need.budget_bytes for need in (*before_needs, *needs)}
        before = {pool: self.taken_bytes(pool) for pool in pools}
        self._last = (ref, before_needs)
        self._put(ref, needs)
        after = {pool: self.taken_bytes(pool) for pool in pools}
        return tuple(
            MemoryImpact(
                pool, before[pool], after[pool], max(before[pool], after[pool]), budgets[pool]
            )
            for pool in pools
        )

    def undo(self) -> None:
        """Undo the last `replace`."""
        if self._last is not None:
            self._put(*self._last)
            self._last = None

    def fits(self, ref: ObjectRef) -> bool:
        """Whether the pools that `ref` uses are large enough for all."""
        return self.too_small(ref) is None

    def over_budget(self, ref: ObjectRef) -> str | None:
        """Why the pools that `ref` uses are too small for all, with the arithmetic; else None."""
        need = self.too_small(ref)
        if need is None:
            return None
        needed, budget = show_bytes(need.bytes), show_bytes(need.budget_bytes)
        count, in_use = len(self._tenants[need.pool]) - 1, self.used_by_others(need.pool)
        if not count and not in_use:
            return f"needs {needed} of {spelled(need.pool)}, which has a budget of {budget}"
        # A few names are enough; the full list would be as long as the fleet.
        first = islice(self._tenants[need.pool].items(), _SHOWN + 1)
        shown = [f"{other.label} {show_bytes(size)}" for other, size in first if other != ref]
        others = ", ".join(shown[:_SHOWN]) + (f" and {count - _SHOWN} more" * (count > _SHOWN))
        by_others = f"{show_bytes(in_use)} in use by other processes" if in_use else ""
        there = " and ".join(filter(None, (others, by_others)))
        taken = show_bytes(self.taken_bytes(need.pool) + in_use)
        return f"needs {needed} of {spelled(need.pool)}; with {there} that is {taken} of {budget}"

    def has_others(self, ref: ObjectRef) -> bool:
        """Whether other services use the pool that `over_budget` is about."""
        need = self.too_small(ref)
        return need is not None and len(self._tenants[need.pool]) > 1

    def too_small(self, ref: ObjectRef) -> PoolNeed | None:
        """The need of `ref` on the first pool that is too small for all; None if all are large
        enough."""
        for need in self._needs.get(ref, ()):
            if self.taken_bytes(need.pool) + self.used_by_others(need.pool) > need.budget_bytes:
                return need
        return None

    def _mapped(self, pool: str, file: str) -> int:
        """Bytes of the file that are in use: the largest part that any process maps."""
        sizes = self._files.get((pool, file))
        return max(+sizes, default=0) if sizes else 0

    def _put(self, ref: ObjectRef, needs: Needs) -> None:
        for need in self._needs.pop(ref, ()):
            self._count(need, -1)
            self._tenants[need.pool].pop(ref, None)
        for need in needs:
            self._count(need, +1)
            theirs = self._tenants.setdefault(need.pool, {})
            theirs[ref] = theirs.get(ref, 0) + need.bytes
        if needs:
            self._needs[ref] = needs

    def _count(self, need: PoolNeed, sign: int) -> None:
        self._beside[need.pool] += sign * (need.bytes - sum(size for _, size in need.weights))
        for file, size in need.weights:
            sizes = self._files.setdefault((need.pool, file), Counter())
            before = max(+sizes, default=0)
            sizes[size] += sign
            self._shared[need.pool] += max(+sizes, default=0) - before
