"""What is handed to the owner of the processes, and what it shows. Frozen data, no IO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.plan import Instance, Source
from reconciler.workload import Command, PoolNeed, ServedModel


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to keep running for one service, with everything already decided.

    `inputs` is what the fleet says that it depends on; the two digests tell whether a running
    process is still the wanted one. `port` is where it will listen on `host`, as argv says.
    """

    ref: ObjectRef
    command: Command
    inputs: Mapping[str, Any]
    inputs_digest: str
    render_digest: str
    runtime: str
    port: int
    source: Source | None = None
    needs: tuple[PoolNeed, ...] = ()
    models: tuple[str, ...] = ()  # public names
    drain_timeout_s: float = 60.0
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """Where clients of the process send their requests."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def same_process(self, other: Launch) -> bool:
        """Whether a process started from either is good for both."""
        return (self.inputs_digest, self.render_digest) == (
            other.inputs_digest,
            other.render_digest,
        )

    def same_program(self, other: Launch) -> bool:
        """Whether the same is executed, but for the files that it reads."""
        mine, its = self.command, other.command
        return (mine.argv, mine.env, mine.links, mine.key) == (
            its.argv,
            its.env,
            its.links,
            its.key,
        )

    def described_by(self, other: Launch) -> Launch:
        """This process, with what the fleet says about it now; what is executed stays."""
        return replace(
            self,
            inputs=other.inputs,
            inputs_digest=other.inputs_digest,
            source=other.source,
            needs=other.needs,
            models=other.models,
            drain_timeout_s=other.drain_timeout_s,
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """One process among all that ever had its pid: no two are equal on one machine.

    `started` is the kernel's start time of the process in a unit of the platform, `boot` names the
    boot of the machine.
    """

    pid: int
    started: str
    boot: str


@dataclass(frozen=True, slots=True)
class Child:
    """A process that we started, now or in an earlier life of this program."""

    identity: Identity
    marker: str  # in its environment, so that it is found even when its pid was never recorded
    spawned_at: float  # seconds since the epoch
    adopted: bool = False  # not our own child: its exit code will not be known


@dataclass(frozen=True, slots=True)
class Listening:
    """Proof that a process has the listening socket of its port, and how to see that it still does.

    `descriptor` and `socket` are what /proc calls them; empty on other platforms.
    """

    pid: int
    port: int
    descriptor: str = ""
    socket: str = ""


class Phase(StrEnum):
    """Where a service's process stands."""

    WAITING = "Waiting"  # no process: the next try is due at a known time
    SPAWNING = "Spawning"  # never seen from outside: a spawn answers at once
    LOADING = "Loading"  # alive, not ready yet
    READY = "Ready"  # was ready; `InstanceState.ready` says whether it still answers
    RELOADING = "Reloading"  # alive; some of its many models change while the others answer
    DRAINING = "Draining"  # waiting for requests in flight
    TERMINATING = "Terminating"  # SIGTERM sent
    KILLING = "Killing"  # SIGKILL sent

    @property
    def is_stopping(self) -> bool:
        return self in (Phase.DRAINING, Phase.TERMINATING, Phase.KILLING)


@dataclass(frozen=True, slots=True)
class InstanceState:
    """What the owner knew of one service at some moment: show it, never act on it.

    `reason` is a CamelCase word, `since` when it became so (seconds since the epoch).
    `start_seconds` is the last measured time from spawn to ready. `exit_code` is that of the
    process before this one; None also where it could not be known.
    """

    launch: Launch
    phase: Phase
    ready: bool
    reason: str
    message: str
    since: float
    pid: int | None = None
    adopted: bool = False
    failures: int = 0
    exit_code: int | None = None
    start_seconds: float | None = None
    stopping: bool = False  # on its way out, without a successor
    served: tuple[ServedModel, ...] = ()
    successor: Launch | None = None  # what starts once this process has ended

    @property
    def ref(self) -> ObjectRef:
        return self.launch.ref

    @property
    def endpoint(self) -> str | None:
        """The address for clients; None while nobody should be sent there."""
        return self.launch.url if self.ready else None

    def to_instance(self, target: str) -> Instance:
        """The same in the planner's words."""
        launch = self.launch
        return Instance(
            ref=launch.ref,
            target=target,
            runtime=launch.runtime,
            inputs=launch.inputs,
            inputs_digest=launch.inputs_digest,
            render_digest=launch.render_digest,
            source=launch.source,
            ready=self.ready,
            reason=self.reason,
            message=self.message,
            since=self.since,
            pid=self.pid,
            port=launch.port,
            endpoint=self.endpoint,
            needs=launch.needs,
            models=launch.models,
            start_seconds=self.start_seconds,
            served=self.served,
        )
