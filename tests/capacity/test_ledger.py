"""What the services of a node take together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconciler.capacity.ledger import Ledger
from reconciler.capacity.pools import taken_bytes
from reconciler.fleet.workload import PoolNeed
from tests.support.builders import ref, workload

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
