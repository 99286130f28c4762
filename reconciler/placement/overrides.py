"""What is stated on a machine itself, and what memory it has, put where the fleet leaves it open.
Pure.

Closeness: what is stated there < FleetNode < Model < service field < annotation. So a revision
that states something wins, and a plan that is made elsewhere differs only where it states nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from reconciler.api.fleetnode import Device, FleetNode, Hardware
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource, Spec
from reconciler.fleet.fleet import Fleet

if TYPE_CHECKING:
    from reconciler.api.nodestate import NodeOverrides, OwnMemory

R = TypeVar("R", FleetNode, InferenceService)
S = TypeVar("S", bound=Spec)


class MachineSettings(Protocol):
    """What may be stated on a machine: an agent's settings are so, and what it reports of them."""

    @property
    def namespace(self) -> str | None: ...
    @property
    def runtime(self) -> str | None: ...
    @property
    def runtimes(self) -> tuple[str, ...] | None: ...
    @property
    def host_ip(self) -> str | None: ...
    @property
    def memory_fraction(self) -> float | None: ...


def with_overrides(fleet: Fleet, overrides: Mapping[str, NodeOverrides]) -> Fleet:
    """The fleet as the nodes' own agents see it, by the overrides of each; the same object where
    that makes no difference."""
    if not any(overrides.values()):
        return fleet
    objects = dict(fleet.objects)
    for ref, thing in fleet.objects.items():
        if isinstance(thing, FleetNode) and (own := overrides.get(thing.metadata.name)):
            objects[ref] = _node(thing, own, partial(_hardware, own.own_memory))
        elif isinstance(thing, InferenceService) and _is_nobodys(thing, overrides):
            del objects[ref]
    same = len(objects) == len(fleet.objects) and all(
        objects[r] is t for r, t in fleet.objects.items()
    )
    return fleet if same else replace(fleet, objects=objects)


@dataclass(slots=True)
class Overlay:
    """The objects of a revision as the agent of node `name` sees them, on a machine where this is
    stated; `memory_mode` is that of services that state none.

    What came out of an object before comes out of it again, the same one: a new plan of an
    unchanged object costs nothing as long as it is identical. `machine` says what memory is there;
    it is asked once, and only where the fleet states none: `own` is what it said.
    """

    name: str
    stated: MachineSettings
    memory_mode: str | None = None
    machine: Callable[[], Hardware] = Hardware
    own: Hardware | None = None
    _made: dict[ObjectRef, tuple[Resource, Resource]] = field(default_factory=dict)

    def __call__(self, fleet: Fleet) -> Fleet:
        objects = {
            ref: self._filled(ref, thing)
            for ref, thing in fleet.objects.items()
            if concerns(thing.ref, self.stated.namespace)
        }
        self._made = {ref: made for ref, made in self._made.items() if ref in objects}
        return replace(fleet, objects=objects)

    def _filled(self, ref: ObjectRef, thing: Resource) -> Resource:
        before, after = self._made.get(ref, (None, thing))
        if before is thing:
            return after
        after = self._overlaid(thing)
        if after is not thing:
            self._made[ref] = (thing, after)
        return after

    def _overlaid(self, thing: Resource) -> Resource:
        if isinstance(thing, FleetNode) and thing.metadata.name == self.name and thing.spec.agent:
            return _node(thing, self.stated, self._machine)
        if isinstance(thing, InferenceService) and self.memory_mode:
            memory = thing.spec.memory
            if "mode" not in memory.model_fields_set:
                return _with(thing, memory=_copy(memory, mode=self.memory_mode))
        return thing

    def _machine(self) -> Hardware:
        self.own = self.own or self.machine()
        return self.own


def concerns(ref: ObjectRef, namespace: str | None) -> bool:
    """Whether an object concerns a machine that serves one namespace, or all of them."""
    return ref.kind != "InferenceService" or namespace in (None, ref.namespace)


def _node(node: FleetNode, own: MachineSettings, machine: Callable[[], Hardware]) -> FleetNode:
    spec, memory, agent = node.spec, node.spec.memory, node.spec.agent
    changed: dict[str, Any] = {}
    if spec.hardware.memory is None and memory.budget is None and (probed := machine()).memory:
        devices = spec.hardware.devices or probed.devices
        changed["hardware"] = _copy(spec.hardware, memory=probed.memory, devices=devices)
    if spec.runtimes is None and own.runtimes is not None:
        changed["runtimes"] = own.runtimes
    if spec.default_runtime is None and own.runtime is not None:
        changed["default_runtime"] = own.runtime
    if memory.fraction is None and memory.budget is None and own.memory_fraction is not None:
        changed["memory"] = _copy(memory, fraction=own.memory_fraction)
    if agent is not None and agent.host_ip is None and own.host_ip is not None:
        changed["agent"] = _copy(agent, host_ip=own.host_ip)
    return _with(node, **changed) if changed else node


def _is_nobodys(service: InferenceService, overrides: Mapping[str, NodeOverrides]) -> bool:
    """Whether each of the nodes that it is placed on serves another namespace."""
    nodes = service.spec.placement.nodes or ()
    namespaces = [own.namespace for node in nodes if (own := overrides.get(node))]
    others = [n for n in namespaces if not concerns(service.ref, n)]
    return bool(others) and len(others) == len(nodes)


def _hardware(own: OwnMemory | None) -> Hardware:
    devices = own.devices if own else ()
    return Hardware(
        memory=own.bytes if own else None,
        devices=tuple(
            Device(memory="unified" if d.bytes is None else d.bytes, uuid=d.uuid) for d in devices
        ),
    )


def _with(thing: R, **changed: object) -> R:
    """The object with fields of its spec replaced. What it derives from its spec and keeps (its
    references, its model names) follows from none of these fields."""
    return _copy(thing, spec=_copy(thing.spec, **changed))


def _copy(part: S, **changed: object) -> S:
    """A copy with other values, which its author has not written: what is made of his words has
    them not (`exclude_unset`)."""
    made = part.model_copy(update=changed)
    made.model_fields_set.intersection_update(part.model_fields_set)
    return made
