"""What a person says of this machine, and what memory it has, put where the fleet leaves it open.
Pure.

Closeness: what is said here < FleetNode < Model < service field < annotation. So a revision that
states something wins, and a plan that is made elsewhere differs only where it states nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from agent.node.settings import Settings
from reconciler.api.fleetnode import FleetNode, Hardware
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource, Spec
from reconciler.fleet.fleet import Fleet
from reconciler.memo import Memo, Same

R = TypeVar("R", FleetNode, InferenceService)
S = TypeVar("S", bound=Spec)


@dataclass(slots=True)
class Overlay:
    """The objects of a revision as they are on the node `name` of a machine with `settings`.

    What came out of an object before comes out of it again, the same one: a new plan of an
    unchanged object costs nothing as long as it is identical. `machine` says what memory is there;
    it is asked once, and only where the fleet states none: `own` is what it said.
    """

    name: str
    settings: Settings
    machine: Callable[[], Hardware] = Hardware
    own: Hardware | None = None
    _made: Memo[ObjectRef, Resource] = field(default_factory=Memo)

    def __call__(self, fleet: Fleet) -> Fleet:
        objects = {
            ref: self._made.find(ref, (Same(thing),), partial(self._with_words, thing))
            for ref, thing in fleet.objects.items()
            if is_ours(thing.ref, self.settings.namespace)
        }
        self._made.keep(objects)
        return replace(fleet, objects=objects)

    def _with_words(self, thing: Resource) -> Resource:
        if isinstance(thing, FleetNode) and thing.metadata.name == self.name and thing.spec.agent:
            return as_said(thing, self.settings, self._machine)
        if isinstance(thing, InferenceService) and self.settings.memory_mode:
            memory = thing.spec.memory
            if "mode" not in memory.model_fields_set:
                return _with(thing, memory=_copy(memory, mode=self.settings.memory_mode))
        return thing

    def _machine(self) -> Hardware:
        self.own = self.own or self.machine()
        return self.own


def is_ours(ref: ObjectRef, namespace: str | None) -> bool:
    """Whether an object concerns a machine that serves one namespace, or all of them."""
    return ref.kind != "InferenceService" or namespace in (None, ref.namespace)


def as_said(node: FleetNode, settings: Settings, machine: Callable[[], Hardware]) -> FleetNode:
    spec, memory, agent = node.spec, node.spec.memory, node.spec.agent
    changed: dict[str, Any] = {}
    if spec.hardware.memory is None and memory.budget is None and (own := machine()).memory:
        devices = spec.hardware.devices or own.devices
        changed["hardware"] = _copy(spec.hardware, memory=own.memory, devices=devices)
    if spec.runtimes is None and settings.runtimes is not None:
        changed["runtimes"] = settings.runtimes
    if spec.default_runtime is None and settings.runtime is not None:
        changed["default_runtime"] = settings.runtime
    if memory.fraction is None and memory.budget is None and settings.memory_fraction is not None:
        changed["memory"] = _copy(memory, fraction=settings.memory_fraction)
    if agent is not None and agent.host_ip is None and settings.host_ip is not None:
        changed["agent"] = _copy(agent, host_ip=settings.host_ip)
    return _with(node, **changed) if changed else node


def _with(thing: R, **changed: object) -> R:
    """The object with fields of its spec replaced. What it derives from its spec and keeps (its
    references, its model names) follows from none of these fields."""
    return _copy(thing, spec=_copy(thing.spec, **changed))


def _copy(part: S, **changed: object) -> S:
    """With other values, which its author has not written: what is made of his words has them not
    (`exclude_unset`)."""
    made = part.model_copy(update=changed)
    made.model_fields_set.intersection_update(part.model_fields_set)
    return made
