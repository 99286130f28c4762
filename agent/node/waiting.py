"""Services of a node that wait for a model: what is sent for, what of it may come, how it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent.models.expected import ExpectedFile
from agent.models.header_gate import HeaderGate
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Instance, Location
from reconciler.core.plan import Change, Plan
from reconciler.core.target import Outcome, Result
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import Workload
from reconciler.models.scheme import FetchContext
from reconciler.models.url import shown

if TYPE_CHECKING:
    from agent.models.store import ModelStore

_ON_ITS_WAY = "Downloading"


@dataclass(frozen=True, slots=True)
class _Expected:
    """A service that waits for a model, since when. `failure`: of the download before the one that
    is under way, which is said again only when it is another one. `begun`: its models may come;
    before, their headers are read."""

    workload: Workload
    source: Location | None
    since: float
    failure: str
    begun: bool


class WaitingServices:
    """Those of one node. One thread uses it."""

    def __init__(
        self,
        node: str,
        store: ModelStore,
        clock: Callable[[], float],
        file: ExpectedFile,
        headers: HeaderGate | None = None,
    ) -> None:
        """`file` is for commands that read this node's files. `headers` are read before models are
        fetched."""
        self._node = node
        self._store = store
        self._clock = clock
        self._file = file
        self._headers = headers
        self._context = FetchContext()  # of the revision that is applied now
        self._expected: dict[ObjectRef, _Expected] = {}

    def follow(self, context: FetchContext) -> None:
        """How the models of the revision that is applied now are fetched."""
        self._context = context

    def save(self) -> None:
        """Write again which services wait for their models."""
        self._file.save()

    def admit(self, plan: Plan) -> None:
        """Before a plan is applied: what it has no room for is not fetched, and what else is
        expected may begin. What has arrived of it stays until another needs its room."""
        for item in plan.blocked:
            if item.reason == "DiskFull":
                self.forget(item.ref)
        self._begin()

    def compare(
        self, workloads: Iterable[Workload], live: Mapping[ObjectRef, Instance]
    ) -> frozenset[ObjectRef]:
        """Against what is to be now, and asks for what may come. The services without a process
        whose models have come again, so that they can start."""
        workloads = tuple(workloads)
        back = frozenset(w.ref for w in workloads if self._is_back(w, live.get(w.ref)))
        self._drop_refused({w.ref for w in workloads if w.node == self._node})
        self._ask_again()
        return back

    def send_for(self, change: Change, workload: Workload) -> Outcome:
        """Have its models come. Where a process still runs, this comes up in each pass, and nothing
        else says how the download is: everybody is shown the process."""
        known = self._expected.get(change.ref)
        if known is not None and known.workload.inputs_digest != workload.inputs_digest:
            known = None
        since, failure = (known.since, known.failure) if known else (self._clock(), "")
        begun = known is not None and known.begun
        expected = _Expected(workload, change.source, since, failure, begun)
        self._expected[change.ref] = expected
        self._drop_downloads()
        self._begin()
        why = next((w for w in self.instances() if w.ref == change.ref), None)
        if why and why.reason != _ON_ITS_WAY:
            failure = f": {why.reason}: {why.message}"
            now = self._expected[change.ref]
            self._expected[change.ref] = replace(now, failure=failure)
        result = Result.SKIPPED if known else Result.APPLIED
        return Outcome(change, result, f"waits for its model{failure}")

    def forget(self, ref: ObjectRef) -> None:
        """It waits no more."""
        if self._expected.pop(ref, None) is not None:
            self._drop_downloads()
            self.instances()

    def instances(self) -> tuple[Instance, ...]:
        """The services that wait, as they are now; others may read the same from a file."""
        instances = (self._waiting(e.workload, e.source, e.since) for e in self._expected.values())
        waiting = tuple(instance for instance in instances if instance is not None)
        self._file.write(waiting)
        return waiting

    def _begin(self) -> None:
        """Let come what a plan with all that is known of it has room for."""
        for ref, expected in self._expected.items():
            if not expected.begun and self._may_begin(expected.workload):
                self._expected[ref] = replace(expected, begun=True)
        self._ask_again()

    def _ask_again(self) -> None:
        """Want every model that may come: one whose download failed is tried again after its
        pause."""
        for expected in self._expected.values():
            for model in expected.workload.model_files if expected.begun else ():
                self._store.ensure(model, self._context)

    def _may_begin(self, workload: Workload) -> bool:
        if self._headers is None:
            return True
        # What the store holds is verified again from the disk: no header has to be read.
        fetched = [m for m in self._absent(workload) if self._store.digest_of(m) is None]
        return self._headers.may_come(fetched)

    def _absent(self, workload: Workload) -> list[ModelFile]:
        return [m for m in workload.model_files if self._store.lookup(m) is None]

    def _is_back(self, workload: Workload, running: Instance | None) -> bool:
        """What a service expects, against what it is to be now. True: the model of one that has no
        process has come again, so that it can start."""
        expected = self._expected.get(workload.ref)
        is_same = running is not None and running.inputs_digest == workload.inputs_digest
        if expected is None or expected.workload.inputs_digest != workload.inputs_digest:
            if is_same:
                self.forget(workload.ref)  # a change that was taken back before its model came
            return False
        self._expected[workload.ref] = replace(expected, workload=workload)  # its sizes
        if running is None or not is_same or self._absent(workload):
            return False
        if running.pid is not None:
            self.forget(workload.ref)
        return running.pid is None

    def _drop_refused(self, meant: Set[ObjectRef]) -> None:
        """Nothing was fetched of what their headers have made known to be too large."""
        for ref in [r for r, e in self._expected.items() if not e.begun and r not in meant]:
            self.forget(ref)

    def _drop_downloads(self) -> None:
        """Drop downloads of models that are no longer expected: each holds one of few slots."""
        models = [m for each in self._expected.values() for m in each.workload.model_files]
        self._store.keep_only(models)

    def _waiting(
        self, workload: Workload, source: Location | None, since: float
    ) -> Instance | None:
        """A service whose model is on its way; None once all its models are here."""
        absent = self._absent(workload)
        if not absent:
            return None
        downloads = (self._store.download_of(model) for model in absent)
        failed = next((d for d in downloads if d and d.reason), None)
        return Instance(
            ref=workload.ref,
            target=f"node/{self._node}",
            runtime=workload.runtime,
            inputs=workload.inputs,
            inputs_digest=workload.inputs_digest,
            render_digest=None,
            source=source,
            ready=False,
            reason=failed.reason if failed else _ON_ITS_WAY,
            message=failed.message if failed else ", ".join(shown(m.source) for m in absent),
            since=since,
            needs=workload.needs,
            models=tuple(m.name for m in workload.models),
        )
