"""The admission of this node: what it knows of a launch or a service before a process is started.

A plan and a start get the same obstacles in the same words. Nothing here starts or makes anything.
What only a start can show is in `agent/process/exits.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from agent.byhand.asked import ByHand
from agent.engines.render import CommandRenderer
from agent.machine.memory import MachineMemory
from agent.process.admission import StartAdmission, first_obstacle, stopped_obstacle
from agent.process.launch import Launch
from agent.process.ports import none_left, not_local
from agent.process.rebuilt import models_of
from agent.state.apikey import why_unusable
from agent.state.suspended import read_suspended
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Obstacle
from reconciler.fleet.model_file import with_companions
from reconciler.fleet.workload import Workload
from reconciler.runtimes import RUNTIMES


@dataclass(slots=True)
class Obstacles:
    """Obstacles of one observation of a machine: what several services share is read once."""

    renderer: CommandRenderer
    _addresses: dict[str, str | None] = field(default_factory=dict)
    _shared: dict[str, str | None] = field(default_factory=dict)

    def of(self, workload: Workload, *, port: int | None, is_here: bool) -> Obstacle | None:
        """Return the first visible obstacle to a start; None if there is none. `port`: the port of
        the service, None if none is left. `is_here`: its models are in the store."""
        sends_key = RUNTIMES[workload.runtime].key_variable is not None
        sends_key = sends_key and workload.listen.expose == "key"
        return first_obstacle(
            (
                lambda: self._of_address(workload.listen.host),
                lambda: self._no_port_left(port),
                lambda: self._of_machine(workload.ref, sends_key=sends_key),
                lambda: None if is_here else self._of_store(),
            )
        )

    def of_launch(self, launch: Launch) -> Obstacle | None:
        """The same for a launch, whose address, port and models are checked with each start."""
        return self._of_machine(launch.ref, sends_key=launch.command.key is not None)

    def _of_address(self, host: str) -> Obstacle | None:
        if host not in self._addresses:
            self._addresses[host] = not_local(host)
        why = self._addresses[host]
        return Obstacle("HostIPNotLocal", why) if why else None

    def _no_port_left(self, port: int | None) -> Obstacle | None:
        among = self.renderer.ports.among
        return Obstacle("NoPortLeft", none_left(among)) if port is None else None

    def _of_machine(self, ref: ObjectRef, *, sends_key: bool) -> Obstacle | None:
        if sends_key and (why := self._once("key", self._key)):
            return Obstacle("KeyUnusable", why)
        state = self.renderer.state
        why = self._once("state", state.why_takes_nothing) or state.why_takes_nothing_of(ref)
        return Obstacle("StateUnwritable", why) if why else None

    def _of_store(self) -> Obstacle | None:
        why = self._once("store", self.renderer.store.why_unwritable)
        return Obstacle("StoreUnwritable", why) if why else None

    def _key(self) -> str | None:
        state = self.renderer.state
        is_to_come = state.api_key.parent == state.root and not state.root.exists()
        return None if is_to_come else why_unusable(state.api_key)

    def _once(self, name: str, read: Callable[[], str | None]) -> str | None:
        if name not in self._shared:
            self._shared[name] = read()
        return self._shared[name]


class NodeAdmission:
    """The admission of the node that this process owns. The loop's thread calls `follow` and
    `suspend`; each replaces a whole value, which the owner's thread reads."""

    def __init__(self, renderer: CommandRenderer, by_hand: ByHand) -> None:
        self._renderer = renderer
        self._by_hand = by_hand
        self._suspended = frozenset(read_suspended(renderer.state))
        self._planned: Mapping[ObjectRef, tuple[str, Obstacle]] = {}

    def checks(self, memory: MachineMemory) -> StartAdmission:
        """The checks for the owner of the processes."""
        return StartAdmission(self._obstacle, self._unverified, memory.refusal)

    def suspend(self, refs: Collection[ObjectRef]) -> None:
        """Take over which services the followed revision suspends here."""
        self._suspended = frozenset(refs)

    def follow(
        self, workloads: Iterable[Workload], obstacles: Mapping[ObjectRef, Obstacle]
    ) -> None:
        """Take over what the last observation found of the declared services."""
        digests = {w.ref: w.inputs_digest for w in workloads}
        self._planned = {ref: (digests[ref], why) for ref, why in obstacles.items()}

    def _obstacle(self, launch: Launch) -> Obstacle | None:
        ref, state = launch.ref, self._renderer.state
        if self._by_hand.stopped.get(ref) == launch.inputs_digest:
            return stopped_obstacle(ref, state.option)
        if ref in self._suspended:
            return Obstacle("Suspended", "the fleet suspends it")
        digest, planned = self._planned.get(ref, ("", None))
        if planned and planned.reason == "NotRendered" and digest == launch.inputs_digest:
            return planned
        return Obstacles(self._renderer).of_launch(launch)

    def _unverified(self, launch: Launch) -> Mapping[str, Obstacle]:
        store = self._renderer.store
        return {
            model.name: why
            for model in models_of(launch)
            for file in with_companions((model,))
            if (why := store.why_unverified(file)) is not None
        }
