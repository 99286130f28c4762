"""Who runs which tests, and when. Pure.

Tests of one file stay together, for what they share; a file that takes long is divided. The longest
come first, so that nobody waits for them at the end. What waits for a build comes when it is there.
Tests that need the machine for themselves come last, one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

USUAL_S = 0.05  # of a test that no table knows
# Of one that starts programs: a renamed file of them was one unit of four minutes, and came last.
_USUAL_E2E_S = 1.0
_CLUSTER, _INSTALLED = "cluster", "installed"
# What a worker likes to run, by its number: a cluster takes some seconds to start, and work while
# it idles; to make it one where `reconcile install` was run, or an empty one again, takes a second.
TASTES = (
    frozenset({_CLUSTER, _INSTALLED}),
    frozenset[str](),
    frozenset({_CLUSTER}),
    frozenset[str](),
)
_LONGEST_S = 15.0  # of a unit with more than one test


@dataclass(frozen=True, slots=True)
class Case:
    """One test. `needs` are names of builds."""

    id: str
    seconds: float = USUAL_S
    needs: frozenset[str] = frozenset()
    is_alone: bool = False
    is_together: bool = False  # with the others of its file
    is_installed: bool = False  # needs a cluster where `reconcile install` was run

    @property
    def file(self) -> str:
        return self.id.partition("::")[0]


@dataclass(frozen=True, slots=True)
class Unit:
    """Tests that one worker runs one after the other."""

    cases: tuple[Case, ...]

    @property
    def seconds(self) -> float:
        return sum(case.seconds for case in self.cases)

    @property
    def needs(self) -> frozenset[str]:
        return self.cases[0].needs

    @property
    def taste(self) -> frozenset[str]:
        installed = {_INSTALLED} if self.cases[0].is_installed else set[str]()
        return self.needs & {_CLUSTER} | installed


def units(cases: Iterable[Case]) -> tuple[Unit, ...]:
    """All tests that run beside others, the longest unit first; in a unit, and of units that take
    as long, the order is that of `cases`."""
    files: dict[tuple[str, frozenset[str], bool], list[Case]] = {}
    for case in cases:
        if not case.is_alone:
            files.setdefault((case.file, case.needs, case.is_installed), []).append(case)
    found = [Unit(part) for group in files.values() for part in _divided(group)]
    # Short ones stay in the order of this run: it is another one each time.
    return tuple(sorted(found, key=lambda unit: -max(unit.seconds, _LONGEST_S / 4)))


def alone(cases: Iterable[Case]) -> tuple[Case, ...]:
    """The tests that need a machine without others."""
    return tuple(case for case in cases if case.is_alone)


def choose(waiting: Sequence[Unit], there: Collection[str], likes: Collection[str] = ()) -> Unit:
    """The first whose builds are there, else the first, which then waits; of those, one that the
    worker `likes`, or that at least needs a cluster if the worker likes that, and none if not."""
    can = [unit for unit in waiting if unit.needs <= {*there}]
    liked = (unit for unit in can if unit.taste == likes)
    near = (unit for unit in can if (_CLUSTER in unit.taste) == (_CLUSTER in likes))
    return next(liked, None) or next(near, None) or next(iter(can), waiting[0])


def seconds_left(cases: Iterable[Case], workers: int) -> float:
    """How long these take, as far as is known."""
    cases = tuple(cases)
    last = sum(case.seconds for case in cases if case.is_alone)
    beside = [case.seconds for case in cases if not case.is_alone]
    return last + max(sum(beside) / max(workers, 1), max(beside, default=0.0))


def case_of(
    test_id: str, marks: Collection[str], builds: Collection[str], known: Mapping[str, float]
) -> Case:
    """A test by its markers; one that no table knows takes as long as its like usually do."""
    seconds = known.get(test_id, _USUAL_E2E_S if "e2e" in marks else USUAL_S)
    needs = frozenset(marks) & frozenset(builds)
    return Case(test_id, seconds, needs, "alone" in marks, "together" in marks, _INSTALLED in marks)


def _divided(group: Iterable[Case]) -> Iterator[tuple[Case, ...]]:
    """Parts that take no longer than _LONGEST_S, unless one test does."""
    part: list[Case] = []
    for case in group:
        takes_s = sum(each.seconds for each in part) + case.seconds
        if part and takes_s > _LONGEST_S and not case.is_together:
            yield tuple(part)
            part = []
        part.append(case)
    yield tuple(part)
