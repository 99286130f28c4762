"""What runs where and how it is: what there is to say. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from reconciler.api.benchmark import BenchmarkResult
from reconciler.api.meta import ObjectRef
from reconciler.api.nodestate import InstanceState, NodeState, RuntimeState
from reconciler.capacity.pools import taken_bytes
from reconciler.capacity.usage import sharers
from reconciler.core.observation import Instance, Observation, RuntimeFound, TargetState
from reconciler.report.speeds import of_instance
from reconciler.report.terminal import natural
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.apis import apis
from reconciler.runtimes.runtime import Api

Key = TypeVar("Key")
T = TypeVar("T")

MEANT = {  # not to run
    "Suspended": "suspended",
    "StoppedByHand": "stopped by hand",
    "Stopping": "stopping",
}


class DeclaredService(NamedTuple):
    """A service that should run on `node`, or that has none (None); `reason` and `message` say why
    it does not, where that is known. `cluster`: of a node that is a pool, whose it is. `since`: in
    epoch seconds, where that is known. A tuple: there are thousands, made and compared in each
    pass."""

    ref: ObjectRef
    reason: str = "NotRunning"
    message: str = ""
    node: str | None = None
    cluster: str | None = None
    since: float | None = None

    @property
    def is_meant(self) -> bool:
        """Whether it is as a person asked: nothing is late, and nothing is wrong."""
        return self.reason in MEANT

    @property
    def target(self) -> str | None:
        if self.node is None:
            return None
        return f"node/{self.node}" if self.cluster is None else f"cluster/{self.cluster}"


@dataclass(frozen=True)  # without slots: what is found by target and service is found once
class Status:
    """Everything that is known. `states` are the agents' own answers, by target; `revision` is the
    fleet's newest one, where it can be read; `others` run there too and are not to be shown;
    `speeds` are the tokens that pods write a second, by target and service; `left` are targets that
    the fleet does not declare any more; `is_part`: of services that somebody named."""

    observed: Observation
    declared: tuple[DeclaredService, ...] = ()
    states: Mapping[str, NodeState] = field(default_factory=dict)
    revision: str | None = None
    others: tuple[Instance, ...] = ()
    measured: Mapping[str, tuple[BenchmarkResult, ...]] = field(default_factory=dict)
    speeds: Mapping[str, Mapping[ObjectRef, float]] = field(default_factory=dict)
    left: frozenset[str] = frozenset()
    is_part: bool = False

    def benchmarks(self, instance: Instance) -> tuple[tuple[BenchmarkResult, str | None], ...]:
        """How fast its models were measured to be where it runs, each with why that is not to be
        used any more."""
        target = instance.target
        if not self.results(target):
            return ()
        service = instance.ref.label
        results = (result for result in self.results(target) if result.service == service)
        seen = self.observed.targets.get(target)
        now = (seen.seen_at if seen else None) or 0.0
        versions = {runtime.name: runtime.version for runtime in self.runtimes(target)}
        return of_instance(results, instance, versions, now)

    def results(self, target: str) -> tuple[BenchmarkResult, ...]:
        """All that was measured there."""
        answer = self.states.get(target)
        return self.measured.get(target) or (answer.benchmarks if answer else ())

    def runtimes(self, target: str) -> tuple[RuntimeFound | RuntimeState, ...]:
        """What engines there are, by the target itself or by its agent."""
        seen, answer = self.observed.targets.get(target), self.states.get(target)
        return (seen.runtimes if seen else None) or (answer.runtimes if answer else None) or ()

    def tokens_per_second(self, instance: Instance) -> float | None:
        """The tokens that it writes now, as the mean of the last minute; None: unknown."""
        if not instance.has_process:  # its last minute is over
            return None
        if (speed := self.speeds.get(instance.target, {}).get(instance.ref)) is not None:
            return speed
        reported = self._reported(instance)
        return reported.tokens_per_second if reported else None

    def requests_in_flight(self, instance: Instance) -> int | None:
        """The number of requests that its engine is answering; None: unknown."""
        if not instance.has_process:
            return None
        reported = self._reported(instance)
        return reported.requests_in_flight if reported else None

    def _reported(self, instance: Instance) -> InstanceState | None:
        """What its agent says of it, the first of several; None: it has none that says anything."""
        answers, target = self._answers, instance.target
        if target not in answers:
            answers[target] = {i.name: i for i in reversed(self.reported(target))}
        return answers[target].get(instance.ref.label)

    def reported(self, target: str) -> tuple[InstanceState, ...]:
        """What its agent says of what runs there; empty: it has none that says anything."""
        answer = self.states.get(target)
        return answer.instances if answer else ()

    @property
    def silent(self) -> set[str]:
        """Targets that gave no answer. A machine that left the fleet need not."""
        targets = self.observed.targets.items()
        return {target for target, state in targets if not state.reachable} - self.left

    @property
    def refs(self) -> set[ObjectRef]:
        """What there is to say something of."""
        return {*self._of, *self._meant}

    def narrowed(self, refs: Collection[ObjectRef]) -> Status:
        """These services, and the targets that they are or should be on."""
        instances = self.observed.instances
        shown = tuple(i for i in instances if i.ref in refs)
        declared = tuple(d for d in self.declared if d.ref in refs)
        ending = {d.target for d in self.ending if d.ref in refs}
        named = {i.target for i in shown} | {d.target for d in declared} | ending
        targets = {
            target: replace(state, leaving={r: m for r, m in state.leaving.items() if r in refs})
            for target, state in self.observed.targets.items()
            if target in named
        }
        others = (*self.others, *(i for i in instances if i.ref not in refs))
        return replace(
            self,
            observed=Observation(targets, shown),
            declared=declared,
            others=others,
            is_part=True,
        )

    def on(self, target: str) -> list[Instance]:
        """What runs there, in order."""
        return sorted(self._on.get(target, ()), key=lambda i: natural(i.ref.label))

    def taking(self, target: str) -> list[Instance]:
        """What runs there, also what is not to be shown: it takes memory all the same."""
        return [*self._on.get(target, ()), *self._others_on.get(target, ())]

    def of(self, ref: ObjectRef) -> list[Instance]:
        """Where a service runs."""
        return self._of.get(ref, [])

    def meant(self, ref: ObjectRef) -> list[DeclaredService]:
        """Where a service should run, or is to end."""
        return self._meant.get(ref, [])

    def sharers(self, target: str) -> Mapping[tuple[str, str], int]:
        """How many of what runs there map each file of a pool."""
        return self._sharers.get(target, {})

    @property
    def targets(self) -> set[str | None]:
        """Where anything runs, or should; None: nowhere yet."""
        return {*self.observed.targets, *self._on, *self._declared_on, *self._ending_on}

    def declared_on(self, target: str | None) -> list[DeclaredService]:
        """What should run there, or is to end; None: what has no node at all."""
        return [*self._ending_on.get(target, ()), *self._declared_on.get(target, ())]

    def absent(self, target: str | None) -> list[DeclaredService]:
        """What should run there and does not; None: what has no node at all."""
        there = {*self._of} if target is None else {i.ref for i in self.on(target)}
        ending = [d for d in self._ending_on.get(target, ()) if d.ref not in there]
        there |= {d.ref for d in ending}
        absent = (d for d in self._declared_on.get(target, ()) if d.ref not in there)
        return sorted((*ending, *absent), key=lambda d: natural(d.ref.label))

    @property
    def waits(self) -> bool:
        """Whether something is not as the newest revision has it, and stays so for a reason that is
        shown: an update, a whole revision, what runs on a machine that left the fleet."""
        declared = {(d.target, d.ref): d for d in self.declared}
        if any(_waits(i, declared.get((i.target, i.ref))) for i in self.observed.instances):
            return True
        states = self.observed.targets.values()
        if any(state.reachable for state in states if state.target in self.left):
            return True
        revisions = (state.revision for state in states if state.revision and not self.is_part)
        return any(its.refused or its.held or its.lost_since is not None for its in revisions)

    @property
    def ending(self) -> tuple[DeclaredService, ...]:
        """What is not to run on a machine any more, and whose process lives."""
        return tuple(
            DeclaredService(ref, "Stopping", message, target.removeprefix("node/"))
            for target, state in self.observed.targets.items()
            for ref, message in state.leaving.items()
            if target.startswith("node/")
        )

    @cached_property
    def _on(self) -> dict[str, list[Instance]]:
        return _grouped((i.target, i) for i in self.observed.instances)

    @cached_property
    def _others_on(self) -> dict[str, list[Instance]]:
        return _grouped((i.target, i) for i in self.others)

    @cached_property
    def _of(self) -> dict[ObjectRef, list[Instance]]:
        return _grouped((i.ref, i) for i in self.observed.instances)

    @cached_property
    def _meant(self) -> dict[ObjectRef, list[DeclaredService]]:
        return _grouped((d.ref, d) for d in (*self.ending, *self.declared))

    @cached_property
    def _sharers(self) -> dict[str, Mapping[tuple[str, str], int]]:
        taking = {target: self.taking(target) for target in (*self._on, *self._others_on)}
        return {t: sharers(i.needs for i in on if i.pid is not None) for t, on in taking.items()}

    @cached_property
    def _ending_on(self) -> dict[str | None, list[DeclaredService]]:
        return _grouped((d.target, d) for d in self.ending)

    @cached_property
    def _declared_on(self) -> dict[str | None, list[DeclaredService]]:
        return _grouped((d.target, d) for d in self.declared)

    @cached_property
    def _answers(self) -> dict[str, dict[str, InstanceState]]:
        """By target and `NAMESPACE/NAME`, where anybody has asked: `_reported` fills it."""
        return {}


def _grouped(rows: Iterable[tuple[Key, T]]) -> dict[Key, list[T]]:
    groups: dict[Key, list[T]] = {}
    for key, row in rows:
        groups.setdefault(key, []).append(row)
    return groups


def is_well(instance: Instance, declared: DeclaredService | None) -> bool:
    """Whether it answers, is what is declared, and nothing is to be reported of it."""
    reason = declared is not None and declared.message
    broken = len(advertised(instance)) < len(instance.models)
    return instance.ready and not (reason or broken or instance.pending or instance.drifts)


def _waits(instance: Instance, declared: DeclaredService | None) -> bool:
    """Whether it stays as it was declared before, and nobody meant that."""
    reason = declared is not None and declared.message and not declared.is_meant
    return instance.pending is not None or bool(reason)


@dataclass(frozen=True, slots=True)
class PoolUse:
    """A memory pool with what our services take of it, estimated. None: not known, because one of
    them could not be estimated for instance."""

    name: str
    used_bytes: int | None
    budget_bytes: int | None
    others_bytes: int | None


def pool_uses(state: TargetState, instances: Iterable[Instance]) -> tuple[PoolUse, ...]:
    """The node's pools, in its order."""
    running = [i for i in instances if i.pid is not None]
    needs = [i.needs for i in running]
    return tuple(
        PoolUse(
            p.name,
            taken_bytes(needs, p.name) if all(needs) else None,
            p.budget_bytes,
            p.used_by_others_bytes,
        )
        for p in state.pools
    )


def advertised(instance: Instance) -> tuple[str, ...]:
    """The models that clients may ask for: not those that failed, or that no router lists."""
    broken = {
        m.name
        for m in instance.served
        if m.state in ("failed", "quarantined") or m.reason == "NotListed"
    }
    return tuple(name for name in instance.models if name not in broken)


def is_asleep(instance: Instance) -> bool:
    """Whether it answers, and loads its model on the first request."""
    return bool(instance.served) and all(m.state == "sleeping" for m in instance.served)


def state_word(instance: Instance) -> str:
    """How it is, in one word."""
    if not instance.ready or instance.is_scaled_to_zero:
        return instance.reason
    return "Sleeping" if is_asleep(instance) else "Ready"


def speaks(instance: Instance) -> tuple[Api, ...]:
    """What clients may ask of it, as it was started."""
    row = RUNTIMES.get(instance.runtime)
    parts = (instance.inputs.get(part) for part in ("settings", "lifecycle"))
    settings, lifecycle = (part if isinstance(part, Mapping) else {} for part in parts)
    return apis(row, settings, lifecycle) if row else ()


def base_url(instance: Instance) -> str | None:
    """What clients of OpenAI's API take as their address."""
    return f"{instance.endpoint}/v1" if instance.endpoint else None
