"""What a plan is made of: what would change, what stays, and why. Pure data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from reconciler.api.meta import ObjectRef
from reconciler.capacity.ledger import MemoryImpact
from reconciler.core.observation import Location, TargetState
from reconciler.fleet.workload import Workload


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


SENSITIVE = "(sensitive, changed)"  # in the place of values that come from secrets


@dataclass(frozen=True, slots=True)
class FieldChange:
    """`path` is below `spec` of the service; `model.NAME.source` and the like are the Model's.
    `source` is where it is declared; None: nowhere, as it follows from something else."""

    path: str
    before: Any
    after: Any
    forces_restart: bool
    source: Location | None = None


@dataclass(frozen=True, slots=True)
class DiskImpact:
    """What is left for models of the file system of this folder, before and after a download. None:
    its size is not known."""

    path: str
    before_bytes: int
    after_bytes: int | None


@dataclass(frozen=True, slots=True)
class Impact:
    """What a change does. `after`: the services that have to leave what this one takes. Where each
    of several waits for the next, one `stops_for` another: before it can have its own. `waits`:
    one of those before it cannot leave yet, as a model has to come first. `drain_seconds`: how long
    it waits at most until no request is in flight; None: it waits for none."""

    restart: Restart = Restart.NONE
    download_bytes: int | None = 0  # None: something is downloaded, its size is not known
    memory: tuple[MemoryImpact, ...] = ()
    disk: DiskImpact | None = None  # None: nothing is downloaded, or no file system is known
    downtime_seconds: float | None = None
    downtime_basis: str = "unknown"  # or measured
    order: int = 0
    after: tuple[ObjectRef, ...] = ()
    stops_for: ObjectRef | None = None
    waits: bool = False
    drain_seconds: float | None = None


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
    awaits: str = ""  # of a move: why its copy here stays; empty: its successor is ready
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
ENDED = ("ProcessGone", "ModelGone")  # it has no process, or not what it would start from again
_SHOWN_REASONS = ("DriftReported", "DriftShown", "Fight")


def standing(changes: Iterable[Change]) -> dict[tuple[str, ObjectRef], Action]:
    """What becomes of each (target, ref) that changes: what the service's own line says, else the
    gravest of what its objects need."""
    changes_by_ref: dict[tuple[str, ObjectRef], list[Change]] = {}
    for change in changes:
        changes_by_ref.setdefault((change.target, change.ref), []).append(change)
    return {key: _standing(of_one) for key, of_one in changes_by_ref.items()}


def _standing(changes: list[Change]) -> Action:
    own = [change for change in changes if change.object is None]
    shown = [change for change in own if change.action not in _SHOWN_ACTIONS] or changes
    return min((change.action for change in shown), key=_GRAVITY.index)


@dataclass(frozen=True, slots=True)
class Blocked:
    """An object that stays as it runs now. `holds` are the services that stay with it. `home`: of a
    copy whose successor is not ready, the target where that is to run."""

    ref: ObjectRef
    reason: str
    message: str
    source: Location | None
    target: str | None = None
    holds: tuple[ObjectRef, ...] = ()
    token: str | None = None  # confirms a guarded removal
    home: str | None = None


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
        """The plan with what the objects of clusters need; `unchanged` replaces the counts of
        those."""
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
