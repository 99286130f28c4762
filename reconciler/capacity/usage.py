"""The measured memory of processes compared with their estimates. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reconciler.fleet.workload import PoolNeed


@dataclass(frozen=True, slots=True)
class Use:
    """The measured memory of one of our services in a pool, in bytes.

    `measured` is all of it, with its share of mapped files; `fixed` is the part that the machine
    counts as in use: the kernel can drop a mapped file's pages and read them again, so it counts
    them as available. `needed` is the estimate, 0 if there is none.
    """

    needed: int
    measured: int
    fixed: int


def used_by_others(in_use: int, ours: Iterable[Use]) -> int:
    """Bytes in use on a pool that no estimate accounts for.

    A service counts as ours only up to its estimate: what it takes beyond that is not set aside,
    like the memory of other processes.
    """
    return max(in_use - sum(_within(use) for use in ours), 0)


def intrudes(others: int, total: int, stated: int | None) -> int:
    """How far other processes use memory that the fleet states as its own, of a pool of `total`
    bytes.

    A statement below the machine's total has set the rest aside for them already.
    """
    aside = max(total - stated, 0) if stated is not None else 0
    return max(others - aside, 0)


def deviation(
    needs: Iterable[PoolNeed],
    measured: Iterable[tuple[str, int]],
    sharers: Mapping[tuple[str, str], int] | None = None,
) -> float | None:
    """The relative difference between measurement and estimate: 0.02 is 2 % more.

    Over the pools for which both are known; None if there is none. A file that several processes
    map is measured in equal parts, so `sharers` (see below) has their number. Meaningful once the
    service has answered requests: buffers are touched late (right after loading a process takes
    10-60 MiB less, llama.cpp b11434), and a prompt cache fills with use.
    """
    by_pool = dict(measured)
    known = [need for need in needs if need.pool in by_pool]
    expected = sum(_share(need, sharers or {}) for need in known)
    if not expected:
        return None
    return sum(by_pool[pool] for pool in {need.pool for need in known}) / expected - 1


def sharers(tenants: Iterable[Iterable[PoolNeed]]) -> Mapping[tuple[str, str], int]:
    """(pool, file) -> how many of these processes map it."""
    return Counter(
        (need.pool, file) for needs in tenants for need in needs for file, _ in need.weights
    )


def _within(use: Use) -> int:
    beyond = max(use.measured - use.needed, 0)
    return max(use.fixed - beyond, 0)


def _share(need: PoolNeed, sharers: Mapping[tuple[str, str], int]) -> float:
    mapped = sum(size for _, size in need.weights)
    return (need.bytes - mapped) + sum(
        size / max(sharers.get((need.pool, file), 1), 1) for file, size in need.weights
    )
