"""From what a machine says to the labels of its node, and what has to be said besides. Pure.

Labels promise something of any GPU that a pod of this node may be given, as no pod can choose:
of several models they state the least, and nothing of what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.labels.facts import Facts
from agent.labels.vendors import VENDOR_LABELS, StatedGpu, VendorLabels, states_avx512
from reconciler.api.fleetnode import Device
from reconciler.api.nodelabels import NOTE, NodeLabels
from reconciler.api.quantity import show_bytes


@dataclass(frozen=True, slots=True)
class Decided:
    """`notes` are for people: what the labels cannot say, or why they do not."""

    labels: NodeLabels
    notes: tuple[str, ...] = ()

    def annotations(self, prefix: str) -> dict[str, str]:
        """What no selector reads."""
        notes = {prefix + NOTE: "; ".join(self.notes)} if self.notes else {}
        return self.labels.annotations(prefix) | notes


@dataclass(frozen=True, slots=True)
class _Gpu:
    """What one pod may be given: a GPU, or a slice of one. None: not known."""

    product: str | None = None
    arch: str | None = None
    memory: int | None = None
    unified: bool = False

    def __str__(self) -> str:
        size = "memory not known" if self.memory is None else show_bytes(self.memory)
        return f"{self.product or 'GPU'} ({', '.join([size, *([self.arch] if self.arch else [])])})"


@dataclass(frozen=True, slots=True)
class _Vendor:
    """The GPUs of one vendor. `silent`: why the drivers say nothing about them."""

    name: str
    gpus: tuple[_Gpu, ...]
    notes: tuple[str, ...] = ()
    silent: str | None = None


def decide(facts: Facts, labels_of_others: Mapping[str, str] | None = None) -> Decided:
    """`labels_of_others`: what the node has, also from vendors' own labelers."""
    others = labels_of_others or {}
    avx512 = states_avx512(others) if facts.avx512 is None else facts.avx512
    names = dict.fromkeys(
        [d.vendor for d in facts.devices if d.vendor] + [gpu.vendor for gpu in facts.on_bus]
    )
    by_vendor = [_of_vendor(name, facts) for name in names]
    usable = _of_one_kind(
        [vendor for vendor in by_vendor if vendor.gpus or _answers(vendor, facts)]
    )
    if not usable:
        notes = tuple(note for vendor in by_vendor for note in vendor.notes)
        return Decided(NodeLabels(avx512=avx512), notes)
    chosen, *rivals = sorted(usable, key=_rank, reverse=True)
    notes = chosen.notes
    if rivals:
        listed = ", ".join(vendor.name for vendor in (chosen, *rivals))
        notes += (f"GPUs of {listed}: the labels are about those of {chosen.name}",)
    models = dict.fromkeys(chosen.gpus)
    # of several models a vendor's labeler writes any
    stated = _row(chosen.name).stated(others) if len(models) < 2 else StatedGpu()
    if len(models) > 1:
        notes += (f"not all alike: {', '.join(map(str, models))}; the labels hold for each",)
    if chosen.silent and stated.vram is None:
        notes += (chosen.silent,)
    return Decided(replace(_labels(chosen, facts, stated), avx512=avx512), notes)


def _labels(vendor: _Vendor, facts: Facts, stated: StatedGpu) -> NodeLabels:
    gpus = vendor.gpus
    arches = {g.arch for g in gpus} or {d.arch for d in facts.devices if d.vendor == vendor.name}
    if stated.arch is not None:
        arches = {stated.arch}
    sizes = [gpu.memory for gpu in gpus if gpu.memory is not None]
    vram = min(sizes) if sizes and len(sizes) == len(gpus) else None
    if stated.vram is not None and not (stated.is_rounded and vram is not None):
        vram = stated.vram
    return NodeLabels(
        vendor=vendor.name,
        vram=vram,
        arch=next(iter(arches)) if len(arches) == 1 else None,
        int4=_all(map(_row(vendor.name).int4, arches)),
        count=len(gpus) if stated.count is None else stated.count,
        unified=any(gpu.unified for gpu in gpus),
    )


def _of_vendor(name: str, facts: Facts) -> _Vendor:
    answering = [device for device in facts.devices if device.vendor == name]
    on_bus = [gpu for gpu in facts.on_bus if gpu.vendor == name]
    left = [gpu for gpu in on_bus if not gpu.is_passed_on]
    notes = []
    if passed := len(on_bus) - len(left):
        notes.append(f"{_some(passed, name)} kept for virtual machines (vfio-pci): not counted")
    if not answering:
        left = [gpu for gpu in left if not gpu.is_integrated] or left
        gpus = tuple(_Gpu(unified=gpu.is_integrated) for gpu in left)
        silent = _silent(name, left[0].driver, len(left)) if left else None
        return _Vendor(name, gpus, tuple(notes), silent)
    if (missing := len(left) - len(answering)) > 0:
        notes.append(
            f"{_some(missing, name)} on the PCI bus without an answer of the driver (fallen off"
            " the bus?): not counted"
        )
    notes += (
        f"{device.product}: MIG is on and there is no slice, so no pod gets any of it"
        for device in answering
        if device.uuid is not None and facts.slices.get(device.uuid) == ()
    )
    return _Vendor(name, tuple(g for d in answering for g in _given(d, facts)), tuple(notes))


def _given(device: Device, facts: Facts) -> Iterable[_Gpu]:
    """The GPU, or each of the slices that it is cut into."""
    if device.uuid is not None and device.uuid in facts.slices:
        for size in facts.slices[device.uuid]:
            yield _Gpu(f"{device.product} MIG", device.arch, size)
    elif device.memory == "unified":
        yield _Gpu(device.product, device.arch, facts.shared_bytes, unified=True)
    else:
        yield _Gpu(device.product, device.arch, device.memory)


def _row(vendor: str) -> VendorLabels:
    return VENDOR_LABELS.get(vendor, VendorLabels())


def _silent(vendor: str, driver: str | None, count: int) -> str:
    them = _some(count, vendor)
    if not _row(vendor).kernel_tells:
        return f"{them}: the kernel tells neither memory nor architecture"
    if driver is None:
        return f"{them}: no driver is loaded, so memory and architecture are not known"
    return (
        f"{them}: the driver ({driver}) gives no answer here, so memory and architecture are not"
        " known (in a pod: is its runtime the vendor's?)"
    )


def _some(count: int, vendor: str) -> str:
    return f"{count} {vendor} GPU{'s' if count > 1 else ''}"


def _answers(vendor: _Vendor, facts: Facts) -> bool:
    """All that it has is cut, and no slice is made."""
    return any(device.vendor == vendor.name for device in facts.devices)


def _of_one_kind(vendors: list[_Vendor]) -> list[_Vendor]:
    """Without the graphics of processors, where there are cards with memory of their own."""
    cards = [replace(v, gpus=tuple(g for g in v.gpus if not g.unified)) for v in vendors]
    with_cards = [
        card for card, all_ in zip(cards, vendors, strict=True) if card.gpus or not all_.gpus
    ]
    return with_cards or vendors


def _rank(vendor: _Vendor) -> tuple[int, int, str]:
    """The most memory that is known goes first."""
    return sum(gpu.memory or 0 for gpu in vendor.gpus), len(vendor.gpus), vendor.name


def _all(truths: Iterable[bool | None]) -> bool | None:
    distinct = set(truths)
    return False if False in distinct else None if None in distinct else True
