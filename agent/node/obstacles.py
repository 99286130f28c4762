"""What would keep this machine from starting a service, found without starting or making anything.

A plan is refused by it in the same words by who looks and by who applies, before anything stops.
What only a start can show is not here: `agent/process/exits.py` has that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agent.engines.render import CommandRenderer
from agent.process.ports import none_left, not_local
from agent.state.apikey import why_unusable
from reconciler.core.observation import Obstacle
from reconciler.fleet.workload import Workload
from reconciler.runtimes import RUNTIMES


@dataclass(slots=True)
class Obstacles:
    """Obstacles of one observation of a machine: what several services share is read once."""

    renderer: CommandRenderer
    _addresses: dict[str, str | None] = field(default_factory=dict)
    _shared: dict[str, str | None] = field(default_factory=dict)

    def of(self, workload: Workload, *, port: int | None, is_here: bool) -> Obstacle | None:
        """What keeps a service from being started; None: nothing that can be seen. `port`: what it
        would have, None: none is left. `is_here`: its models are."""
        host = workload.listen.host
        if host not in self._addresses:
            self._addresses[host] = not_local(host)
        if why := self._addresses[host]:
            return Obstacle("HostIPNotLocal", why)
        if port is None:
            return Obstacle("NoPortLeft", none_left(self.renderer.ports.among))
        if self._sends_key(workload) and (why := self._once("key", self._key)):
            return Obstacle("KeyUnusable", why)
        state = self.renderer.state
        if why := (
            self._once("state", state.why_takes_nothing) or state.why_takes_nothing_of(workload.ref)
        ):
            return Obstacle("StateUnwritable", why)
        if not is_here and (why := self._once("store", self.renderer.store.why_unwritable)):
            return Obstacle("StoreUnwritable", why)
        return None

    def _sends_key(self, workload: Workload) -> bool:
        is_asked = RUNTIMES[workload.runtime].key_variable is not None
        return is_asked and workload.listen.expose == "key"

    def _key(self) -> str | None:
        state = self.renderer.state
        is_to_come = state.api_key.parent == state.root and not state.root.exists()
        return None if is_to_come else why_unusable(state.api_key)

    def _once(self, name: str, read: Callable[[], str | None]) -> str | None:
        if name not in self._shared:
            self._shared[name] = read()
        return self._shared[name]
