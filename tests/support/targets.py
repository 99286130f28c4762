"""A target in memory that can fail on cue: the one fake that the loop's tests use.

tests/loop/test_target_contract.py holds it against the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from reconciler.api.errors import ApplyError
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance, Location, Observation, TargetState
from reconciler.core.plan import Action, Change
from reconciler.core.prune import Before
from reconciler.core.target import Outcome, Result
from reconciler.fleet.workload import Workload
from reconciler.loop.desired import Desired
from reconciler.source.checkout import Checkout
from reconciler.source.history import NotedRevision, RevisionVerdict, SourceRecord
from reconciler.source.load import Loaded
from reconciler.source.verdict import Acceptance, Course, HeadVerdict


class NoJournal:
    """Nothing is remembered, every revision is the first."""

    before = Before()
    record = SourceRecord()

    def accept(self, checkout: Checkout, acceptance: Acceptance) -> HeadVerdict:
        return HeadVerdict(Course.FIRST, take=True)

    def judged(self, verdict: RevisionVerdict | None) -> None:
        self.record = replace(self.record, verdict=verdict)

    def lost(self, why: str) -> float:
        return 0.0

    def source_answered(self) -> None:
        """Nothing to forget."""

    def held_paths(self) -> frozenset[str]:
        return frozenset()

    def recall(self, noted: NotedRevision, read: Callable[[Checkout], Loaded]) -> None:
        """Nothing to remember."""

    def last_good(self) -> Checkout | None:
        return None

    def begins(self, desired: Desired) -> None:
        """Nothing to remember."""

    def applied(self, desired: Desired) -> None:
        """Nothing to remember."""


@dataclass
class InMemoryTarget:
    """Runs nothing and remembers everything. `fails` are refs whose next change goes wrong."""

    node: str = "mac"
    reachable: bool = True
    missing: dict[str, str] = field(default_factory=dict)
    fails: set[ObjectRef] = field(default_factory=set)
    instances: dict[ObjectRef, Instance] = field(default_factory=dict)
    pids: int = 1000

    def observe(self, workloads: Iterable[Workload]) -> Observation:
        target = f"node/{self.node}"
        if not self.reachable:
            return Observation({target: TargetState(target, False, message="unplugged")}, ())
        state = TargetState(target, True, missing=self.missing)
        return Observation({target: state}, tuple(self.instances.values()))

    def apply(self, change: Change) -> Outcome:
        if change.ref in self.fails:
            self.fails.discard(change.ref)
            raise ApplyError(change.ref, "failed on cue")
        match change.action:
            case Action.DELETE | Action.STOP | Action.MOVE:
                self.instances.pop(change.ref, None)
            case Action.UPDATE:
                self.instances[change.ref] = self._described(change)
            case Action.UNKNOWN | Action.DEFERRED:
                return Outcome(change, Result.SKIPPED)
            case _:
                self.pids += 1
                self.instances[change.ref] = self._started(change)
        return Outcome(change, Result.APPLIED)

    def names(self) -> set[str]:
        return {ref.name for ref in self.instances}

    def pid(self, name: str) -> int | None:
        return next(i.pid for ref, i in self.instances.items() if ref.name == name)

    def _described(self, change: Change) -> Instance:
        assert change.desired is not None
        return replace(
            self.instances[change.ref],
            inputs=change.desired.inputs,
            inputs_digest=change.desired.inputs_digest,
        )

    def _started(self, change: Change) -> Instance:
        want = change.desired
        assert want is not None
        commit = change.source.commit if change.source else None
        return Instance(
            ref=want.ref,
            target=f"node/{self.node}",
            runtime=want.runtime,
            inputs=want.inputs,
            inputs_digest=want.inputs_digest,
            render_digest=None,
            source=Location(want.origin.path, want.origin.line, commit),
            ready=True,
            reason="Ready",
            pid=self.pids,
            needs=want.needs,
            models=tuple(m.name for m in want.models),
        )
