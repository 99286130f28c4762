"""The memory of this machine: what other processes use of each pool, what our services really take,
and whether one more may start. A figure that cannot be read is None, never 0, and refuses
nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.machine.machine import Machine
from agent.machine.memory_host import Programs, programs
from agent.machine.memory_pools import MemorySnapshot, Ours, Stated, measured, pool_states
from agent.process.launch import Launch, ProcessSnapshot
from reconciler.api.fleetnode import FleetNode
from reconciler.api.quantity import show_bytes
from reconciler.capacity.ledger import Ledger
from reconciler.capacity.pools import MemoryPool
from reconciler.capacity.remedies import Occupancy, freed_by_others, shortfall
from reconciler.core.observation import ObservedPool
from reconciler.fleet.workload import PoolNeed

_PAUSE_S = 10.0
_COST_SHARE = 1 / 250  # of one core: measuring a process walks its pages
# Programs come and go: a smaller use is not news. The check before each start measures again.
_STEADY_BYTES, _STEADY_SHARE = 64 * 2**20, 0.01
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """The machine as it was some seconds ago; `measured` is (pool, bytes) by the pid of a service's
    process."""

    pools: tuple[ObservedPool, ...] = ()
    measured: Mapping[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)

    def measured_of(self, pid: int | None) -> tuple[tuple[str, int], ...]:
        return self.measured.get(pid, ()) if pid is not None else ()


class MachineMemory:
    """The memory of one machine, in the pools that the fleet states of it."""

    def __init__(
        self, machine: Machine | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._machine = machine or Machine()
        self._clock = clock
        self._stated = Stated()
        self._follows = False
        self._last = MachineSnapshot()
        self._next_read = 0.0

    def follow(self, node: FleetNode) -> bool:
        """Take over what the fleet states about this machine; True if that changed."""
        stated = Stated.of(node)
        if self._follows and stated == self._stated:
            return False
        self._follows = True
        self._stated, self._next_read = stated, 0.0
        return True

    def read(self, ours: Ours) -> MachineSnapshot:
        """The state of the machine, measured every ten seconds; less often if that would cost more
        than a 250th of a core."""
        begin = self._clock()
        if begin >= self._next_read:
            seen = self._see(programs(ours))
            fresh = pool_states(seen, self._stated, ours)
            self._last = MachineSnapshot(
                _steadied(self._last.pools, fresh), measured(seen, self._stated, ours)
            )
            end = self._clock()
            self._next_read = end + max(_PAUSE_S, (end - begin) / _COST_SHARE)
        return self._last

    def now(self, ours: Ours) -> tuple[ObservedPool, ...]:
        """The state of every pool at this moment."""
        return pool_states(self._see(programs(ours)), self._stated, ours)

    def budget_lines(self, ours: Ours) -> tuple[str, ...]:
        """The budget of each pool now, with the arithmetic, one line each; and stated memory that
        is missing."""
        seen = self._see(programs(ours))
        states = pool_states(seen, self._stated, ours)
        there = {name: device.total for name, device in seen.devices.items()}
        there |= {self._stated.host: seen.host.total} if seen.host else {}
        return (
            *(_line(state, self._stated.pool(state.name)) for state in states),
            *(
                f"memory: {pool.name}: {show_bytes(pool.total_bytes)} are stated and"
                f" {show_bytes(there[pool.name])} are there: models may be started that do not fit;"
                " fleet-agent probe prints what to state"
                for pool in self._stated.pools
                if pool.total_bytes and there.get(pool.name, pool.total_bytes) < pool.total_bytes
            ),
        )

    def refusal(self, launch: Launch, beside: Sequence[ProcessSnapshot]) -> str | None:
        """Why a process must not be started now, beside the ones that run; None if it may. What a
        plan saw may be outdated, and no plan sees a restart after a crash."""
        if not launch.needs:
            return None
        # The running programs are only needed if it would not fit.
        at_most = pool_states(self._see(Programs({})), self._stated, {})
        if self._over(launch, self._ledger(beside, at_most)) is None:
            return None
        now = self.now(ours_of(beside))
        ledger = self._ledger(beside, now)
        text = self._over(launch, ledger)
        if text is None:
            return None
        if launch.inputs.get("lifecycle", {}).get("memory.mode") == "warn":
            _log.warning(
                "%s: MemoryOverridden: %s; started all the same, by memory.mode: warn",
                launch.ref.label,
                text,
            )
            return None
        ledger.replace(launch.ref, tuple(map(self._today, launch.needs)))
        ways = ["lower what is asked"]
        ways += ["suspend one of them"] if ledger.has_others(launch.ref) else []
        largest = {state.name: state.largest_other for state in now}
        ways += freed_by_others(launch.ref, ledger, largest)
        return f"{text}; {', or '.join(ways)}"

    def _see(self, programs: Programs) -> MemorySnapshot:
        return MemorySnapshot.now(self._machine, self._stated, programs)

    def _ledger(self, beside: Iterable[ProcessSnapshot], states: Iterable[ObservedPool]) -> Ledger:
        """What each service takes. Before the fleet is read it is not known how much of the machine
        is meant for models, so other processes count as nothing."""
        others = {state.name: state.used_by_others_bytes or 0 for state in states}
        return Ledger((state.launch for state in beside), others if self._follows else {})

    def _over(self, launch: Launch, ledger: Ledger) -> str | None:
        pools = tuple(self._pool_of(need) for need in launch.needs)
        return shortfall(launch.needs, Occupancy("", pools, ledger))

    def _today(self, need: PoolNeed) -> PoolNeed:
        """What it was admitted with says the budget of that day."""
        return need._replace(budget_bytes=self._pool_of(need).budget_bytes)

    def _pool_of(self, need: PoolNeed) -> MemoryPool:
        """The pool as it is stated today; before the fleet is read, as it was at admission."""
        at_admission = MemoryPool(need.pool, None, need.budget_bytes, show_bytes(need.budget_bytes))
        return self._stated.pool(need.pool) or at_admission


def ours_of(states: Iterable[ProcessSnapshot]) -> Ours:
    """The processes that there are, with what they were admitted with."""
    return {state.pid: state.launch.needs for state in states if state.pid is not None}


def _steadied(
    before: Iterable[ObservedPool], fresh: Iterable[ObservedPool]
) -> tuple[ObservedPool, ...]:
    """The earlier states, where little has changed: a plan that differs by some bytes in each pass
    is noise."""
    earlier = {state.name: state for state in before}
    return tuple(_steady(earlier.get(state.name), state) for state in fresh)


def _steady(before: ObservedPool | None, fresh: ObservedPool) -> ObservedPool:
    if before is None or before.used_by_others_bytes is None or fresh.used_by_others_bytes is None:
        return fresh
    stated = (fresh.total_bytes, fresh.budget_bytes) == (before.total_bytes, before.budget_bytes)
    moved = abs(fresh.used_by_others_bytes - before.used_by_others_bytes)
    least = max(_STEADY_BYTES, int((fresh.total_bytes or 0) * _STEADY_SHARE))
    return before if stated and moved < least else fresh


def _line(state: ObservedPool, stated: MemoryPool | None) -> str:
    others = state.used_by_others_bytes
    if stated is None:
        return f"memory: {state.name}: no memory is stated for this node, so nothing is refused"
    if others is None:
        return f"memory: {state.name}: {stated.basis}; what others use of it cannot be read"
    free = show_bytes(max(stated.budget_bytes - others, 0))
    return (
        f"memory: {state.name}: {stated.basis} budget, {show_bytes(others)} in use by other"
        f" processes: {free} for models"
    )
