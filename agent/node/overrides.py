"""What a machine's own settings state where the fleet leaves it open, on the wire: for plans that
are made elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from agent.node.overlay import as_said, is_ours
from agent.node.settings import Settings
from reconciler.api.fleetnode import Device, FleetNode, Hardware
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.nodestate import NodeOverrides, OwnDevice, OwnMemory
from reconciler.fleet.fleet import Fleet


def overrides_of(settings: Settings, own: Hardware | None = None) -> NodeOverrides:
    """What a plan made elsewhere has to know, for the wire."""
    return NodeOverrides(
        namespace=settings.namespace,
        runtime=settings.runtime,
        runtimes=settings.runtimes,
        host_ip=settings.host_ip,
        memory_fraction=settings.memory_fraction,
        own_memory=_for_the_wire(own) if own and own.memory else None,
    )


def with_overrides(fleet: Fleet, overrides: Mapping[str, NodeOverrides]) -> Fleet:
    """The fleet as the nodes' own agents see it, by the overrides of each; the same object where
    that makes no difference."""
    objects = dict(fleet.objects)
    for ref, thing in fleet.objects.items():
        if isinstance(thing, FleetNode) and (own := overrides.get(thing.metadata.name)):
            objects[ref] = as_said(thing, _settings(own), partial(_hardware, own.own_memory))
        elif isinstance(thing, InferenceService) and _is_nobodys(thing, overrides):
            del objects[ref]
    same = len(objects) == len(fleet.objects) and all(
        objects[r] is t for r, t in fleet.objects.items()
    )
    return fleet if same else replace(fleet, objects=objects)


def _settings(own: NodeOverrides) -> Settings:
    return Settings(
        Path(),
        runtime=own.runtime,
        runtimes=own.runtimes,
        host_ip=own.host_ip,
        memory_fraction=own.memory_fraction,
    )


def _is_nobodys(service: InferenceService, overrides: Mapping[str, NodeOverrides]) -> bool:
    """Whether each of the nodes that it is placed on serves another namespace."""
    nodes = service.spec.placement.nodes or ()
    namespaces = [own.namespace for node in nodes if (own := overrides.get(node))]
    others = [n for n in namespaces if not is_ours(service.ref, n)]
    return bool(others) and len(others) == len(nodes)


def _for_the_wire(own: Hardware) -> OwnMemory:
    return OwnMemory(
        bytes=own.memory,
        devices=tuple(
            OwnDevice(bytes=d.memory if isinstance(d.memory, int) else None, uuid=d.uuid)
            for d in own.devices
        ),
    )


def _hardware(own: OwnMemory | None) -> Hardware:
    devices = own.devices if own else ()
    return Hardware(
        memory=own.bytes if own else None,
        devices=tuple(
            Device(memory="unified" if d.bytes is None else d.bytes, uuid=d.uuid) for d in devices
        ),
    )
