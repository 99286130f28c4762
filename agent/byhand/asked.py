"""Manual requests to this node, for the planner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.byhand import requests
from agent.byhand.restarts import Restarts
from agent.byhand.stopped import Stopped
from agent.process.launch import Launch
from agent.process.records import Records
from agent.state.directory import StateDir
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance, TargetState
from reconciler.fleet.workload import Workload


class ByHand:
    """The owner's side: a request becomes a note that lasts until it is done. Used by one
    thread."""

    def __init__(self, state: StateDir) -> None:
        self._state = state
        self._stopped = Stopped(state)
        self._restarts = Restarts(state)

    def shown(
        self, seen: TargetState, wanted: Iterable[Workload], live: Iterable[Instance]
    ) -> TargetState:
        """Take up the requests, and add them to the state of this node.

        `live` are the services with a process or waiting for a model. Raises StateError.
        """
        live = tuple(live)
        digests = {w.ref: w.inputs_digest for w in wanted if w.target == seen.target}
        running = {instance.ref: instance.inputs_digest for instance in live}
        self._stopped.changed(digests)
        self._restarts.still_meant({i.ref: i.pid for i in live})
        for request in requests.take(self._state):
            if request.action == requests.STOP:
                known = {ref: d for ref in request.refs if (d := (running | digests).get(ref))}
                self._stopped.add(known, self._launches())
                self._restarts.over(request.refs)
            else:
                self._stopped.release(request.refs)
                asked = {i.ref: i.pid for i in live if i.ref in request.refs and i.was_started}
                self._restarts.ask(asked)
                if not request.withdraw():  # else it would come up again in every pass
                    self._restarts.over(asked)
            request.withdraw()
        return replace(
            seen,
            stopped=self.stopped,
            stopped_since=self._stopped.since,
            restarts=frozenset(self._restarts.pids),
            state_option=self._state.option,
        )

    def save(self) -> None:
        """Write what is stopped again: the state directory was made anew. Raises StateError."""
        self._stopped.save()

    def _launches(self) -> Mapping[ObjectRef, Launch]:
        """What the services here were started from."""
        return {r.launch.ref: r.launch for r in Records(self._state).read_all()}

    @property
    def stopped(self) -> Mapping[ObjectRef, str]:
        """Each with the digest of its inputs at that time."""
        return dict(self._stopped.digests)

    def restarted(self, ref: ObjectRef) -> None:
        """A restart has begun. Where a process has to end first, it is over once that has."""
        if self._restarts.pids.get(ref, 0) is None:
            self._restarts.over({ref})

    def later(self, ref: ObjectRef, pid: int | None) -> None:
        """A restart that the next agent has to make, since the model comes first."""
        self._restarts.ask({ref: pid})

    def release(self, refs: Iterable[ObjectRef]) -> None:
        """They may run again. Raises StateError."""
        self._stopped.release(refs)

    def declared(self, refs: Iterable[ObjectRef]) -> None:
        """A new revision: what it does not declare cannot be kept stopped. Raises StateError."""
        self._stopped.keep_only(set(refs))
