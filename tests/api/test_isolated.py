"""Work on many things goes on without those for which it raises an exception."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.errors import SourceError
from reconciler.api.isolated import Crash, attempt, isolated


@given(st.integers(0, 60), st.sets(st.integers(0, 59), max_size=20))
def test_exactly_the_things_that_fail_are_left_out(count: int, bad: set[int]) -> None:
    bad = {number for number in bad if number < count}

    def work(numbers: Sequence[int]) -> list[float]:
        return [1 / (number not in bad) for number in numbers]

    outcome = isolated(range(count), work)

    assert not isinstance(outcome, Crash)
    done, left_out = outcome
    assert len(done) == count - len(bad)
    assert left_out.keys() == bad
    assert all("ZeroDivisionError" in why for why in left_out.values())


def test_of_things_that_fail_together_the_last_one_is_left_out() -> None:
    def work(numbers: Sequence[int]) -> int:
        assert not {2, 5} <= {*numbers}
        return len(numbers)

    outcome = isolated(range(8), work)

    assert not isinstance(outcome, Crash)
    assert outcome[0] == 7
    assert [*outcome[1]] == [5]


def test_work_that_fails_without_any_thing_fails_as_a_whole() -> None:
    def work(numbers: Sequence[int]) -> int:
        raise KeyError("x")

    outcome = isolated(range(3), work)

    assert isinstance(outcome, Crash)
    assert "KeyError: 'x'" in outcome.message


def test_with_too_many_failing_things_the_work_fails_as_a_whole() -> None:
    outcome = isolated(range(50), lambda numbers: [{}[n] for n in numbers])

    assert isinstance(outcome, Crash)


def test_an_error_that_people_can_act_on_is_raised() -> None:
    def work() -> None:
        raise SourceError("the disk is gone")

    with pytest.raises(SourceError, match="the disk is gone"):
        attempt(work)
