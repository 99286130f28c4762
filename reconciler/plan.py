"""Decide what to change. No IO, no clock: same input, same plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reconciler.api.meta import ObjectRef
from reconciler.workload import PoolNeed, Workload


class Action(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    MOVE = "move"
    DELETE = "delete"
    DRIFT = "drift"
    UNKNOWN = "unknown"
    DEFERRED = "deferred"


class Restart(StrEnum):
    NONE = "none"
    HOT = "hot"
    RESTART = "restart"
    ROLL = "roll"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a change comes from. `commit` is None for uncommitted edits and plain directories."""

    file: str
    line: int
    commit: str | None


@dataclass(frozen=True, slots=True)
class Instance:
    """One running (or wanted and failing) workload, as observed on a target.

    `inputs` is what it was started from (Workload.inputs), so that a change can be shown field by
    field. `reason` is a CamelCase word for what it is doing or why it is not ready.
    """

    ref: ObjectRef
    target: str  # node/NAME
    runtime: str
    inputs: Mapping[str, Any]
    inputs_digest: str
    render_digest: str | None
    source: Source | None
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


@dataclass(frozen=True, slots=True)
class TargetState:
    """What is known of a target beside its instances.

    `reachable` False: nothing may be concluded from what is absent. `missing` names the runtimes
    whose engine is not there, with the reason and how to get it. `renders` gives the digest of the
    Command that each workload would get here now, by ref: only a target can know it.
    `cached` are sha256 digests or sources of models that need no download.
    """

    target: str
    reachable: bool
    seen_at: float | None = None
    message: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    renders: Mapping[ObjectRef, str] = field(default_factory=dict)
    cached: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Observation:
    targets: Mapping[str, TargetState]
    instances: tuple[Instance, ...]


@dataclass(frozen=True, slots=True)
class FieldChange:
    path: str
    before: Any
    after: Any
    forces_restart: bool


@dataclass(frozen=True, slots=True)
class MemoryImpact:
    pool: str
    before_bytes: int | None
    after_bytes: int | None
    peak_bytes: int | None
    budget_bytes: int | None


@dataclass(frozen=True, slots=True)
class Impact:
    restart: Restart = Restart.NONE
    download_bytes: int | None = 0
    memory: tuple[MemoryImpact, ...] = ()
    downtime_seconds: float | None = None
    downtime_basis: str = "unknown"
    order: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a plan: what to do with one object on one target, and why."""

    action: Action
    target: str
    ref: ObjectRef
    reason: str
    source: Source | None
    message: str = ""
    fields: tuple[FieldChange, ...] = ()
    impact: Impact = Impact()
    desired: Workload | None = None
