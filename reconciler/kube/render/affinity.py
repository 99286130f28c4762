"""Which nodes a pod may be put on by their hardware labels, where no extender is asked. Pure.

What `reconciler.placement.nodefit.node_misfit` refuses for good, in Kubernetes' words, but for
memory: an estimate that changes must not restart a service. A label that is absent refuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.api.nodelabels import DEFAULT_PREFIX, archs_of
from reconciler.api.vendors import vendor_of
from reconciler.fleet.quantisation import is_of_4_bits
from reconciler.kube.render.resources import asked_devices, device_name
from reconciler.kube.render.subject import Subject

VENDOR, ARCH, INT4 = (DEFAULT_PREFIX + key for key in ("gpu.vendor", "gpu.arch", "gpu.int4"))

Term = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def label_terms(subject: Subject) -> list[Term]:
    """Node selector terms, of which one must hold; empty: any node may have it."""
    names = (device_name(subject) or "", *asked_devices(subject))
    vendor = next(filter(None, map(vendor_of, names)), None)
    if vendor is None:
        return []
    models = subject.placed.workload.inputs["models"]
    archs = archs_of([device.arch for device in subject.placed.node.spec.hardware.devices])
    return terms(vendor, archs, int4=any(map(is_of_4_bits, models)))


def terms(vendor: str, archs: frozenset[str], *, int4: bool) -> list[Term]:
    """For a pod that asks for that vendor's GPUs. `archs`: one of these, empty: of any; `int4`: its
    weights are of 4 bits."""
    kernels = [_is(INT4, "NotIn", "false")] if int4 else []
    known = [_is(ARCH, "In", *sorted(archs)), *kernels] if archs else []
    unknown = [_is(ARCH, "DoesNotExist"), *kernels] if archs else kernels
    # Of a node with the GPUs of two vendors the labels are about one only.
    about_others = [_is(VENDOR, "Exists"), _is(VENDOR, "NotIn", vendor)]
    if not unknown:
        return []
    return [{"matchExpressions": each} for each in (known, unknown, about_others) if each]


def required(terms: list[Term]) -> dict[str, Any]:
    """The affinity of a pod that goes to no other node."""
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}


def with_stated(ours: dict[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """The affinity that a service states, beside what its pool and its devices require: of terms
    one must hold, so that each of one side is joined with each of the other."""
    if not stated:
        return ours
    nodes = dict(stated.get("nodeAffinity") or {})
    own = nodes.get(_REQUIRED, {}).get("nodeSelectorTerms") or []
    required_of_us = ours.get("nodeAffinity", {}).get(_REQUIRED, {}).get("nodeSelectorTerms") or []
    if required_of_us:
        joined = [_joined(one, other) for one in required_of_us for other in own or [{}]]
        nodes[_REQUIRED] = {"nodeSelectorTerms": joined}
    return {**stated, **({"nodeAffinity": nodes} if nodes else {})}


def _joined(one: Term, other: Term) -> Term:
    names = sorted({*one, *other})
    return {name: [*one.get(name, ()), *other.get(name, ())] for name in names}


def _is(key: str, operator: str, *values: str) -> Term:
    return {"key": key, "operator": operator} | ({"values": [*values]} if values else {})
