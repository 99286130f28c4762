"""What a pod requests of its node: memory by the estimate, devices by their vendor's name. Pure.

Extended resources, such as devices, have a limit equal to their request. Anything else has a limit
only if the fleet states one.
"""

from __future__ import annotations

from typing import Any

from reconciler.api.vendors import resource_of
from reconciler.capacity.pools import HOST, UNIFIED
from reconciler.kube.render.quantity import canonical, mebibytes, value_of
from reconciler.kube.render.subject import Subject


def resources(subject: Subject) -> dict[str, Any]:
    """The resources of the engine's container. Values from the fleet override our estimates."""
    stated = subject.placed.service.spec.resources
    limits = {name: canonical(value) for name, value in stated.limits.items()}
    requests = {name: canonical(value) for name, value in stated.requests.items()}
    if not asked_devices(subject) and (name := device_name(subject)):
        requests[name] = str(subject.placed.workload.devices)
    for name in {*requests, *limits}:
        if is_extended(name):  # the server refuses two that differ
            requests[name] = limits[name] = requests.get(name) or limits[name]
    if "memory" not in requests and (memory := _memory(subject)):
        requests["memory"] = _at_most(memory, limits.get("memory"))
    amounts = {"requests": requests, "limits": limits}
    made = {part: dict(sorted(values.items())) for part, values in amounts.items() if values}
    claims = subject.placed.service.spec.resource_claims
    return made | ({"claims": [{"name": claim["name"]} for claim in claims]} if claims else {})


def device_name(subject: Subject) -> str | None:
    """The resource by which its pods request devices; None if they request none."""
    workload = subject.placed.workload
    if not workload.devices or workload.pool is None:
        return None
    if subject.placed.service.spec.resource_claims:
        return None
    return resource_of(workload.pool.accelerator)


def asked_devices(subject: Subject) -> tuple[str, ...]:
    """The extended resources that the fleet itself states."""
    stated = subject.placed.service.spec.resources
    return tuple(sorted(name for name in {*stated.requests, *stated.limits} if is_extended(name)))


def is_extended(name: str) -> bool:
    """Whether a resource is counted in whole units by a plugin, such as a device."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def _memory(subject: Subject) -> str | None:
    """What it takes of the node's own memory; None: not known. Device memory is not a resource.
    More than the budget is let through by the fleet only, and no node could grant it."""
    needs = subject.placed.workload.needs
    taken = [min(n.bytes, n.budget_bytes) for n in needs if n.pool in (HOST, UNIFIED)]
    return mebibytes(sum(taken)) if taken else None


def _at_most(request: str, limit: str | None) -> str:
    """A request above its limit would be refused."""
    most, wanted = value_of(limit or ""), value_of(request)
    return limit if limit and most is not None and wanted is not None and wanted > most else request
