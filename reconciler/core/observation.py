"""What was observed on the targets of a plan: what runs there, and what they have. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.fleet.command import ServedModel
from reconciler.fleet.workload import PoolNeed, Workload

SCALED_TO_ZERO = "ScaledToZero"
REFUSED_MODEL = ("ModelCorrupt", "ModelUnavailable")
"""Reasons for which other bytes or another commit are needed: waiting does not help."""


class DriftKind(StrEnum):
    """What a difference between a live process and its declaration asks for."""

    COSMETIC = "cosmetic"  # shown, changes nothing
    DEFERRED = "deferred"  # we or the engine were upgraded: applied with the next restart
    RESTART = "restart"  # it does not run as declared: restarted under `drift: enforce`
    FOREIGN = "foreign"  # a process of someone else: named, never touched


@dataclass(frozen=True, slots=True)
class Location:
    """Where a change comes from. `commit` is None for uncommitted edits and plain directories."""

    file: str
    line: int
    commit: str | None


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference between a live process and what it should be. `since` is when it was first
    seen (seconds since the epoch)."""

    kind: DriftKind
    message: str
    since: float


@dataclass(frozen=True, slots=True)
class Pending:
    """What an instance waits for to become as it is declared now: a CamelCase word, and why.
    `inputs_digest` is that of the declaration which waits; None: that of the instance."""

    reason: str
    message: str
    since: float | None = None  # seconds since the epoch
    inputs_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """One workload as a target runs it, or tries to.

    `inputs` is what it was started from (Workload.inputs), so that a change can be shown field by
    field. `reason` is a CamelCase word for what it is doing or why it is not ready. `models` are
    the declared public names, `served` what the process answers for them; `measured` is what it
    really takes of each pool (name, bytes), where that can be read. `by_hand` are words that
    people put on what runs and that no revision has (hold, prune), as `lifecycle` in the inputs.
    `pending`: it runs as it was declared before, and its successor waits for something.
    """

    ref: ObjectRef
    target: str  # node/NAME or cluster/NAME
    runtime: str
    inputs: Mapping[str, Any]
    inputs_digest: str
    render_digest: str | None
    source: Location | None
    ready: bool
    reason: str
    message: str = ""
    since: float | None = None  # seconds since the epoch
    pid: int | None = None
    port: int | None = None
    endpoint: str | None = None
    needs: tuple[PoolNeed, ...] = ()
    models: tuple[str, ...] = ()
    start_seconds: float | None = None  # measured: from spawn to ready, the last time
    gone: bool = False  # it should run, has no process, and nobody starts it again
    adopted: bool = False  # its process ran before who watches it now
    drifts: tuple[Drift, ...] = ()
    served: tuple[ServedModel, ...] = ()
    measured: tuple[tuple[str, int], ...] = ()
    by_hand: Mapping[str, str] = field(default_factory=dict)
    pending: Pending | None = None

    @property
    def is_scaled_to_zero(self) -> bool:
        """Whether it has no pod. It is ready if something starts one as soon as it is asked."""
        return self.reason == SCALED_TO_ZERO

    def refused_model(self, want: Workload) -> Obstacle | None:
        """Return why its node refuses the bytes of a model that `want` needs."""
        waits = self.pending
        if waits is None and not self.was_started:
            waits = Pending(self.reason, self.message, inputs_digest=self.inputs_digest)
        if waits is None or waits.reason not in REFUSED_MODEL:
            return None
        is_same = (waits.inputs_digest or self.inputs_digest) == want.inputs_digest
        return Obstacle(waits.reason, waits.message) if is_same else None

    @property
    def has_process(self) -> bool:
        """False if an agent reports no process for it. The processes of pods have no pid here."""
        return self.pid is not None or not self.target.startswith("node/")

    @property
    def was_started(self) -> bool:
        """Whether it ever was; what still waits for its first model has no port yet."""
        return self.port is not None


@dataclass(frozen=True, slots=True)
class ObservedPool:
    """One memory pool of a node (`unified`, `host`, `device0`, ...). `budget_bytes` is what models
    may take in all, reserve already off; `used_by_others_bytes` how far everything else on the
    machine takes of what is stated (`capacity.usage`), as measured. None: unknown, never 0.
    `largest_other` names the largest program that is not ours, for people."""

    name: str
    total_bytes: int | None
    budget_bytes: int | None
    used_by_others_bytes: int | None
    largest_other: str = ""


@dataclass(frozen=True, slots=True)
class ObservedDisk:
    """The file system that a node's models lie on, by their folder. Of what is free `keep_bytes`
    stay so. `arrived` is what is there of models that are not whole yet, by what their bytes are
    known by (`ModelFile.identities`); `given_up_bytes` what nothing needs: other models, and what
    has arrived of them. It makes room for a download."""

    path: str
    total_bytes: int
    free_bytes: int
    keep_bytes: int
    arrived: Mapping[str, int] = field(default_factory=dict)
    given_up_bytes: int = 0
    removable: str = ""  # the end of a message: the largest things that a person may remove

    @property
    def room_bytes(self) -> int:
        """What models that are not whole yet may take in all, with what is there of them."""
        there = sum(self.arrived.values()) + self.given_up_bytes
        return self.free_bytes - self.keep_bytes + there


@dataclass(frozen=True, slots=True)
class RuntimeFound:
    """A runtime that a node can run: where its engine is, and which version it says it is."""

    name: str
    path: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class PortHolder:
    """A program that has a port and is no service of that node. `message` says who, and what ends
    it. `state_dir`: it is a service of ours all the same, of another state directory."""

    message: str
    pid: int | None = None
    program: str = ""
    state_dir: str = ""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a target from starting a service, as a plan gives it: a reason, and in words."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RevisionState:
    """How far a node's agent is. Revisions are as Plan.revision; None: none yet."""

    fetched: str | None = None
    applied: str | None = None
    refused: str | None = None
    problems: tuple[str, ...] = ()  # why `refused` was, a line each
    held: str = ""  # why the newest revision is not followed, where it is not
    lost: str = ""  # why its source gives nothing now, where it gives nothing
    lost_since: float | None = None  # in epoch seconds


@dataclass(frozen=True, slots=True)
class Successor:
    """The copy of a service at its new home, as the target that it leaves knows it. `refusal` is a
    CamelCase reason why it does not become ready, empty where none is known. `is_overdue`: the move
    has taken longer than `rollout.handover`."""

    home: str  # node/NAME or cluster/NAME
    ready: bool = False
    refusal: str = ""
    message: str = "it was not asked yet"
    is_overdue: bool = False


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The services that an agent does not bring to `revision`: reason and message of each."""

    revision: str
    refused: Mapping[ObjectRef, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TargetState:
    """What is known of a target beside its instances.

    `reachable` False: nothing may be concluded from what is absent. `missing` names the runtimes
    whose engine is not there, with how to get it. `renders` gives the digest of the Command that a
    workload would get here now, by ref: only a target can know it. `cached` holds the sha256 or
    the source of every model that needs no download. `stopped` are services that a person stopped
    on the node, with the inputs digest that they had: they stay so until that changes. `restarts`
    are services that a person wants to be restarted. `incomplete`: why absence from the revision
    proves nothing here; empty: it does. `leaving`: what is still there of services that were taken
    away, in words. `refused`: why services, as they are declared now, were refused for their
    memory; it stands while what they take is not known. `ports` are those of the services that are
    wanted, stated or chosen there, and `ports_taken` which of them somebody else has. `obstacles`
    are what else would keep services from being started there, beside an engine that is missing.
    `state_option`: what a person who sits at the target must add to `fleet-agent`, mostly nothing;
    None: the target may be another machine. `successors`: of services that move away from here,
    as far as this target knows. `verdicts`: of the target's own agent, None where the target plans
    for itself.
    """

    target: str
    reachable: bool
    seen_at: float | None = None
    message: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    renders: Mapping[ObjectRef, str] = field(default_factory=dict)
    cached: frozenset[str] = frozenset()
    runtimes: tuple[RuntimeFound, ...] | None = None  # None: not known
    pools: tuple[ObservedPool, ...] = ()
    disk: ObservedDisk | None = None  # None: not known
    revision: RevisionState | None = None
    stopped: Mapping[ObjectRef, str] = field(default_factory=dict)
    stopped_since: Mapping[ObjectRef, float] = field(default_factory=dict)
    restarts: frozenset[ObjectRef] = frozenset()
    incomplete: str = ""
    leaving: Mapping[ObjectRef, str] = field(default_factory=dict)
    refused: Mapping[ObjectRef, str] = field(default_factory=dict)
    ports: Mapping[ObjectRef, int] = field(default_factory=dict)
    ports_taken: Mapping[int, PortHolder] = field(default_factory=dict)
    obstacles: Mapping[ObjectRef, Obstacle] = field(default_factory=dict)
    state_option: str | None = None
    successors: Mapping[ObjectRef, Successor] = field(default_factory=dict)
    verdicts: Verdicts | None = None

    def keeps_stopped(self, meant: Workload | Instance) -> bool:
        """Whether a person's word keeps a service from running: not after its inputs changed."""
        return self.stopped.get(meant.ref) == meant.inputs_digest

    def obstacle_of(self, want: Workload) -> Obstacle | None:
        """Why a start of this service would fail here; None: nothing is known that it would."""
        if want.runtime in self.missing:
            return Obstacle("EngineMissing", self.missing[want.runtime])
        return self.obstacles.get(want.ref)


@dataclass(frozen=True, slots=True)
class Observation:
    """What runs now on the targets that a plan covers; other targets are not its business."""

    targets: Mapping[str, TargetState]
    instances: tuple[Instance, ...]


def starts_again(ref: ObjectRef, state: TargetState) -> str:
    """The way out for a service that a person has stopped."""
    if state.state_option is None:
        return f"on the node, `fleet-agent restart {ref.label}` starts it"
    return f"`fleet-agent restart {ref.label}{state.state_option}` starts it"
