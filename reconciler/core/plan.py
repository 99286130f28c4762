"""What a plan is made of: what was observed, what would change, and why. Pure data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from reconciler.api.meta import ObjectRef
from reconciler.capacity.ledger import MemoryImpact
from reconciler.fleet.command import ServedModel
from reconciler.fleet.workload import PoolNeed, Workload


class Action(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    MOVE = "move"
    DELETE = "delete"
    STOP = "stop"  # it is still declared: suspended, stopped by hand, or its node is drained
    DRIFT = "drift"
    UNKNOWN = "unknown"
    DEFERRED = "deferred"


class Restart(StrEnum):
    NONE = "none"
    HOT = "hot"
    RESTART = "restart"
    ROLL = "roll"


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
    """What an instance waits for to become as it is declared now: a CamelCase word, and why."""

    reason: str
    message: str
    since: float | None = None  # seconds since the epoch


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
    gone: bool = False  # it should run and has no process
    drifts: tuple[Drift, ...] = ()
    served: tuple[ServedModel, ...] = ()
    measured: tuple[tuple[str, int], ...] = ()
    by_hand: Mapping[str, str] = field(default_factory=dict)
    pending: Pending | None = None


@dataclass(frozen=True, slots=True)
class PoolState:
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
class RuntimeFound:
    """A runtime that a node can run: where its engine is, and which version it says it is."""

    name: str
    path: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class RevisionState:
    """How far a node's agent is. Revisions are as Plan.revision; None: none yet."""

    fetched: str | None = None
    applied: str | None = None
    refused: str | None = None
    problems: tuple[str, ...] = ()  # why `refused` was, a line each
    held: str = ""  # why the newest revision is not followed, where it is not


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
    away, in words. `state_option`: what a person who sits at the target must add to `fleet-agent`,
    mostly nothing; None: the target may be another machine.
    """

    target: str
    reachable: bool
    seen_at: float | None = None
    message: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    renders: Mapping[ObjectRef, str] = field(default_factory=dict)
    cached: frozenset[str] = frozenset()
    runtimes: tuple[RuntimeFound, ...] | None = None  # None: not known
    pools: tuple[PoolState, ...] = ()
    revision: RevisionState | None = None
    stopped: Mapping[ObjectRef, str] = field(default_factory=dict)
    restarts: frozenset[ObjectRef] = frozenset()
    incomplete: str = ""
    leaving: Mapping[ObjectRef, str] = field(default_factory=dict)
    state_option: str | None = None

    def keeps_stopped(self, meant: Workload | Instance) -> bool:
        """Whether a person's word keeps a service from running: not after its inputs changed."""
        return self.stopped.get(meant.ref) == meant.inputs_digest


@dataclass(frozen=True, slots=True)
class Observation:
    """What runs now on the targets that a plan covers; other targets are not its business."""

    targets: Mapping[str, TargetState]
    instances: tuple[Instance, ...]


SENSITIVE = "(sensitive, changed)"  # in the place of values that come from secrets


@dataclass(frozen=True, slots=True)
class FieldChange:
    """`path` is below `spec` of the service; `model.NAME.source` and the like are the Model's."""

    path: str
    before: Any
    after: Any
    forces_restart: bool


@dataclass(frozen=True, slots=True)
class Impact:
    restart: Restart = Restart.NONE
    download_bytes: int | None = 0  # None: something is downloaded, its size is not known
    memory: tuple[MemoryImpact, ...] = ()
    downtime_seconds: float | None = None
    downtime_basis: str = "unknown"  # or measured
    order: int = 0


class ObjectName(NamedTuple):
    """An object of a cluster. `namespace` is empty where its kind has none."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a plan: what to do with one object on one target, and why.

    `object` is the cluster's object that changes, of those that stand for `ref`; None: the service
    as a whole. `manifest` is what it should be there, never printed. Of a drift, `by` is who made
    it and `before` of its fields what is there now.
    """

    action: Action
    target: str
    ref: ObjectRef
    reason: str
    source: Location | None
    message: str = ""
    fields: tuple[FieldChange, ...] = ()
    impact: Impact = Impact()
    desired: Workload | None = None  # of a move: as it runs at `home`, the other target
    home: str | None = None
    since: float | None = None  # of a drift: when it was first seen, seconds since the epoch
    by: str = ""
    object: ObjectName | None = None
    manifest: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def is_shown_only(self) -> bool:
        """Whether it reports something that no apply will change."""
        return self.action in _SHOWN_ACTIONS or self.reason in _SHOWN_REASONS

    @property
    def is_quiet(self) -> bool:
        """Whether it is no reason to look again, for a person or a program."""
        return self.action in _SHOWN_ACTIONS or self.reason == "DriftShown"


_GRAVITY = (
    Action.REPLACE,
    Action.DELETE,
    Action.STOP,
    Action.DRIFT,
    Action.UPDATE,
    Action.CREATE,
    Action.MOVE,
    Action.DEFERRED,
    Action.UNKNOWN,
)
_SHOWN_ACTIONS = (Action.UNKNOWN, Action.DEFERRED)
_SHOWN_REASONS = ("DriftReported", "DriftShown", "ForeignProcess", "Fight")


def standing(changes: Iterable[Change]) -> dict[tuple[str, ObjectRef], Action]:
    """What becomes of each (target, ref) that changes: what the service's own line says, else the
    gravest of what its objects need."""
    found: dict[tuple[str, ObjectRef], list[Change]] = {}
    for change in changes:
        found.setdefault((change.target, change.ref), []).append(change)
    return {key: _standing(of_one) for key, of_one in found.items()}


def _standing(changes: list[Change]) -> Action:
    own = [change for change in changes if change.object is None]
    told = [change for change in own if change.action not in _SHOWN_ACTIONS] or changes
    return min((change.action for change in told), key=_GRAVITY.index)


def starts_again(ref: ObjectRef, state: TargetState) -> str:
    """The way out for a service that a person has stopped."""
    if state.state_option is None:
        return f"on the node, `fleet-agent restart {ref.label}` starts it"
    return f"`fleet-agent restart {ref.label}{state.state_option}` starts it"


@dataclass(frozen=True, slots=True)
class Blocked:
    """An object that stays as it runs now. `holds` are the services that stay with it."""

    ref: ObjectRef
    reason: str
    message: str
    source: Location | None
    target: str | None = None
    holds: tuple[ObjectRef, ...] = ()
    token: str | None = None  # confirms a guarded removal


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pass would do. `unchanged` counts by target; `unreachable` did not answer."""

    revision: str
    changes: tuple[Change, ...]
    blocked: tuple[Blocked, ...]
    unreachable: tuple[TargetState, ...]
    unchanged: Mapping[str, int]
    targets: Mapping[str, TargetState]

    def joined(
        self,
        changes: Iterable[Change],
        blocked: Iterable[Blocked] = (),
        unchanged: Mapping[str, int] = MappingProxyType({}),
    ) -> Plan:
        """With what the objects of clusters need; `unchanged` replaces the counts of those."""
        return replace(
            self,
            changes=(*self.changes, *changes),
            blocked=(*self.blocked, *blocked),
            unchanged=dict(sorted({**self.unchanged, **unchanged}.items())),
        )

    @property
    def summary(self) -> dict[str, int]:
        """Counts a service once a target, whatever its objects need beside it, and a blocked one
        once, for however many reasons."""
        counted = Counter(standing(self.changes).values())
        return {
            **{str(action): counted[action] for action in Action},
            "unchanged": sum(self.unchanged.values()),
            "blocked": len({item.ref for item in self.blocked}),
        }

    @property
    def stopped(self) -> tuple[tuple[TargetState, ObjectRef], ...]:
        """What a person has stopped and nothing becomes of, by target and name."""
        changed = {(change.target, change.ref) for change in self.changes}
        return tuple(
            (state, ref)
            for _, state in sorted(self.targets.items())
            for ref in sorted(state.stopped)
            if (state.target, ref) not in changed
        )

    @property
    def exit_code(self) -> int:
        """3 blocked, unconfirmed or unreachable; 2 changes or drift; 0 nothing to do."""
        if self.blocked or self.unreachable:
            return 3
        return 2 if any(not change.is_quiet for change in self.changes) else 0
