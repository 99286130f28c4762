"""What the settings of this machine state where the fleet leaves it open. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.node.settings import Settings
from reconciler.api.fleetnode import Hardware
from reconciler.placement.overrides import Overlay

if TYPE_CHECKING:
    from reconciler.api.nodestate import NodeOverrides, OwnMemory


def overlay_of(
    node: str, settings: Settings, machine: Callable[[], Hardware] = Hardware
) -> Overlay:
    """What a revision is on the node of this machine. `machine` says what memory is there."""
    return Overlay(node, settings, settings.memory_mode, machine)


def overrides_of(settings: Settings, own: Hardware | None = None) -> NodeOverrides:
    """What a plan made elsewhere has to know, for the wire. `own` is what was measured."""
    from reconciler.api.nodestate import NodeOverrides

    return NodeOverrides(
        namespace=settings.namespace,
        runtime=settings.runtime,
        runtimes=settings.runtimes,
        host_ip=settings.host_ip,
        memory_fraction=settings.memory_fraction,
        own_memory=_for_the_wire(own) if own and own.memory else None,
    )


def _for_the_wire(own: Hardware) -> OwnMemory:
    from reconciler.api.nodestate import OwnDevice, OwnMemory

    return OwnMemory(
        bytes=own.memory,
        devices=tuple(
            OwnDevice(bytes=d.memory if isinstance(d.memory, int) else None, uuid=d.uuid)
            for d in own.devices
        ),
    )
