"""Hand tests to the workers of pytest-xdist, as tests.suite.schedule says.

A worker runs a test when it knows the next one, or that there is none: for what its fixtures take
down in between. So it always has one that it has not begun, and the first of the tests that run
alone is held there until every other worker is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from xdist.workermanage import WorkerController

from tests.suite import schedule
from tests.suite.schedule import Case, Unit


class Distribution:
    """What xdist calls a scheduler. `cases` are asked for when all workers have found the tests,
    `there` says which builds are there now."""

    def __init__(
        self,
        workers: int,
        cases: Callable[[], Iterable[Case]],
        there: Callable[[], Collection[str]],
    ) -> None:
        self._workers = workers
        self._find = cases
        self._cases: dict[str, Case] = {}
        self._there = there
        self._collections: dict[WorkerController, list[str]] = {}
        self._pending: dict[WorkerController, list[str]] = {}  # the first is running, or will
        self._likes: dict[WorkerController, frozenset[str]] = {}
        self._waiting: list[Unit] = []
        self._alone: list[Case] = []
        self._last: WorkerController | None = None  # who runs what runs alone
        self._has_begun = False

    @property
    def nodes(self) -> list[WorkerController]:
        return [*self._pending]

    @property
    def collection_is_completed(self) -> bool:
        return len(self._collections) >= self._workers

    @property
    def tests_finished(self) -> bool:
        return self._has_begun and not self.has_pending

    @property
    def has_pending(self) -> bool:
        return bool(self._waiting or self._alone or any(self._pending.values()))

    def add_node(self, node: WorkerController) -> None:
        """Half of the workers, and not more, run what needs a cluster while there is other work."""
        self._likes[node] = schedule.TASTES[len(self._likes) % len(schedule.TASTES)]
        self._pending[node] = []

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        known = next(iter(self._collections.values()), None)
        assert known in (None, list(collection)), f"{node} has found other tests than the others"
        self._collections[node] = list(collection)

    def schedule(self) -> None:
        """Called when all have collected, and again for a worker that replaces one that died."""
        if not self._has_begun:
            self._has_begun = True
            self._cases = {case.id: case for case in self._find()}
            self._waiting = [*schedule.units(self._cases.values())]
            self._alone = [*schedule.alone(self._cases.values())]
        for node in self.nodes:
            self._feed(node)

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        self._pending[node].remove(self._collections[node][item_index])
        self._feed(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """It ended; the test in which it died, if it did not end by itself."""
        crashed, *rest = self._pending.pop(node) or [None]
        for case in (self._cases[each] for each in rest):
            if case.is_alone:
                self._alone.insert(0, case)
            else:
                self._waiting.append(Unit((case,)))
        if node is self._last:
            self._last = None
        for other in self.nodes:
            self._feed(other)
        return crashed

    def mark_test_pending(self, item: str) -> None:
        raise NotImplementedError

    def remove_pending_tests_from_node(
        self, node: WorkerController, indices: Sequence[int]
    ) -> None:
        raise NotImplementedError

    def _feed(self, node: WorkerController) -> None:
        while not node.shutting_down and node in self._collections and len(self._pending[node]) < 2:
            if node is self._last and (self._waiting or len(self._pending) > 1):
                return  # until the others are gone
            if self._waiting:
                unit = schedule.choose(self._waiting, self._there(), self._likes[node])
                self._waiting.remove(unit)
                self._send(node, unit.cases)
            elif self._alone and self._last in (None, node):
                self._last = node
                self._send(node, (self._alone.pop(0),))
            else:
                node.shutdown()

    def _send(self, node: WorkerController, cases: Sequence[Case]) -> None:
        self._pending[node] += [case.id for case in cases]
        places = {each: place for place, each in enumerate(self._collections[node])}
        node.send_runtest_some([places[case.id] for case in cases])
