"""The memory of a node as pools, their budgets, and what a process takes of each. Pure.

A machine whose devices share its memory is one pool `unified`, one without devices is `host`, and
one whose devices have their own memory is `host` and `device0`, `device1`, ... Unknown memory makes
no pool: it is neither 0 nor enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import MEMORY_BUDGET_ANNOTATION
from reconciler.api.model import Model
from reconciler.api.quantity import parse_bytes, show_bytes
from reconciler.capacity.estimates import Estimates
from reconciler.fleet.workload import PoolNeed
from reconciler.memory import MemoryEstimate, MemorySettings, ModelFacts

UNIFIED, HOST = "unified", "host"
_SPELLED = {UNIFIED: "unified memory", HOST: "host memory"}
# mistral.rs' rule: a smaller machine reserves a larger share for everything else
SMALL_MACHINE_BYTES = 36 * 2**30
SMALL_FRACTION, LARGE_FRACTION = 0.67, 0.75


def spelled(pool: str) -> str:
    """A pool in a sentence: `of host memory`, `of device0`."""
    return _SPELLED.get(pool, pool)


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """One pool of a node. `basis` is the arithmetic of the budget: `32.0 GiB x 0.67 = 21.4 GiB`.

    `total_bytes` is None if only an absolute budget is stated.
    """

    name: str
    total_bytes: int | None
    budget_bytes: int
    basis: str


def pools(node: FleetNode) -> tuple[MemoryPool, ...]:
    """The pools whose budget is known, the machine's own memory first."""
    hardware, rules = node.spec.hardware, node.spec.memory
    discrete = [device.memory for device in hardware.devices if device.memory != "unified"]
    unified = hardware.devices and not discrete
    known = []
    if hardware.memory is not None or rules.budget is not None:
        name = UNIFIED if unified else HOST
        known.append(_pool(name, hardware.memory, rules.budget, rules.fraction, rules.reserve))
    for i, total in enumerate(discrete):
        assert isinstance(total, int)  # the filter above leaves sizes
        known.append(device_pool(i, total, rules.devices.fraction))
    return tuple(known)


def device_pool(number: int, total: int, fraction: float) -> MemoryPool:
    """The memory of a device's own."""
    return _pool(f"device{number}", total, None, fraction, 0)


def budgeted(
    known: Sequence[MemoryPool], service: InferenceService, models: Sequence[Model]
) -> tuple[MemoryPool, ...]:
    """The pools with the budgets of one service: the most specific statement replaces the node's.

    From least to most specific: FleetNode, Model, the service's field, its annotation. A statement
    applies to the pools of the weights: the devices, if there are any. Of several models the
    smallest budget counts.
    """
    devices = tuple(pool.name for pool in known if pool.name.startswith("device"))
    return tuple(
        _closest(pool, service, models) if not devices or pool.name in devices else pool
        for pool in known
    )


def settled(settings: MemorySettings, node: FleetNode, layers: int) -> MemorySettings:
    """The settings as they take effect on a node: no CPU copy of weights that are on a device, and
    none at all beside a device with memory of its own, which copies what is in the machine's."""
    devices = node.spec.hardware.devices
    whole = settings.gpu_layers is None or settings.gpu_layers > layers
    apart = any(device.memory != "unified" for device in devices)
    return replace(settings, repack=False) if devices and (whole or apart) else settings


def needs(
    estimate: MemoryEstimate,
    settings: MemorySettings,
    known: Sequence[MemoryPool],
    facts: ModelFacts,
    file: str | None = None,
    estimates: Estimates | None = None,
) -> tuple[PoolNeed, ...]:
    """What one process takes of each pool.

    A process uses the first device, or the first `settings.devices`, or where nothing is split the
    main one of them; a projector is on the first that it uses.
    `file` identifies the weights, so that processes that map the same file share them; a device has
    a copy for each process.
    """
    file = file if settings.mapped else None
    devices = [pool for pool in known if pool.name.startswith("device")]
    if settings.split_mode == "none":
        devices = devices[settings.main_device : settings.main_device + 1]
    devices = devices[: settings.devices]
    machine = [pool for pool in known if not pool.name.startswith("device")]
    if not devices:
        shared = ((file, estimate.weights_bytes),) if file is not None else ()
        return tuple(
            PoolNeed(pool.name, estimate.total_bytes, pool.budget_bytes, shared) for pool in machine
        )
    memory = tuple(pool.total_bytes or 1 for pool in devices)
    split = (estimates or Estimates()).on_devices(facts, settings, memory)
    mapped = ((file, split.mapped),) if file is not None and split.mapped else ()
    on_host, (first, *others) = split.machine, split.devices
    if settings.gpu_layers == 0:
        on_host += estimate.projector_bytes
    else:
        first += estimate.projector_bytes
    if settings.gpu_layers == 0 or not (settings.drafting and settings.drafting.heads):
        on_host += estimate.draft_bytes
    elif others:  # heads are the last layers
        others[-1] += estimate.draft_bytes
    else:
        first += estimate.draft_bytes
    return (
        *(PoolNeed(pool.name, on_host, pool.budget_bytes, mapped) for pool in machine if on_host),
        *(
            PoolNeed(pool.name, max(size, _taken_at_once(pool, settings)), pool.budget_bytes)
            for pool, size in zip(devices, (first, *others), strict=True)
            if size
        ),
    )


def together(first: Sequence[PoolNeed], second: Sequence[PoolNeed]) -> tuple[PoolNeed, ...]:
    """What two models of one process take of each pool."""
    by_pool = {need.pool: need for need in first}
    for need in second:
        other = by_pool.get(need.pool)
        by_pool[need.pool] = _both(other, need) if other else need
    return tuple(by_pool.values())


def _both(one: PoolNeed, other: PoolNeed) -> PoolNeed:
    weights = (*one.weights, *other.weights)
    return one._replace(bytes=one.bytes + other.bytes, weights=weights)


def needs_of_stated(size: int, devices: int, known: Sequence[MemoryPool]) -> tuple[PoolNeed, ...]:
    """What a process of a stated size takes: of its devices, in equal parts, else of the
    machine."""
    apart = [pool for pool in known if pool.name.startswith("device")][:devices]
    taken = apart or [pool for pool in known if not pool.name.startswith("device")]
    share = -(-size // max(len(apart), 1))
    return tuple(PoolNeed(pool.name, share, pool.budget_bytes) for pool in taken)


def _taken_at_once(pool: MemoryPool, settings: MemorySettings) -> int:
    return int((pool.total_bytes or 0) * (settings.device_fraction or 0))


def resident(models: Sequence[Sequence[PoolNeed]], count: int) -> tuple[PoolNeed, ...]:
    """What a router takes with `count` of its models loaded: the largest of each pool.

    A swap stops one model before it starts the next, so there are never more than `count`.
    """
    by_pool: dict[str, list[PoolNeed]] = {}
    for model in models:
        for need in model:
            by_pool.setdefault(need.pool, []).append(need)
    needs = []
    for name, all_needs in by_pool.items():
        largest = sorted(all_needs, key=lambda need: -need.bytes)[:count]
        weights = tuple(part for need in largest for part in need.weights)
        total = sum(need.bytes for need in largest)
        needs.append(PoolNeed(name, total, largest[0].budget_bytes, weights))
    return tuple(needs)


def taken_bytes(tenants: Sequence[Sequence[PoolNeed]], pool: str) -> int:
    """What several processes take of a pool together; a shared file counts once."""
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
) -> MemoryPool:
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
    return MemoryPool(name, total, left, basis)


def _closest(pool: MemoryPool, service: InferenceService, models: Sequence[Model]) -> MemoryPool:
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


def _stated(
    pool: MemoryPool, budget: int | None, fraction: float | None, where: str
) -> MemoryPool | None:
    if budget is not None:
        return replace(pool, budget_bytes=budget, basis=f"{show_bytes(budget)} by {where}")
    if fraction is None or pool.total_bytes is None:
        return None
    share = int(pool.total_bytes * fraction)
    total = show_bytes(pool.total_bytes)
    basis = f"{total} x {fraction:g} by {where} = {show_bytes(share)}"
    return replace(pool, budget_bytes=share, basis=basis)
