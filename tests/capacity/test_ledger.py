"""What the services of a node take together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.capacity.ledger import Ledger
from reconciler.capacity.pools import taken_bytes
from reconciler.capacity.remedies import freed_by_others
from reconciler.fleet.workload import PoolNeed
from tests.support.builders import ref, workload

OTHERS = {"host": 5 * 2**30}

files = st.sampled_from(["f", "g"])
needs = st.builds(
    lambda own, file, size: PoolNeed("host", own + size, 10_000, ((file, size),) if size else ()),
    st.integers(0, 100),
    files,
    st.integers(0, 100),
)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.lists(needs, max_size=1))))
def test_any_history_of_changes_ends_in_the_sum_of_who_is_there(
    history: list[tuple[str, list[PoolNeed]]],
) -> None:
    ledger = Ledger(())
    for name, wanted in history:
        ledger.replace(ref(name), tuple(wanted))

    there = {name: tuple(wanted) for name, wanted in history}

    assert ledger.taken_bytes("host") == taken_bytes(tuple(there.values()), "host")


def test_the_files_of_a_service_are_told_per_pool() -> None:
    mapped = (PoolNeed("host", 9, 0, (("f", 1), ("g", 2))), PoolNeed("device0", 9, 0, (("h", 3),)))
    ledger = Ledger([workload("a", needs=mapped)])

    assert ledger.files("host", ref("a")) == ("f", "g")
    assert ledger.files("host", ref("b")) == ()


@given(st.lists(needs, max_size=3), needs)
def test_what_one_more_process_would_add_is_what_it_adds(
    there: list[PoolNeed], more: PoolNeed
) -> None:
    ledger = Ledger([workload(f"a{i}", needs=(need,)) for i, need in enumerate(there)])
    before, said = ledger.taken_bytes("host"), ledger.more_bytes(more)

    (impact,) = ledger.replace(ref("late"), (more,))

    assert ledger.taken_bytes("host") - before == said
    assert (impact.before_bytes, impact.after_bytes) == (before, before + said)
    assert (impact.peak_bytes, impact.budget_bytes) == (before + said, 10_000)
    ledger.replace(ref("late"), ())
    assert ledger.more_bytes(more) == said, "nothing of it is left"


@given(needs, needs)
def test_undo_takes_the_last_change_back(first: PoolNeed, second: PoolNeed) -> None:
    ledger = Ledger([workload("a", needs=(first,))])
    before = ledger.taken_bytes("host")

    ledger.replace(ref("a"), (second,))
    ledger.undo()

    assert ledger.taken_bytes("host") == before


def test_a_refusal_says_who_is_there_and_how_it_adds_up() -> None:
    large = PoolNeed("host", 6 * 2**30, 10 * 2**30)
    ledger = Ledger([workload("there", needs=(large,))])

    ledger.replace(ref("late"), (large,))

    assert ledger.over_budget(ref("late")) == (
        "needs 6.0 GiB of host memory; with default/there 6.0 GiB that is 12.0 GiB of 10.0 GiB"
    )


def test_who_is_alone_can_be_too_large_by_itself_or_for_what_others_left() -> None:
    """And only a neighbour could be suspended."""
    whole = PoolNeed("host", 12 * 2**30, 10 * 2**30)
    part = PoolNeed("host", 6 * 2**30, 10 * 2**30)
    alone, left = Ledger([workload(needs=(whole,))]), Ledger([workload(needs=(part,))], OTHERS)
    beside = Ledger([workload("there", needs=(part,)), workload(needs=(part,))])
    fits = Ledger([workload(needs=(PoolNeed("host", 10 * 2**30, 10 * 2**30),))])

    assert [each.over_budget(ref()) for each in (alone, left, fits)] == [
        "needs 12.0 GiB of host memory, which has a budget of 10.0 GiB",
        "needs 6.0 GiB of host memory; with 5.0 GiB in use by other processes that is 11.0 GiB"
        " of 10.0 GiB",
        None,
    ]
    assert [each.has_others(ref()) for each in (alone, left, beside, fits)] == [
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("needed", "in_use", "largest", "said"),
    [
        (6, 5, {}, ["free 1.0 GiB of what others use there"]),
        (6, 5, {"host": "pid 7"}, ["free 1.0 GiB of what others use there (the largest: pid 7)"]),
        (10, 5, {}, ["free 5.0 GiB of what others use there"]),
        (11, 5, {}, []),  # it would not be enough
    ],
)
def test_others_are_asked_for_what_is_missing_where_that_alone_is_enough(
    needed: int, in_use: int, largest: dict[str, str], said: list[str]
) -> None:
    need = PoolNeed("host", needed * 2**30, 10 * 2**30)
    ledger = Ledger([workload(needs=(need,))], {"host": in_use * 2**30})

    assert list(freed_by_others(ref(), ledger, largest)) == said


def test_what_others_use_is_there_whoever_comes() -> None:
    large = PoolNeed("host", 6 * 2**30, 10 * 2**30)
    ledger = Ledger([workload("there", needs=(large,))], {"host": 2**30})

    ledger.replace(ref("late"), (large,))

    assert ledger.over_budget(ref("late")) == (
        "needs 6.0 GiB of host memory; with default/there 6.0 GiB and 1.0 GiB in use by other"
        " processes that is 13.0 GiB of 10.0 GiB"
    )
    assert ledger.without(ref("late")).taken_bytes("host") == 6 * 2**30
    assert ledger.without(ref("late")).used_by_others("host") == 2**30
    assert ledger.needs_of(ref("late")) == (large,)
    assert ledger.without(ref("late")).needs_of(ref("late")) == ()
