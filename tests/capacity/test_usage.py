"""What is really taken of a pool, against what was estimated; and what others take of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.capacity.usage import Use, deviation, intrudes, sharers, used_by_others
from reconciler.fleet.workload import PoolNeed
from tests.support.builders import GIB


def test_what_no_process_of_ours_takes_is_used_by_others() -> None:
    assert used_by_others(10 * GIB, [Use(4 * GIB, 3 * GIB, 3 * GIB), Use(GIB, GIB, GIB)]) == 6 * GIB


def test_mapped_weights_are_not_subtracted_from_what_is_in_use() -> None:
    # 20 GiB of mapped weights, which the kernel counts as available, and 2 GiB of its own.
    assert used_by_others(5 * GIB, [Use(23 * GIB, 22 * GIB, 2 * GIB)]) == 3 * GIB


@pytest.mark.parametrize(
    ("use", "ours"),
    [
        (Use(4 * GIB, 5 * GIB, 5 * GIB), 4 * GIB),  # it takes more than its estimate
        (Use(5 * GIB, 8 * GIB, 4 * GIB), GIB),  # 4 mapped, and 3 more than was expected
        (Use(0, 3 * GIB, 3 * GIB), 0),  # nobody estimated it: nothing set it aside
    ],
)
def test_what_a_process_takes_beyond_its_estimate_counts_as_nobodys(use: Use, ours: int) -> None:
    assert used_by_others(10 * GIB, [use]) == 10 * GIB - ours


@pytest.mark.parametrize(
    ("others", "total", "stated", "expected"),
    [
        (3, 32, 32, 3),  # the seed's arithmetic: all of it counts
        (3, 32, 24, 0),  # 8 are set aside already
        (10, 32, 24, 2),
        (3, 32, None, 3),
        (3, 16, 32, 3),  # more stated than there is: not our arithmetic to repair
    ],
)
def test_only_what_exceeds_the_part_left_aside_counts(
    others: int, total: int, stated: int | None, expected: int
) -> None:
    assert intrudes(others, total, stated) == expected


@given(st.integers(0, 100), st.lists(st.builds(Use, *[st.integers(0, 100)] * 3)))
def test_others_are_never_negative_and_never_more_than_is_in_use(
    in_use: int, ours: list[Use]
) -> None:
    assert 0 <= used_by_others(in_use, ours) <= in_use


def test_the_estimate_is_compared_with_what_is_measured() -> None:
    needs = (PoolNeed("host", 100, 999), PoolNeed("device0", 300, 999))

    assert deviation(needs, [("host", 110), ("device0", 330)]) == pytest.approx(0.1)
    assert deviation(needs, [("host", 90)]) == pytest.approx(-0.1)  # the device is not known
    assert deviation(needs, []) is None
    assert deviation((), [("host", 90)]) is None


def test_a_shared_file_is_expected_in_equal_parts() -> None:
    needs = (PoolNeed("host", 100, 999, (("sha", 80),)),)
    both = sharers([needs, needs])

    assert deviation(needs, [("host", 60)], both) == pytest.approx(0.0)
    assert deviation(needs, [("host", 60)]) == pytest.approx(-0.4)
