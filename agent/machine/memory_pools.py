"""A measurement of this machine's memory, in the pools that the fleet states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.machine.driver import MeasuredDevice
from agent.machine.machine import Machine
from agent.machine.memory_devices import device_memory, of_stated
from agent.machine.memory_host import HostMemory, Programs, host_memory, measured_bytes, resident
from agent.process.identity import describe
from reconciler.api.fleetnode import FleetNode
from reconciler.api.quantity import show_bytes
from reconciler.capacity.pools import HOST, UNIFIED, MemoryPool, pools
from reconciler.capacity.usage import Use, intrudes, used_by_others
from reconciler.core.observation import ObservedPool
from reconciler.fleet.workload import PoolNeed

Ours = Mapping[int, tuple[PoolNeed, ...]]
"""Each process that we started, by pid, with what it was admitted with."""


@dataclass(frozen=True, slots=True)
class Stated:
    """What the fleet states about this machine's memory; `host` is the pool of its own memory, and
    `devices` are the uuids of device0, device1, ..., where stated."""

    host: str = HOST
    pools: tuple[MemoryPool, ...] = ()
    devices: tuple[str | None, ...] = ()

    @classmethod
    def of(cls, node: FleetNode) -> Stated:
        devices = node.spec.hardware.devices
        own = tuple(device.uuid for device in devices if device.memory != "unified")
        return cls(UNIFIED if devices and not own else HOST, pools(node), own)

    def pool(self, name: str) -> MemoryPool | None:
        return next((pool for pool in self.pools if pool.name == name), None)


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """The machine at one moment. `devices` are by the name of their pool."""

    host: HostMemory | None
    devices: Mapping[str, MeasuredDevice]
    programs: Programs

    @classmethod
    def now(cls, machine: Machine, stated: Stated, programs: Programs) -> MemorySnapshot:
        seen = device_memory(machine) if stated.devices else ()
        devices = {
            f"device{index}": device
            for index, uuid in enumerate(stated.devices)
            if (device := of_stated(seen, uuid, index))
        }
        return cls(host_memory(machine.root), devices, programs)


def pool_states(seen: MemorySnapshot, stated: Stated, ours: Ours) -> tuple[ObservedPool, ...]:
    """Every pool, with how far other processes use what is stated of it."""
    devices = (pool for pool in stated.pools if pool.name != stated.host)
    return (_host(seen, stated, ours), *(_device(seen, pool, ours) for pool in devices))


def measured(
    seen: MemorySnapshot, stated: Stated, ours: Ours
) -> dict[int, tuple[tuple[str, int], ...]]:
    """What each of our processes really takes, with its children: (pool, bytes) by pid."""
    return {pid: tuple(_measured(seen, stated.host, pid)) for pid in ours}


def _host(seen: MemorySnapshot, stated: Stated, ours: Ours) -> ObservedPool:
    name, pool, host = stated.host, stated.pool(stated.host), seen.host
    total = pool.total_bytes if pool else None
    budget = pool.budget_bytes if pool else None
    if host is None:
        return ObservedPool(name, total, budget, None)
    uses = [_resident(_needed(needs, name), seen.programs.of(pid)) for pid, needs in ours.items()]
    # A stated budget without a stated memory is itself the memory that is meant for models.
    stands_for = total if total is not None else budget
    others = intrudes(used_by_others(host.in_use, uses), host.total, stands_for)
    return ObservedPool(name, total or host.total, budget, others, seen.programs.largest_other)


def _device(seen: MemorySnapshot, pool: MemoryPool, ours: Ours) -> ObservedPool:
    device = seen.devices.get(pool.name)
    if device is None or device.by_pid is None:
        return ObservedPool(pool.name, pool.total_bytes, pool.budget_bytes, None)
    uses = []
    for pid, needs in ours.items():
        used = sum(device.by_pid.get(member, 0) for member in seen.programs.of(pid))
        uses.append(Use(_needed(needs, pool.name), used, used))
    others = intrudes(used_by_others(device.used, uses), device.total, pool.total_bytes)
    named = _largest_on(device.by_pid, seen.programs)
    return ObservedPool(pool.name, pool.total_bytes, pool.budget_bytes, others, named)


def _measured(seen: MemorySnapshot, host: str, pid: int) -> Iterator[tuple[str, int]]:
    tree = seen.programs.of(pid)
    sizes = [size for member in tree if (size := measured_bytes(member)) is not None]
    if sizes:
        yield host, sum(sizes)
    for name, device in seen.devices.items():
        used = [device.by_pid[m] for m in tree if m in device.by_pid] if device.by_pid else []
        if used:
            yield name, sum(used)


def _needed(needs: Iterable[PoolNeed], pool: str) -> int:
    return sum(need.bytes for need in needs if need.pool == pool)


def _resident(needed: int, tree: Iterable[int]) -> Use:
    parts = [part for pid in tree if (part := resident(pid))]
    return Use(needed, sum(part.total for part in parts), sum(part.fixed for part in parts))


def _largest_on(by_pid: Mapping[int, int], programs: Programs) -> str:
    """The largest program on a device that is not ours, for messages."""
    ours = {pid for tree in programs.trees.values() for pid in tree}
    foreign = {pid: size for pid, size in by_pid.items() if pid not in ours and size}
    if not foreign:
        return ""
    largest = max(foreign, key=lambda pid: foreign[pid])
    return f"{describe(largest)}, {show_bytes(foreign[largest])}"
