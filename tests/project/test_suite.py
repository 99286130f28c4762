"""How the tests are run: everything once, the longest first, and some of it alone."""

from __future__ import annotations

import heapq
import itertools
import random
import shlex
import subprocess
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tests.suite.distribution import Distribution
from tests.suite.progress import Progress
from tests.suite.run import repeating
from tests.suite.schedule import TASTES, Case, Unit, case_of, choose, units

_CASES = st.lists(
    st.builds(
        Case,
        id=st.uuids().map(lambda name: f"{str(name)[0]}.py::{name}"),
        seconds=st.sampled_from([0.05, 1.0, 20.0]),
        needs=st.sampled_from([frozenset(), frozenset({"cluster"})]),
        is_installed=st.booleans(),
        is_alone=st.sampled_from([False, False, False, True]),
    ),
    max_size=30,
)


def test_tests_of_a_file_stay_together_unless_they_take_long() -> None:
    short = [Case(f"a.py::{n}", 1.0) for n in range(3)]
    long = [Case(f"b.py::{n}", 10.0) for n in range(3)]

    found = units([*short, *long])

    assert [unit.cases for unit in found] == [*((case,) for case in long), tuple(short)]
    shared = [Case(f"c.py::{n}", 10.0, is_together=True) for n in range(3)]
    assert [unit.cases for unit in units(shared)] == [tuple(shared)]


def test_tests_of_programs_that_no_table_knows_are_divided_and_come_before_what_is_quick() -> None:
    quick = [case_of(f"a.py::{n}", (), (), {}) for n in range(50)]
    renamed = [case_of(f"b.py::{n}", ("e2e",), (), {}) for n in range(30)]

    assert [len(unit.cases) for unit in units([*quick, *renamed])] == [15, 15, 50]


def test_what_waits_for_a_build_comes_when_it_is_there() -> None:
    slow, quick = Unit((Case("a", 9.0, frozenset({"llama_server"})),)), Unit((Case("b"),))

    assert choose([slow, quick], set()) is quick
    assert choose([slow, quick], {"llama_server"}) is slow
    assert choose([slow], set()) is slow  # who has nothing else to do waits for it


def test_who_has_a_cluster_runs_what_needs_one_while_others_do_the_rest() -> None:
    needs = frozenset({"cluster"})
    dear, plain = Unit((Case("a", 9.0, needs),)), Unit((Case("b", 5.0),))

    assert choose([dear, plain], needs, likes=needs) is dear
    assert choose([dear, plain], needs) is plain
    assert choose([dear], needs) is dear
    assert choose([plain], needs, likes=needs) is plain


def test_who_has_an_installed_cluster_runs_what_needs_one() -> None:
    needs = frozenset({"cluster"})
    bare, installed = (
        Unit((Case("a", 9.0, needs),)),
        Unit((Case("b", 5.0, needs, is_installed=True),)),
    )
    first, _, third, _ = TASTES

    assert choose([bare, installed], needs, first) is installed
    assert choose([installed, bare], needs, third) is bare
    assert choose([Unit((Case("c"),)), bare], needs, first) is bare


@given(_CASES, st.integers(1, 5), st.integers(0, 99))
def test_every_test_runs_once_and_what_is_to_run_alone_runs_alone(
    cases: list[Case], workers: int, seed: int
) -> None:
    run = _Run(cases, workers, random.Random(seed))

    run.play()

    assert sorted(run.ended) == sorted(case.id for case in cases)
    assert run.crowded == []


@given(_CASES, st.integers(0, 20))
def test_a_worker_that_dies_costs_no_test_but_the_one_it_ran(
    cases: list[Case], crash_after: int
) -> None:
    run = _Run(cases, 3, random.Random(1), crash_after=crash_after)

    run.play()

    assert sorted([*run.ended, *run.crashed]) == sorted(case.id for case in cases)
    assert run.crowded == []


def test_the_command_that_repeats_a_test_survives_a_shell_and_make() -> None:
    assert repeating("a.py::test", 7) == 'make test SEED=7 T="a.py::test"'
    assert repeating("a.py::t[x y]", 7) == """make test SEED=7 T="'a.py::t[x y]'\""""
    for name in ("a.py::t[x y]", "a.py::t[$z 'q' \"d\" `b` \\ !]"):
        typed = repeating(name, 7).replace("make test", "make -s -f - test")
        makefile = 'test:\n\t@printf %s "$$T"\n'
        said = subprocess.run(typed, shell=True, input=makefile, text=True, capture_output=True)
        assert shlex.split(said.stdout) == [name], said


def test_a_line_says_how_far_a_run_is_and_what_runs_longest() -> None:
    now = [0.0]
    cases = {case.id: case for case in (Case("a", 60.0), Case("x::b", 240.0))}
    found = Progress(2, cases, clock=lambda: now[0])
    found.begins("a")
    found.begins("x::b")
    now[0] = 90.0
    found.ends("a")
    found.fails("a")

    # this machine takes half as long again as the one where the table was made
    assert found.line(200) == "01:30  1 of 2 done, 1 failed, about 6 min left  b (90 s)"
    assert found.line(20) == "01:30  1 of 2 don..."


@dataclass(eq=False)
class _Worker:
    """As pytest-xdist's: it runs a test when it knows the next one, or that there is none."""

    run: _Run
    collection: list[str]
    given: list[int] = field(default_factory=list)
    running: int | None = None
    shutting_down: bool = False

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.given += indices
        self.run.begin(self)

    def shutdown(self) -> None:
        self.shutting_down = True
        self.run.begin(self)


class _Run:
    """Workers on a clock that only goes on when one of them has finished a test."""

    def __init__(
        self,
        cases: list[Case],
        workers: int,
        chance: random.Random,
        crash_after: int | None = None,
    ) -> None:
        self._cases = {case.id: case for case in cases}
        self._chance = chance
        self._crash_after = crash_after
        self._distribution = Distribution(workers, lambda: cases, lambda: set())
        self._events: list[tuple[float, int, _Worker]] = []
        self._now = 0.0
        self._numbers = itertools.count()
        self._running: set[str] = set()
        self.ended: list[str] = []
        self.crashed: list[str] = []
        self.crowded: list[set[str]] = []  # what ran beside a test that is to run alone
        for _ in range(workers):
            self._join()

    def play(self) -> None:
        self._distribution.schedule()
        while self._events:
            self._now, _, worker = heapq.heappop(self._events)
            if worker.running is None:
                self._distribution.remove_node(worker)  # type: ignore[arg-type]
            elif len(self.ended) == self._crash_after:
                self._crash_after = None
                self._crash(worker)
            else:
                self._end(worker)
        assert self._distribution.tests_finished

    def begin(self, worker: _Worker) -> None:
        """Run the next test of a worker, if it can."""
        if worker.running is not None:
            return
        if worker.given and (len(worker.given) > 1 or worker.shutting_down):
            worker.running = worker.given.pop(0)
            name = worker.collection[worker.running]
            self._running.add(name)
            if len(self._running) > 1 and any(self._cases[n].is_alone for n in self._running):
                self.crowded.append({*self._running})
            self._push(self._cases[name].seconds * self._chance.uniform(0.5, 2.0), worker)
        elif worker.shutting_down and not worker.given:
            self._push(0.1, worker)

    def _end(self, worker: _Worker) -> None:
        index, worker.running = worker.running, None
        assert index is not None
        self._running.remove(worker.collection[index])
        self.ended.append(worker.collection[index])
        self._distribution.mark_test_complete(worker, index)  # type: ignore[arg-type]
        self.begin(worker)

    def _crash(self, worker: _Worker) -> None:
        assert worker.running is not None
        self._running.remove(worker.collection[worker.running])
        crashed = self._distribution.remove_node(worker)  # type: ignore[arg-type]
        assert crashed == worker.collection[worker.running]
        self.crashed.append(crashed)
        self._join()
        self._distribution.schedule()

    def _join(self) -> None:
        worker = _Worker(self, list(self._cases))
        self._distribution.add_node(worker)  # type: ignore[arg-type]
        self._distribution.add_node_collection(worker, worker.collection)  # type: ignore[arg-type]

    def _push(self, seconds: float, worker: _Worker) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._numbers), worker))
