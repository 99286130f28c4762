"""What the services of one node take of its memory pools, change by change. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from reconciler.api.meta import ObjectRef
from reconciler.api.quantity import show_bytes
from reconciler.workload import PoolNeed

Needs = tuple[PoolNeed, ...]


@dataclass(frozen=True, slots=True)
class MemoryImpact:
    """A pool of the node, all its services together. Bytes; None where a part is not known."""

    pool: str
    before_bytes: int | None
    after_bytes: int | None
    peak_bytes: int | None
    budget_bytes: int | None


class Tenant(Protocol):
    """Anything that takes memory under a name: an Instance, a Workload."""

    @property
    def ref(self) -> ObjectRef: ...
    @property
    def needs(self) -> Needs: ...


class Ledger:
    """Who takes what. A model file that several processes map is counted once per pool."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._needs: dict[ObjectRef, Needs] = {}
        self._beside: Counter[str] = Counter()  # pool -> bytes that are nobody else's
        self._files: dict[tuple[str, str], Counter[int]] = {}  # (pool, file) -> sizes in use
        self._shared: Counter[str] = Counter()  # pool -> bytes of shared files
        self._last: tuple[ObjectRef, Needs] | None = None
        for tenant in tenants:
            self._put(tenant.ref, tenant.needs)

    def taken_bytes(self, pool: str) -> int:
        """Bytes that all services together take of the pool."""
        return self._beside[pool] + self._shared[pool]

    def replace(self, ref: ObjectRef, needs: Needs) -> tuple[MemoryImpact, ...]:
        """Let `ref` take `needs` instead of what it takes now; empty needs remove it."""
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
        """Take the last `replace` back."""
        if self._last is not None:
            self._put(*self._last)
            self._last = None

    def over_budget(self, ref: ObjectRef) -> str | None:
        """Why the pools that `ref` uses are too small for all, with the arithmetic; else None."""
        for need in self._needs.get(ref, ()):
            taken = self.taken_bytes(need.pool)
            if taken > need.budget_bytes:
                others = ", ".join(
                    f"{other.label} {show_bytes(theirs.bytes)}"
                    for other, all_needs in sorted(self._needs.items())
                    for theirs in all_needs
                    if theirs.pool == need.pool and other != ref
                )
                return (
                    f"needs {show_bytes(need.bytes)} of {need.pool}; with {others} that is"
                    f" {show_bytes(taken)} of {show_bytes(need.budget_bytes)}"
                )
        return None

    def _put(self, ref: ObjectRef, needs: Needs) -> None:
        for need in self._needs.pop(ref, ()):
            self._count(need, -1)
        for need in needs:
            self._count(need, +1)
        if needs:
            self._needs[ref] = needs

    def _count(self, need: PoolNeed, sign: int) -> None:
        self._beside[need.pool] += sign * (need.bytes - sum(size for _, size in need.weights))
        for file, size in need.weights:
            sizes = self._files.setdefault((need.pool, file), Counter())
            before = max(+sizes, default=0)
            sizes[size] += sign
            self._shared[need.pool] += max(+sizes, default=0) - before
