"""Carry out what a plan says of the objects of one cluster.

Stage by stage, in parallel within one: a stage orders writes and never waits for readiness. One bad
object blocks only what depends on it, and every failure is reported.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby

from reconciler.api.errors import ReconcilerError
from reconciler.api.meta import ObjectRef
from reconciler.core.plan import Action, Change
from reconciler.core.target import Outcome, Result
from reconciler.kube.apply.refusals import Refusals
from reconciler.kube.apply.writer import ObjectWriter
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.errors import Faltered, Unreachable
from reconciler.kube.client.pace import Pace
from reconciler.kube.diff.private import scrubbed
from reconciler.kube.objects import AUTOSCALERS, Manifest, ObjectId, kind_of

log = logging.getLogger(__name__)

THREADS = 8  # the server is the bottleneck; more gains nothing on a small one
MOST_FALTERS = 8  # in a row: then it is the server, and not what it was asked for
LONGEST_WAIT_S = 60.0  # that one object waits in all for a server that asks for pauses


def apply_objects(
    api: ApiServer,
    changes: Iterable[Change],
    live: Mapping[ObjectId, Manifest],
    fleet: str,
    *,
    refusals: Refusals | None = None,
    write_refusal: Callable[[], str | None] = lambda: None,
    threads: int = THREADS,
    longest_wait_s: float = LONGEST_WAIT_S,
    within_s: float = math.inf,
) -> tuple[Outcome, ...]:
    """What became of each change that names an object, in the order of stages: what waits for its
    next attempt stands where it would be tried, so that the first that failed stays the first. What
    is not begun `within_s` has no outcome: it is left to the next pass.
    `live` is what the plan was made from; `refusals`, which this adds to, say what waits for its
    next attempt. Blocks on no readiness and on no finalizer. `write_refusal` is asked
    before each: why nothing more may be written, as another process does so now."""
    wanted = [c for c in changes if c.object is not None and not c.is_shown_only]
    refusals = refusals or Refusals()
    now = time.monotonic()
    writer, pace = ObjectWriter(api, fleet, live), Pace(threads, longest_wait_s)
    run = _Run(writer, pace, write_refusal, refusals, now + within_s)
    due, waiting = refusals.split(wanted, now)
    outcomes = [*waiting]
    run.learn(outcomes)
    with ThreadPoolExecutor(threads, thread_name_prefix=f"apply-{api.name}") as pool:
        for stage in _stages(due):
            outcomes += filter(None, pool.map(run.one, stage))
            run.learn(outcomes)
    return tuple(sorted(outcomes, key=lambda outcome: _turn(outcome.change)))


def object_id(change: Change) -> ObjectId:
    """The identity of the object that a change is about."""
    assert change.object is not None
    named = change.object
    return ObjectId(named.api_version.rpartition("/")[0], named.kind, named.namespace, named.name)


def _stages(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Changes that may be made at the same time."""
    for _, together in groupby(sorted(changes, key=_turn), key=lambda change: _turn(change)[:2]):
        yield list(together)


def _turn(change: Change) -> tuple[int, int, ObjectId]:
    """An autoscaler is removed first, before we take its field back; other removals come last,
    dependents before what they depend on."""
    oid = object_id(change)
    stage = kind_of(oid).stage
    if change.action is not Action.DELETE:
        return (1, stage, oid)
    return (0, 0, oid) if oid.kind in AUTOSCALERS else (2, -stage, oid)


@dataclass(slots=True)
class _Run:
    """One pass over a cluster's objects."""

    writer: ObjectWriter
    pace: Pace
    write_refusal: Callable[[], str | None]
    refusals: Refusals
    until: float  # monotonic; nothing is begun later
    has_begun: bool = False
    failed: dict[ObjectRef, str] = field(default_factory=dict)  # what went wrong, by service
    closed: dict[str, str] = field(default_factory=dict)  # namespaces that do not exist
    missing: dict[str, str] = field(default_factory=dict)  # groups whose definitions failed
    falters: int = 0  # in a row
    down: str = ""  # why nothing more is tried

    def one(self, change: Change) -> Outcome | None:
        """None: it was not begun. One is, however late it is: passes come to an end."""
        if self.has_begun and time.monotonic() > self.until:
            return None
        self.has_begun = True
        oid = object_id(change)
        if why := self.down or self.write_refusal():
            return Outcome(change, Result.SKIPPED, why)
        if waits := self._waits(change, oid):
            return Outcome(change, Result.SKIPPED, f"waits for {waits}")
        try:
            refused = self.pace.run(lambda: self.writer.carry_out(change, oid))
        except Unreachable as error:
            self.falters += 1
            if not isinstance(error, Faltered) or self.falters >= MOST_FALTERS:
                self.down = str(error)
            return self._failed(change, oid, error)
        except ReconcilerError as error:
            outcome = self._failed(change, oid, error)
            self.refusals.refused(change, outcome.message, time.monotonic())
            return outcome
        self.falters = 0
        self.refusals.taken(change)
        log.info(
            "%s %s on %s%s", change.action, oid.label, change.target, f": {refused}" * bool(refused)
        )
        return Outcome(change, Result.APPLIED, refused)

    def _failed(self, change: Change, oid: ObjectId, error: ReconcilerError) -> Outcome:
        why = scrubbed(str(error), self.writer.live.get(oid), change.manifest or {})
        return Outcome(change, Result.FAILED, why)

    def learn(self, outcomes: Iterable[Outcome]) -> None:
        """After each stage: which changes have to wait now."""
        for outcome in outcomes:
            if outcome.result is not Result.FAILED:
                continue
            oid = object_id(outcome.change)
            self.failed.setdefault(outcome.change.ref, oid.label)
            if oid.kind == "Namespace":
                self.closed[oid.name] = oid.label
            if oid.kind == "CustomResourceDefinition":
                self.missing[oid.name.partition(".")[2]] = oid.label

    def _waits(self, change: Change, oid: ObjectId) -> str | None:
        return (
            self.failed.get(change.ref)
            or self.closed.get(oid.namespace)
            or self.missing.get(oid.group)
        )
