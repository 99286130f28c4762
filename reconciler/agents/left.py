"""Machines that left the fleet: no FleetNode declares them any more, and what was started there
runs on. Pure.

Their agents hold what they run, as nothing tells a machine that was given up from a FleetNode that
was lost. So they are asked on, until they say that nothing runs there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from reconciler.agents.lastseen import Seen
from reconciler.agents.remedy import ends_what_runs
from reconciler.api.meta import ObjectRef
from reconciler.api.nodestate import NodeState
from reconciler.core.observation import Observation, TargetState
from reconciler.core.plan import Blocked
from reconciler.fleet.fleet import Fleet
from reconciler.report.instancestate import read_ref
from reconciler.report.nodestate import read_node_state
from reconciler.source.history import is_commit

REASON = "NodeNotDeclared"


@dataclass(frozen=True, slots=True)
class OurFleet:
    """By what a machine is known to have been of this fleet: what it applied is in the history of
    the revision that is looked at, or, without commits, it was asked for the same place.
    `fleet` and `root` as in Seen."""

    fleet: str = ""
    root: str = ""
    is_ancestor: Callable[[str, str], bool] | None = None

    def seen(
        self, at: float, revision: str, services: tuple[str, ...], cert_sha256: str | None
    ) -> Seen:
        """What is known of a machine of it."""
        return Seen(at, self.fleet, self.root, revision, services, cert_sha256)

    def had(self, seen: Seen, revision: str) -> bool:
        """Whether a machine was one of it. An agent applies no revision that lacks its FleetNode:
        one that is on this very revision follows another folder of the repository."""
        if (seen.root, bool(seen.services)) != (self.root, True) or seen.revision == revision:
            return False
        commit = revision.partition("+")[0]
        if self.is_ancestor and seen.revision and is_commit(seen.revision) and is_commit(commit):
            return self.is_ancestor(seen.revision, commit)
        return seen.fleet == self.fleet


@dataclass(frozen=True, slots=True)
class LeftNode:
    """One of them. `state` is what its agent answered; without one `message` says why, `services`
    are what ran there when it answered last, at `seen_at`, or what was placed there."""

    name: str
    seen_at: float | None
    services: tuple[str, ...]
    state: NodeState | None = None
    message: str = ""

    @property
    def target(self) -> str:
        return f"node/{self.name}"

    @property
    def text(self) -> str:
        """What is said of it everywhere."""
        if self.state is None:
            return (
                f"this fleet no longer declares node {self.name}, and whether it still runs"
                f" {_listed(self.services)} is not known: {self.message}"
            )
        return (
            f"this fleet no longer declares node {self.name}, and its agent keeps running"
            f" {_listed(self.services)}: {ends_what_runs('there')}; if it is to stay, put its"
            " FleetNode back"
        )


def running(state: NodeState) -> tuple[str, ...]:
    """The services that have a process there."""
    return tuple(i.name for i in state.instances if i.pid is not None)


def blocked(nodes: Iterable[LeftNode], fleet: Fleet) -> Iterator[Blocked]:
    """What stays as it runs on machines whose agents say so. A service that is declared elsewhere
    by now is not held by that."""
    for node in nodes:
        if node.state is not None:
            ref = ObjectRef("FleetNode", "", node.name)
            refs = (read_ref(i.ref) for i in node.state.instances if i.pid is not None)
            holds = tuple(ref for ref in refs if ref not in fleet.objects)
            yield Blocked(ref, REASON, node.text, None, node.target, holds)


def beside(observed: Observation, nodes: Iterable[LeftNode]) -> Observation:
    """Add these machines to a view: no plan is made for them."""
    targets, instances = dict(observed.targets), list(observed.instances)
    for node in nodes:
        target = TargetState(node.target, False, node.seen_at, node.text)
        if node.state is not None:
            state, running = read_node_state(node.state)
            revision = state.revision and replace(state.revision, held="")  # its words are here
            target = replace(state, seen_at=node.seen_at, message=node.text, revision=revision)
            instances += running
        targets[node.target] = target
    return Observation(targets, tuple(instances))


def _listed(services: tuple[str, ...]) -> str:
    shown = ", ".join(services[:3])
    return f"{shown} and {len(services) - 3} more" if len(services) > 3 else shown
