"""When a loop makes a pass, and which of its passes read the source."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.loop import Listener, Loop, LoopTiming, Wake, steps_of
from reconciler.loop.wake import LONGEST_GATHER_S
from reconciler.runtimes import RUNTIMES
from reconciler.source.checkout import Checkout
from reconciler.source.directory import DirectorySource
from reconciler.source.load import load
from tests.support.fleets import small_fleet, write_fleet
from tests.support.targets import InMemoryTarget, NoJournal
from tests.support.wait import PATIENCE_S, wait_for

_QUICK_ENOUGH = "a round for which this machine was quick enough"


def test_any_number_of_reasons_is_one_look_and_reads_the_source_if_one_of_them_does() -> None:
    wake = Wake()
    begins = wake.wait(0)
    wake.pass_now()
    wake.pass_now()
    looks = wake.wait(PATIENCE_S), wake.wait(0)
    wake.pass_now()
    wake.fetch()
    wake.pass_now()
    fetches = wake.wait(PATIENCE_S), wake.wait(0)

    assert begins  # a new one asks for a fetch by itself
    assert (looks, fetches) == ((False, False), (True, False))


def test_a_look_comes_no_earlier_than_it_is_due_without_a_reason() -> None:
    wake = Wake()
    for _ in range(2):
        began = time.monotonic()
        wake.wait(0.03)
        assert time.monotonic() - began >= 0.03
        wake.pass_now()
        wake.wait(PATIENCE_S)


def test_changes_of_many_are_gathered_for_as_long_as_their_pass_took_and_nothing_else_is() -> None:
    wake = Wake()
    wake.wait(0)

    def waited_s(*reasons: Callable[[], None], after_pass_s: float) -> float:
        time.sleep(after_pass_s)
        for reason in reasons:
            reason()
        began = time.monotonic()
        wake.wait(PATIENCE_S)
        return time.monotonic() - began

    def is_gathered_for_as_long_as_its_pass_took() -> bool:
        crowd_s = waited_s(wake.pass_soon, wake.pass_soon, after_pass_s=0.1)
        assert crowd_s >= 0.3
        return crowd_s < LONGEST_GATHER_S

    def is_awake_at_once(reason: Callable[[], None]) -> bool:
        return waited_s(wake.pass_soon, reason, after_pass_s=0.5) < LONGEST_GATHER_S

    assert waited_s(wake.pass_soon, after_pass_s=0.5) >= LONGEST_GATHER_S
    wait_for(is_gathered_for_as_long_as_its_pass_took, _QUICK_ENOUGH)
    for reason in (wake.fetch, wake.stop):
        wait_for(lambda reason=reason: is_awake_at_once(reason), _QUICK_ENOUGH)


def test_one_change_in_a_quiet_time_is_looked_at_at_once() -> None:
    wake = Wake()
    wake.wait(0)

    def is_looked_at_at_once() -> bool:
        time.sleep(0.5)  # a long pass
        changed_at: list[float] = []

        def change() -> None:
            changed_at.append(time.monotonic())
            wake.pass_soon()

        threading.Timer(LONGEST_GATHER_S + 0.1, change).start()
        wake.wait(PATIENCE_S)
        return time.monotonic() - changed_at[0] < LONGEST_GATHER_S / 2

    wait_for(is_looked_at_at_once, _QUICK_ENOUGH)


def test_who_is_told_to_stop_looks_up_at_once_and_stays_stopped() -> None:
    wake = Wake()
    wake.wait(0)
    before = wake.stopped

    wake.stop()

    assert not before
    assert wake.stopped
    assert wake.wait(PATIENCE_S) is False
    assert wake.stopped


class Counting(DirectorySource):
    fetches = 0

    def fetch(self) -> Checkout:
        self.fetches += 1
        return super().fetch()


class Passes(Listener):
    """Notes how long each pass took, and how often the source had been read when it ended."""

    def __init__(self, source: Counting) -> None:
        self.source = source
        self.took_s: list[float] = []
        self.read: list[int] = []

    def on_ended(self, seconds: float) -> None:
        self.took_s.append(seconds)
        self.read.append(self.source.fetches)


@contextmanager
def running(root: Path, **timing: float) -> Iterator[tuple[Loop, Passes]]:
    source = Counting(write_fleet(root, small_fleet()))
    passes = Passes(source)
    loop = Loop(
        source=source,
        read=lambda checkout, held: load(checkout, RUNTIMES, None, held),
        steps=steps_of(InMemoryTarget()),
        journal=NoJournal(),
        listeners=[passes],
        wake=Wake(),
        timing=LoopTiming(**timing),
    )
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield loop, passes
    finally:
        loop.wake.stop()
        thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("share", "fetches"),
    [
        pytest.param(0.0, 2, id="the first poll may come at once, the next ones may not"),
        pytest.param(0.5, 1, id="or later"),
    ],
)
def test_targets_are_looked_at_more_often_than_the_source_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, fetches: int
) -> None:
    monkeypatch.setattr("random.random", lambda: share)

    with running(tmp_path, poll_s=36000.0, resync_s=0.01) as (_, passes):
        wait_for(lambda: len(passes.read) >= 6)

    assert passes.read[0] == 1
    assert passes.read[-1] == fetches
    assert all(0.0 <= seconds < PATIENCE_S for seconds in passes.took_s)


def test_a_source_is_polled_also_where_the_targets_need_no_look(tmp_path: Path) -> None:
    with running(tmp_path, poll_s=0.01, resync_s=36000.0) as (_, passes):
        wait_for(lambda: len(passes.read) >= 4)

    assert passes.read[:4] == [1, 2, 3, 4]


def test_a_change_of_a_target_reads_no_source_and_a_push_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)

    with running(tmp_path, poll_s=36000.0, resync_s=36000.0) as (loop, passes):
        wait_for(lambda: len(passes.read) == 1)
        loop.wake.pass_now()
        wait_for(lambda: len(passes.read) == 2)
        loop.wake.fetch()
        wait_for(lambda: len(passes.read) == 3)

    assert passes.read == [1, 1, 2]  # and none when it was told to stop


def test_a_loop_that_was_stopped_before_it_began_does_nothing(tmp_path: Path) -> None:
    source = Counting(write_fleet(tmp_path, small_fleet()))
    passes, wake = Passes(source), Wake()
    wake.stop()

    Loop(
        source=source,
        read=lambda checkout, held: load(checkout, RUNTIMES, None, held),
        steps=steps_of(InMemoryTarget()),
        journal=NoJournal(),
        listeners=[passes],
        wake=wake,
    ).run()

    assert (source.fetches, passes.read) == (0, [])
