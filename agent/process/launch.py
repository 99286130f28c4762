"""Input and output of the process owner: launches and snapshots. Frozen data, no IO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance, Location
from reconciler.fleet.command import Command, ServedModel
from reconciler.fleet.workload import PoolNeed


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to keep running for one service, with everything already decided.

    `inputs` is everything in the fleet that the process depends on; the two digests tell whether a
    running process is still the wanted one. `port` is where it listens on `host`, the same as in
    argv.
    """

    ref: ObjectRef
    command: Command
    inputs: Mapping[str, Any]
    inputs_digest: str
    render_digest: str
    runtime: str
    port: int
    source: Location | None = None
    needs: tuple[PoolNeed, ...] = ()
    models: tuple[str, ...] = ()  # public names
    drain_timeout_s: float = 60.0
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """The base URL for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def same_process(self, other: Launch) -> bool:
        """Whether both launches would start the same process."""
        return (self.inputs_digest, self.render_digest) == (
            other.inputs_digest,
            other.render_digest,
        )

    def same_program(self, other: Launch) -> bool:
        """Whether both execute the same program; the files that it reads may differ."""
        mine, its = self.command, other.command
        return (mine.argv, mine.env, mine.links, mine.key) == (
            its.argv,
            its.env,
            its.links,
            its.key,
        )

    def described_by(self, other: Launch) -> Launch:
        """This launch with the other's description; what is executed stays."""
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
    """Identifies one process, even if its pid is reused.

    `started` is the kernel's start time of the process in a unit of the platform; `boot` is the id
    of the boot.
    """

    pid: int
    started: str
    boot: str


@dataclass(frozen=True, slots=True)
class Child:
    """A process that we started, in this run of the agent or an earlier one."""

    identity: Identity
    marker: str  # in its environment, so that it can be found even if its pid was never recorded
    spawned_at: float  # seconds since the epoch
    adopted: bool = False  # not our child process: its exit code cannot be known


@dataclass(frozen=True, slots=True)
class Listening:
    """Proof that a process owns the listening socket of its port, and a cheap way to check it
    again.

    `descriptor` and `socket` are the names in /proc; empty on other platforms.
    """

    pid: int
    port: int
    descriptor: str = ""
    socket: str = ""


class Phase(StrEnum):
    """Phase of a service's process."""

    WAITING = "Waiting"  # no process; the next try has a known time
    SPAWNING = "Spawning"  # never visible outside: a spawn completes within its step
    LOADING = "Loading"  # alive, not ready yet
    READY = "Ready"  # was ready; `ProcessSnapshot.ready` tells whether it still responds
    RELOADING = "Reloading"  # alive; some of its models are changed while the rest keep serving
    DRAINING = "Draining"  # waiting for requests in flight
    TERMINATING = "Terminating"  # SIGTERM sent
    KILLING = "Killing"  # SIGKILL sent

    @property
    def is_stopping(self) -> bool:
        return self in (Phase.DRAINING, Phase.TERMINATING, Phase.KILLING)


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """State of one service at some moment: show it, never act on it.

    `reason` is CamelCase, `since` when it was set (seconds since the epoch). `start_seconds` is the
    last measured time from spawn to ready. `exit_code` is that of the process before this one; None
    also where it could not be known.
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
    stopping: bool = False  # shutting down, without a successor
    served: tuple[ServedModel, ...] = ()
    successor: Launch | None = None  # started once this process has ended

    @property
    def ref(self) -> ObjectRef:
        return self.launch.ref

    @property
    def endpoint(self) -> str | None:
        """The address for clients; None while no client should use it."""
        return self.launch.url if self.ready else None

    def to_instance(self, target: str) -> Instance:
        """The snapshot as an Instance, for the planner."""
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
            adopted=self.adopted,
        )
