"""Devices that pods have a part of: slices (MIG), and devices that several share in turns. Pure.

A slice is a device of its own, with memory of its own. What shares a device in turns shares its
memory, which nothing divides: whatever Kubernetes may put together there has to fit together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.vendors import GPU_RESOURCES, slice_bytes
from reconciler.capacity.pools import MemoryPool, device_pool

_STRATEGY, _REPLICAS = "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas"
_SHARED = frozenset(f"{name}.shared" for name in GPU_RESOURCES)  # as plugins may rename them
_IN_TURNS = "time-slicing"


def sliced(
    known: Sequence[MemoryPool], node: FleetNode, service: InferenceService
) -> tuple[MemoryPool, ...]:
    """The pools of a pod: where it asks for a slice, that takes the place of the devices."""
    size = _slice_of(node, service)
    if size is None:
        return tuple(known)
    name, total = size
    made = (
        device_pool(i, total, node.spec.memory.devices.fraction)
        for i in range(max(service.spec.devices, 1))
    )
    machine = (pool for pool in known if not pool.name.startswith("device"))
    return (*machine, *(replace(pool, basis=f"{name}: {pool.basis}") for pool in made))


def asks_for_slice(node: FleetNode, service: InferenceService) -> bool:
    return _slice_of(node, service) is not None


def sharers(node: FleetNode, service: InferenceService) -> int | None:
    """How many pods may be on one device with that of a service, itself among them; None: nobody
    says how many."""
    pool = node.spec.kubernetes
    if pool is None or asks_for_slice(node, service):
        return 1
    if stated := replicas(node):
        return stated
    in_turns = pool.node_selector.get(_STRATEGY) == _IN_TURNS
    return None if in_turns or not _SHARED.isdisjoint(_asked(service)) else 1


def replicas(node: FleetNode) -> int | None:
    """How many pods may share each device of the pool; None: not stated."""
    pool = node.spec.kubernetes
    if pool is None:
        return None
    text = pool.node_selector.get(_REPLICAS, "")
    selected = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    return pool.device_replicas or selected or None


def has_one_device(node: FleetNode) -> bool:
    """Whether all pods that share a device share the same one."""
    pool = node.spec.kubernetes
    return pool is not None and pool.count == 1 == len(node.spec.hardware.devices)


def _slice_of(node: FleetNode, service: InferenceService) -> tuple[str, int] | None:
    pool = node.spec.kubernetes
    for name in sorted(_asked(service)) if pool else ():
        if size := slice_bytes(name, pool.node_selector if pool else {}):
            return name, size
    return None


def _asked(service: InferenceService) -> set[str]:
    stated = service.spec.resources
    return {*stated.requests, *stated.limits}
