"""Which models to measure now, what to write down, and what is over. Pure.

A measurement is one Job. It stays until its result is written, or until its failure was long enough
ago for another attempt: what is there says all that the next pass must know.

What is in a namespace, anybody with rights there may have written: it says something of that
namespace's services alone. So each namespace measures for itself (decision 0061).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from reconciler.api.benchmark import CLOCK_SLACK_S, BenchmarkKey, BenchmarkResult
from reconciler.api.meta import ObjectRef
from reconciler.backoff import backoff_s
from reconciler.kube.benchmarks.subjects import MeasurableService, ServingPod
from reconciler.kube.benchmarks.unserved import UnservedClass
from reconciler.kube.objects import ObjectId
from reconciler.timestamps import timestamp

MOST_AT_ONCE = 4  # in a cluster; of each class of devices: one
MOST_STARTED = 2  # of these; they download, and may wait long for a GPU that somebody else has
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 600.0, 86_400.0
_FORGET_S = 2 * _LONGEST_PAUSE_S

ScopedKey = tuple[str, BenchmarkKey]  # a namespace, and what was measured for it


@dataclass(frozen=True, slots=True)
class NeededBenchmark:
    """A key that a service's pod has, or would have on devices where none runs. `asked`: the words
    of who wants it measured again."""

    key: BenchmarkKey
    service: MeasurableService
    place: ServingPod | UnservedClass
    asked: str | None = None

    @property
    def scoped(self) -> ScopedKey:
        return self.service.ref.namespace, self.key

    @property
    def order(self) -> tuple[bool, ObjectRef, str]:
        """What serves is asked before anything is started."""
        return isinstance(self.place, UnservedClass), self.service.ref, self.place.name


@dataclass(frozen=True, slots=True)
class KnownResult:
    """One ConfigMap. `result` is None where it is `refused`."""

    oid: ObjectId
    result: BenchmarkResult | None
    refused: str = ""
    asked: str | None = None


class JobProgress(Enum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """One Job. `key` is None where nobody can read any more what it is for; `ended_at` in epoch
    seconds; `result` is of one that is done, `why` of one that failed. `starts` an engine."""

    oid: ObjectId
    service: ObjectRef
    key: BenchmarkKey | None
    number: int
    progress: JobProgress
    ended_at: float = 0.0
    result: BenchmarkResult | None = None
    why: str = ""
    asked: str | None = None
    starts: bool = False

    @property
    def scoped(self) -> tuple[str, BenchmarkKey | None]:
        return self.service.namespace, self.key


@dataclass(frozen=True, slots=True)
class BenchmarkDecision:
    """`create`: what to measure, and which attempt it is. `write`: results that are not written
    yet, with the attempt that has them. `remove`: objects and why. `failed` is what people should
    hear, `waiting` what they may ask for, by service."""

    create: tuple[tuple[NeededBenchmark, int], ...] = ()
    write: tuple[tuple[BenchmarkResult, JobAttempt], ...] = ()
    remove: Mapping[ObjectId, str] = field(default_factory=dict)
    failed: Mapping[ObjectRef, str] = field(default_factory=dict)
    waiting: Mapping[ObjectRef, str] = field(default_factory=dict)


def pause_s(attempt: int) -> float:
    """How long after the end of an attempt that failed there is another one."""
    return backoff_s(attempt, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)


def decide(
    needs: Iterable[NeededBenchmark],
    evidence: Collection[KnownResult],
    attempts: Collection[JobAttempt],
    *,
    services: Collection[ObjectRef],
    served: Collection[tuple[str, str, str]],
    now: float,
) -> BenchmarkDecision:
    """`services` are those that may be measured, whether or not a pod of them is ready now;
    `served` is (namespace, digest of a model, runtime) of all that is declared there."""
    needed = _by_key(needs)
    missing = {k: n for k, n in needed.items() if not any(_counts(e, n, now) for e in evidence)}
    write = tuple(_unwritten(attempts, evidence, now))
    written = {(attempt.service.namespace, result.key) for result, attempt in write}
    turns = _Turns.of(a for a in attempts if a.progress is JobProgress.RUNNING)
    create, failed, waiting, again = [], {}, {}, set[ObjectId]()
    for need, last in _in_turn(missing, attempts):
        ref = need.service.ref
        if need.scoped in written:
            continue
        if last is not None and last.progress is JobProgress.RUNNING:
            waiting[ref] = f"{last.oid.label} measures it now"
            continue
        is_same = last is not None and last.asked == need.asked
        if (
            last is not None
            and is_same
            and now < (due := _ended_at(last, now) + pause_s(last.number))
        ):
            failed[ref] = _failure(last, need, due)
        elif isinstance(need.place, UnservedClass) and not need.place.is_free:
            waiting[ref] = f"its pods and others of the fleet have every GPU of {need.key.device}"
        elif not turns.take(need):
            waiting[ref] = "another measurement is to end first"
        else:
            create.append((need, last.number + 1 if last is not None else 1))
            again |= {a.oid for a in attempts if a.scoped == need.scoped}
    over = {
        attempt.oid: why
        for attempt in attempts
        if (why := _is_over(attempt, _Known(needed, missing, written, again), services, now))
    }
    gone = {e.oid: why for e in evidence if (why := _is_useless(e, evidence, needed, served, now))}
    return BenchmarkDecision(tuple(create), write, {**over, **gone}, failed, waiting)


@dataclass(slots=True)
class _Turns:
    """Who measures: on devices of one class one at a time, as they may share a node."""

    busy: Counter[str]
    started: int

    @classmethod
    def of(cls, running: Iterable[JobAttempt]) -> _Turns:
        running = tuple(running)
        busy = Counter(str(a.key.device) if a.key else "" for a in running)
        return cls(busy, sum(a.starts for a in running))

    def take(self, need: NeededBenchmark) -> bool:
        device, starts = str(need.key.device), isinstance(need.place, UnservedClass)
        if self.busy[device] or self.busy.total() >= MOST_AT_ONCE:
            return False
        if starts and self.started >= MOST_STARTED:
            return False
        self.busy[device] += 1
        self.started += starts
        return True


def _by_key(needs: Iterable[NeededBenchmark]) -> dict[ScopedKey, NeededBenchmark]:
    """One of those with the same key in a namespace: the first by name, with the last that was
    asked for."""
    by_key: dict[ScopedKey, NeededBenchmark] = {}
    for need in sorted(needs, key=lambda n: n.order):
        first = by_key.setdefault(need.scoped, need)
        asked = max(filter(None, (first.asked, need.asked)), default=None)
        by_key[need.scoped] = replace(first, asked=asked)
    return by_key


def _counts(evidence: KnownResult, need: NeededBenchmark, now: float) -> bool:
    """Accept a result of any build where nothing serves: a new image is not worth a download for
    each class, and the extender takes the newest of them."""
    result, key = evidence.result, need.key
    if evidence.oid.namespace != need.service.ref.namespace:
        return False
    if result is not None and isinstance(need.place, UnservedClass):
        key = key.model_copy(update={"build": result.key.build})
    if result is None or result.stale(now, key) is not None:
        return False
    return need.asked is None or evidence.asked == need.asked


def _in_turn(
    missing: Mapping[ScopedKey, NeededBenchmark], attempts: Collection[JobAttempt]
) -> list[tuple[NeededBenchmark, JobAttempt | None]]:
    """Each with its last attempt; of what serves, and of the others, what was never tried is
    first."""
    last = {a.scoped: a for a in sorted(attempts, key=lambda a: a.number)}
    pairs = [(need, last.get(key)) for key, need in missing.items()]
    return sorted(
        pairs,
        key=lambda p: (p[0].order[0], p[1].ended_at if p[1] else 0.0, p[0].service.ref),
    )


def _unwritten(
    attempts: Iterable[JobAttempt], evidence: Collection[KnownResult], now: float
) -> Iterable[tuple[BenchmarkResult, JobAttempt]]:
    for attempt in attempts:
        result = attempt.result
        if result is None or result.stale(now) is not None:
            continue
        own = (e.result for e in evidence if e.oid.namespace == attempt.oid.namespace)
        same = (other for other in own if other is not None and other.key == result.key)
        if not any(other.measured_at >= result.measured_at for other in same):
            yield result, attempt


def _ended_at(attempt: JobAttempt, now: float) -> float:
    """A time that is far from now is a wrong clock's, or somebody's: nothing waits for it."""
    return attempt.ended_at if attempt.ended_at <= now + CLOCK_SLACK_S else 0.0


def _failure(attempt: JobAttempt, need: NeededBenchmark, due: float) -> str:
    why = attempt.why or "it left no result that counts"
    return (
        f"{need.service.model} on {need.key.device} was not measured (attempt {attempt.number}:"
        f" {why}); tried again after {timestamp(due)}"
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """What this pass found, of keys and of Jobs that others take the place of."""

    needed: Collection[ScopedKey]
    missing: Collection[ScopedKey]
    written: Collection[ScopedKey]
    again: Collection[ObjectId]


def _is_over(
    attempt: JobAttempt, known: _Known, services: Collection[ObjectRef], now: float
) -> str:
    """Why a Job can go; empty: it cannot. A failure stays for as long as its pause may matter."""
    key = attempt.scoped
    if attempt.key is None:
        return "nobody can read any more what it measures"
    if attempt.service not in services:
        return "its service is not measured any more"
    if attempt.oid in known.again:
        return "another attempt takes its place"
    if attempt.progress is JobProgress.RUNNING or key in known.missing or key in known.written:
        return ""
    if attempt.progress is JobProgress.DONE or key in known.needed:
        return "its result is written"
    return "what it measured is not there any more" if now - attempt.ended_at > _FORGET_S else ""


def _is_useless(
    evidence: KnownResult,
    others: Collection[KnownResult],
    needed: Collection[ScopedKey],
    served: Collection[tuple[str, str, str]],
    now: float,
) -> str:
    """Why a ConfigMap goes; empty: it stays."""
    result, namespace = evidence.result, evidence.oid.namespace
    if result is None:
        return evidence.refused
    if (namespace, result.key.model, result.key.runtime) not in served:
        return "its model is not served any more"
    own = (e.result for e in others if e.oid.namespace == namespace)
    newer = (other for other in own if other is not None and other.key == result.key)
    if any(other.measured_at > result.measured_at for other in newer):
        return "there is a newer one"
    old = result.out_of_date(now)
    return old if old is not None and (namespace, result.key) not in needed else ""
