"""The pause before a kind is asked again: another kind's answer ends it, once."""

from __future__ import annotations

import threading
import time
from functools import partial

from reconciler.kube.informer.backoff import Pause
from tests.support.owner import HOUR_S
from tests.support.wait import wait_for


def _rested_s(pause: Pause, pause_s: float, *, may_hurry: bool = True) -> float:
    """How long it rested while another kind was answered all the time."""

    def is_over() -> bool:
        pause.hurry()
        return not resting.is_alive()

    began = time.monotonic()
    rest = partial(pause.rest, pause_s, may_hurry=may_hurry)
    resting = threading.Thread(target=rest, daemon=True)
    resting.start()
    wait_for(is_over)
    return time.monotonic() - began


def test_another_kinds_answer_ends_a_pause() -> None:
    assert _rested_s(Pause(), HOUR_S) < HOUR_S


def test_a_pause_ends_early_once_in_an_outage() -> None:
    pause = Pause()
    _rested_s(pause, HOUR_S)

    assert _rested_s(pause, 0.1) >= 0.1

    pause.worked()
    assert _rested_s(pause, HOUR_S) < HOUR_S


def test_a_pause_that_a_server_wants_is_kept() -> None:
    assert _rested_s(Pause(), 0.1, may_hurry=False) >= 0.1


def test_an_answer_between_a_failure_and_its_pause_ends_that_pause() -> None:
    pause = Pause()
    pause.expect(may_hurry=True)
    pause.hurry()
    resting = threading.Thread(target=partial(pause.rest, HOUR_S, may_hurry=True), daemon=True)

    resting.start()

    wait_for(lambda: not resting.is_alive(), "it tries again")


def test_an_answer_while_nobody_rests_shortens_no_later_pause() -> None:
    pause = Pause()
    pause.hurry()
    began = time.monotonic()

    pause.rest(0.1, may_hurry=True)

    assert time.monotonic() - began >= 0.1
