"""One brings a model to a shared volume at a time, whatever its file system knows of locks."""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.pod.download_lock import DownloadLock
from agent.system.clock import Clock
from reconciler.api.errors import DownloadFailed
from reconciler.fleet.model_file import ModelFile
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.no_locks import without_locks
from tests.support.owner import HOUR_S, LookedAtClock
from tests.support.pods import fetch_words, ready_at, run, running
from tests.support.wait import PATIENCE_S, wait_for

ELSEWHERE = "another-machine 0123"


def turn(
    folder: Path,
    stop: threading.Event | None = None,
    waits: Callable[[str], None] = lambda text: None,
    clock: Clock | None = None,
) -> DownloadLock:
    quick = {"beat_s": 0.05, "look_s": 0.01, "stale_s": HOUR_S}
    return DownloadLock(folder, "key", waits, stop or threading.Event(), clock=clock, **quick)


def test_one_has_the_turn_at_a_time(tmp_path: Path) -> None:
    at_once: list[int] = []
    waiting: list[str] = []
    here = 0

    def contend() -> None:
        nonlocal here
        for _ in range(3):
            with turn(tmp_path, waits=waiting.append):
                here += 1
                at_once.append(here)
                wait_for(lambda: len(waiting) >= 4, "all the others want it, too")
                here -= 1

    contenders = [threading.Thread(target=contend) for _ in range(5)]
    for one in contenders:
        one.start()
    for one in contenders:
        one.join()

    assert at_once == [1] * 15
    assert list(tmp_path.iterdir()) == []


def test_who_shows_life_on_another_machine_is_waited_for(tmp_path: Path) -> None:
    held = tmp_path / "key.1"
    held.write_text(f"{ELSEWHERE} 0\n")
    had = threading.Event()
    clock = LookedAtClock()

    def contend() -> None:
        with turn(tmp_path, clock=clock) as mine:
            assert mine.taken_over
            had.set()

    def is_looked_at() -> None:
        enough = clock.looks + 4  # the clock is read twice in one look, at most
        wait_for(lambda: clock.looks >= enough, "a whole look")

    waiter = threading.Thread(target=contend)
    waiter.start()
    for beat in range(5):
        held.write_text(f"{ELSEWHERE} {beat}\n")
        is_looked_at()
        clock.now += 0.9 * HOUR_S
        is_looked_at()
        assert not had.is_set()

    clock.now += 0.2 * HOUR_S
    assert had.wait(PATIENCE_S), "and then it is silent"
    waiter.join()


def test_who_slept_sees_that_another_has_taken_over(tmp_path: Path) -> None:
    with turn(tmp_path) as mine:
        (tmp_path / "key.2").write_text(f"{ELSEWHERE} 1\n")

        wait_for(mine.lost, "it is lost")

    assert [path.name for path in tmp_path.iterdir()] == ["key.2"]


def test_whoever_is_asked_to_stop_waits_no_longer(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()

    with turn(tmp_path), pytest.raises(DownloadFailed), turn(tmp_path, stop):
        pass


@pytest.mark.e2e
def test_a_killed_one_on_this_machine_is_followed_at_once(tmp_path: Path) -> None:
    data = tiny_llama(tmp_path / "tiny.gguf").read_bytes()
    store = tmp_path / "models"
    with FileServer(data) as server:
        server.go_on.clear()
        model = ModelFile("chat", server.url, "gguf", sha256=hashlib.sha256(data).hexdigest())
        with running(tmp_path / "log", *fetch_words(store, model)) as program:
            wait_for(lambda: bool(server.requests), "a request")
            program.process.send_signal(signal.SIGKILL)
            program.ended()
        server.go_on.set()

        done = run(*fetch_words(store, model))

    assert done.code == 0
    assert "another process" not in done.err, "it waits for nobody"


@pytest.mark.e2e
def test_on_a_disk_without_locks_two_bring_it_once(tmp_path: Path) -> None:
    data = tiny_llama(tmp_path / "tiny.gguf").read_bytes()
    env, store = without_locks(tmp_path), tmp_path / "models"
    with FileServer(data) as server:
        server.go_on.clear()
        model = ModelFile("chat", server.url, "gguf", sha256=hashlib.sha256(data).hexdigest())
        words = fetch_words(store, model)
        with (
            running(tmp_path / "one", *words, env=env) as one,
            running(tmp_path / "other", *words, env=env) as other,
        ):
            wait_for(lambda: bool(server.requests), "a request")
            wait_for(lambda: "another process" in one.said + other.said, "the other waits")
            server.go_on.set()

            assert (one.ended(), other.ended()) == (0, 0), one.said + other.said
        assert len(server.requests) == 1
    assert ready_at(store, model).read_bytes() == data
