"""The memory of a node in pools, their budgets, and what a process takes of each. Pure.

A machine whose devices share its memory is one pool `unified`, one without devices is `host`, and
one with devices of their own memory is `host` and `device0`, `device1`, ... Unknown memory makes no
pool: it is neither 0 nor enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import MEMORY_BUDGET_ANNOTATION
from reconciler.api.model import Model
from reconciler.api.quantity import parse_bytes, show_bytes
from reconciler.memory import MemoryEstimate, MemorySettings
from reconciler.workload import PoolNeed

UNIFIED, HOST = "unified", "host"
# mistral.rs' rule: a smaller machine keeps a larger share for everything else
SMALL_MACHINE_BYTES = 36 * 2**30
SMALL_FRACTION, LARGE_FRACTION = 0.67, 0.75


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool of a node. `basis` says where the budget comes from: `32.0 GiB x 0.67 = 21.4 GiB`.

    `total_bytes` is None where only an absolute budget is stated.
    """

    name: str
    total_bytes: int | None
    budget_bytes: int
    basis: str


def pools(node: FleetNode) -> tuple[Pool, ...]:
    """The pools whose budget is known, the machine's own memory first."""
    hardware, rules = node.spec.hardware, node.spec.memory
    discrete = [device.memory for device in hardware.devices if device.memory != "unified"]
    unified = hardware.devices and not discrete
    found = []
    if hardware.memory is not None or rules.budget is not None:
        name = UNIFIED if unified else HOST
        found.append(_pool(name, hardware.memory, rules.budget, rules.fraction, rules.reserve))
    for i, total in enumerate(discrete):
        assert isinstance(total, int)  # the filter above leaves sizes
        found.append(_pool(f"device{i}", total, None, rules.devices.fraction, 0))
    return tuple(found)


def budgeted(
    known: Sequence[Pool], service: InferenceService, models: Sequence[Model]
) -> tuple[Pool, ...]:
    """The pools as they are for one service: the closest statement replaces the node's budget.

    Closeness: FleetNode, then Model, then the service's field, then its annotation. A statement is
    about the pools that hold the weights: the devices, where there are any. Of several models the
    smallest budget counts.
    """
    devices = tuple(pool.name for pool in known if pool.name.startswith("device"))
    return tuple(
        _closest(pool, service, models) if not devices or pool.name in devices else pool
        for pool in known
    )


def settled(settings: MemorySettings, node: FleetNode, layers: int) -> MemorySettings:
    """The settings as they turn out on a node: no CPU copy of weights that a device computes."""
    offloaded = settings.gpu_layers is None or settings.gpu_layers >= layers
    return replace(settings, repack=False) if node.spec.hardware.devices and offloaded else settings


def needs(
    estimate: MemoryEstimate,
    settings: MemorySettings,
    known: Sequence[Pool],
    layers: int,
    file: str | None = None,
) -> tuple[PoolNeed, ...]:
    """What one process takes of each pool.

    A process uses the first device, or the first `settings.devices`, evenly. With some of the
    `layers` on a device the answer is an upper bound in both pools. `file` names the weights, so
    that processes that map the same file share them; a device has its own copy for each.
    """
    devices = [pool for pool in known if pool.name.startswith("device")][: settings.devices]
    machine = [pool for pool in known if not pool.name.startswith("device")]
    shared = ((file, estimate.weights_bytes),) if file is not None else ()
    if not devices or settings.gpu_layers == 0:
        return tuple(
            PoolNeed(pool.name, estimate.total_bytes, pool.budget_bytes, shared) for pool in machine
        )
    on_devices, on_host, mapped = _split(estimate, settings, layers)
    share = -(-on_devices // len(devices)) + estimate.compute_bytes
    partial = ((file, mapped),) if file is not None and mapped else ()
    return (
        *(PoolNeed(pool.name, on_host, pool.budget_bytes, partial) for pool in machine),
        *(PoolNeed(pool.name, share, pool.budget_bytes) for pool in devices),
    )


def resident(models: Sequence[Sequence[PoolNeed]], count: int) -> tuple[PoolNeed, ...]:
    """What a router takes that holds `count` of its models at a time: the largest of each pool.

    A swap stops one model before it starts the next, so no more than `count` are ever there.
    """
    by_pool: dict[str, list[PoolNeed]] = {}
    for model in models:
        for need in model:
            by_pool.setdefault(need.pool, []).append(need)
    found = []
    for name, all_needs in by_pool.items():
        largest = sorted(all_needs, key=lambda need: -need.bytes)[:count]
        weights = tuple(part for need in largest for part in need.weights)
        total = sum(need.bytes for need in largest)
        found.append(PoolNeed(name, total, largest[0].budget_bytes, weights))
    return tuple(found)


def taken_bytes(tenants: Sequence[Sequence[PoolNeed]], pool: str) -> int:
    """What several processes take of a pool together; a file that they share counts once."""
    beside, files = 0, dict[str, int]()
    for tenant in tenants:
        for need in tenant:
            if need.pool == pool:
                beside += need.bytes - sum(size for _, size in need.weights)
                for file, size in need.weights:
                    files[file] = max(files.get(file, 0), size)
    return beside + sum(files.values())


def _pool(
    name: str, total: int | None, budget: int | None, fraction: float | None, reserve: int
) -> Pool:
    if budget is None:
        assert total is not None  # the caller has one of the two
        share = fraction or (SMALL_FRACTION if total <= SMALL_MACHINE_BYTES else LARGE_FRACTION)
        budget, basis = int(total * share), f"{show_bytes(total)} x {share:g}"
    else:
        basis = f"{show_bytes(budget)} stated"
    left = max(budget - reserve, 0)
    basis += f" - {show_bytes(reserve)} reserve" if reserve else ""
    if " x " in basis or reserve:
        basis += f" = {show_bytes(left)}"
    return Pool(name, total, left, basis)


def _closest(pool: Pool, service: InferenceService, models: Sequence[Model]) -> Pool:
    by_models = []
    for model in models:
        hardware, where = model.spec.hardware, f"Model {model.metadata.name}"
        stated = _stated(pool, hardware.memory_budget, hardware.memory_fraction, where)
        by_models += [stated] if stated else []
    memory = service.spec.memory
    return (
        _stated(pool, _annotation(service), None, "the memory-budget annotation")
        or _stated(pool, memory.budget, memory.fraction, "spec.memory")
        or min(by_models, key=lambda stated: stated.budget_bytes, default=None)
        or pool
    )


def _annotation(service: InferenceService) -> int | None:
    text = service.metadata.annotations.get(MEMORY_BUDGET_ANNOTATION)
    try:
        return None if text is None else parse_bytes(text)
    except ValueError:  # validation reports it; here the next statement counts
        return None


def _stated(pool: Pool, budget: int | None, fraction: float | None, where: str) -> Pool | None:
    if budget is not None:
        return replace(pool, budget_bytes=budget, basis=f"{show_bytes(budget)} by {where}")
    if fraction is None or pool.total_bytes is None:
        return None
    share = int(pool.total_bytes * fraction)
    total = show_bytes(pool.total_bytes)
    basis = f"{total} x {fraction:g} by {where} = {show_bytes(share)}"
    return replace(pool, budget_bytes=share, basis=basis)


def _split(estimate: MemoryEstimate, settings: MemorySettings, layers: int) -> tuple[int, int, int]:
    """Bytes on all devices but for compute buffers, on the host, and mapped weights of those."""
    kept = estimate.kv_bytes + estimate.state_bytes
    beside = estimate.logits_bytes + estimate.overhead_bytes + estimate.prompt_cache_bytes
    offloaded = settings.gpu_layers
    if offloaded is None or offloaded >= layers:
        return estimate.weights_bytes + kept, beside, 0
    weights = -(-estimate.weights_bytes * offloaded // layers)
    on_devices = weights + min(kept, offloaded * estimate.largest_layer_bytes)
    stays = min(kept, (layers - offloaded) * estimate.largest_layer_bytes)
    on_host = estimate.weights_bytes + stays + estimate.compute_bytes + beside
    return on_devices, on_host, estimate.weights_bytes
