"""A live process against what was started here and what is declared."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.node.drift import DriftWatch, differences
from agent.process.launch import Launch, Phase, ProcessSnapshot
from agent.process.ports import can_bind
from reconciler.core.observation import DriftKind
from tests.support.owner import MovedClock, get, launch, service
from tests.support.platforms import sees_upgrades
from tests.support.ports import own_port
from tests.support.wait import PATIENCE_S, wait_for

SETTINGS = {"contextSize": 4000, "parallelSlots": 2}
AS_DECLARED = {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 2}


def ask(of: Launch, path: str) -> object:
    return get(of.port, path)


def declared(port: int, *options: str, **changes: Any) -> Launch:
    inputs = {"settings": SETTINGS}
    return launch("chat", port, *options, runtime="llama-server", inputs=inputs, **changes)


def ready(of: Launch, pid: int) -> ProcessSnapshot:
    return ProcessSnapshot(of, Phase.READY, True, "Ready", "", since=1000.0, pid=pid)


@pytest.fixture
def running() -> Iterator[tuple[Launch, int]]:
    """A server that runs as it was launched, and its pid."""
    port = own_port()
    of = declared(port, "--props", json.dumps(AS_DECLARED))
    with subprocess.Popen(of.command.argv) as child:
        wait_for(lambda: not can_bind("127.0.0.1", port))
        yield of, child.pid
        child.kill()


def test_what_runs_as_it_was_started_differs_in_nothing(running: tuple[Launch, int]) -> None:
    of, pid = running

    assert differences(of, pid, ask) == ()


def test_another_command_line_is_shown_with_what_it_has_and_lacks(
    running: tuple[Launch, int],
) -> None:
    of, pid = running
    *same, props = of.command.argv
    orders = (*same, "--busy", "1"), (*same[:1], *reversed((*same[1:], props)))

    found = [
        differences(replace(of, command=replace(of.command, argv=argv)), pid, ask)
        for argv in orders
    ]

    assert [(first[0], first[1]) for first, *_ in found] == [
        (DriftKind.RESTART, f"its command line has {props}, lacks --busy 1"),
        (DriftKind.RESTART, "its command line has another order"),
    ]


def test_only_the_first_words_of_another_command_line_are_shown(
    running: tuple[Launch, int],
) -> None:
    of, pid = running
    argv = (*of.command.argv[:1], "a", "b", "c", "d")
    has = " ".join(of.command.argv[1:4])

    (_, message), *_ = differences(replace(of, command=replace(of.command, argv=argv)), pid, ask)

    assert message == f"its command line has {has}, lacks a b c"


def test_what_runs_of_a_script_is_its_interpreter(tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    engine.write_text("#!/bin/sh\nread _\n")
    engine.chmod(0o755)
    of = declared(1)
    of = replace(of, runtime="other", command=replace(of.command, argv=(str(engine), "--more")))

    with subprocess.Popen(of.command.argv, stdin=subprocess.PIPE) as child:
        found = differences(of, child.pid, ask)

    assert found == ()


def test_another_environment_is_named_without_its_values(running: tuple[Launch, int]) -> None:
    of, pid = running
    command = replace(of.command, env={"SECRET_SETTING": "hunter2"})

    found = differences(replace(of, command=command), pid, ask)

    assert found == ((DriftKind.RESTART, "its environment differs in SECRET_SETTING"),)


@pytest.mark.parametrize(
    ("props", "expected"),
    [
        ({"default_generation_settings": {"n_ctx": 2048}}, "its contextSize is 2048, not 4000"),
        ({"total_slots": 4}, "its parallelSlots is 4, not 2"),
    ],
)
def test_settings_that_the_engine_made_something_else_of_are_shown(
    running: tuple[Launch, int], props: dict[str, Any], expected: str
) -> None:
    of, pid = running

    found = differences(of, pid, lambda _, path: AS_DECLARED | props if path == "/props" else {})

    assert found == ((DriftKind.COSMETIC, expected),)


def test_a_context_that_the_model_was_not_trained_with_is_no_drift(
    running: tuple[Launch, int],
) -> None:
    """llama.cpp caps it: that is what its own list of models says, and it was drift for ever."""
    of, pid = running
    capped = AS_DECLARED | {"default_generation_settings": {"n_ctx": 2048}}
    listed = {"data": [{"id": "tiny", "meta": {"n_ctx_train": 2048}}]}

    found = differences(of, pid, lambda _, path: {"/props": capped, "/v1/models": listed}[path])

    assert found == ()


@pytest.mark.parametrize("error", [OSError, http.client.HTTPException, ValueError])
def test_what_cannot_be_read_is_no_drift(
    running: tuple[Launch, int], error: type[Exception]
) -> None:
    of, pid = running

    def fails(*_: object) -> object:
        raise error

    assert differences(of, pid, fails) == ()
    assert differences(of, 2**22 + 1, ask) == ()  # no such process


@sees_upgrades
def test_an_upgraded_program_is_deferred(tmp_path: Path) -> None:
    engine = tmp_path / "sleep"
    shutil.copy(shutil.which("sleep") or "", engine)
    of = declared(own_port())
    of = replace(of, runtime="other", command=replace(of.command, argv=(str(engine), "600")))
    with subprocess.Popen(of.command.argv) as child:
        before = differences(of, child.pid, ask)

        shutil.copy(sys.executable, tmp_path / "new")
        (tmp_path / "new").replace(engine)
        after = differences(of, child.pid, ask)
        engine.unlink()
        gone = differences(of, child.pid, ask)
        child.kill()

    assert before == ()
    assert after == ((DriftKind.DEFERRED, f"{engine} was replaced since (an upgrade)"),)
    untouched = f"{engine} is gone from the disk; what runs is not touched"
    assert gone == ((DriftKind.DEFERRED, untouched),)


def test_a_model_file_that_is_gone_changes_nothing_that_runs(running: tuple[Launch, int]) -> None:
    of, pid = running
    path = "/store/sha256/abc/model.gguf"
    others = ("/nowhere/model.gguf", "--name=a/sha256/b")
    argv = (of.command.argv[0], path, *others, *of.command.argv[1:])

    _, (kind, message) = differences(replace(of, command=replace(of.command, argv=argv)), pid, ask)

    assert kind is DriftKind.COSMETIC
    assert message.startswith(f"{path} is gone from the store")


@pytest.mark.parametrize(
    "changes", [{"runtime": "vllm"}, {"runtime": "of-old"}, {"inputs": {"settings": None}}]
)
def test_who_says_nothing_of_its_settings_is_not_asked(changes: dict[str, Any]) -> None:
    asked = list[str]()

    found = differences(
        replace(declared(1), **changes), 2**22 + 1, lambda _, path: asked.append(path)
    )

    assert (found, asked) == ((), [])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "drift.json"


def watch(file: Path, *states: ProcessSnapshot, clock: MovedClock) -> DriftWatch:
    return DriftWatch(lambda: states, ask, file, clock=clock)


def test_a_drift_keeps_the_time_when_it_was_first_seen(
    running: tuple[Launch, int], file: Path
) -> None:
    of, pid = running
    clock = MovedClock()
    state = ready(replace(of, inputs={"settings": SETTINGS | {"parallelSlots": 1}}), pid)
    seen = watch(file, state, clock=clock)

    seen.check()
    (first,) = seen.of(state)
    clock.passed_s = 61.0
    seen.check()
    again = watch(file, state, clock=clock)  # our next life
    again.check()

    assert seen.of(state) == again.of(state) == (first,)


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"default/chat": {"pid": 7}}', b"\xff"])
def test_a_damaged_file_of_drifts_is_as_good_as_none(
    running: tuple[Launch, int], file: Path, damage: bytes
) -> None:
    of, pid = running
    file.write_bytes(damage)
    state = ready(replace(of, inputs={"settings": SETTINGS | {"parallelSlots": 1}}), pid)
    seen = watch(file, state, clock=MovedClock())

    seen.check()

    assert len(seen.of(state)) == 1


def test_what_a_restart_does_not_mend_is_not_tried_again(
    running: tuple[Launch, int], file: Path
) -> None:
    of, pid = running
    clock = MovedClock()
    state = ready(replace(of, command=replace(of.command, env={"ANY": "thing"})), pid)
    seen = watch(file, state, clock=clock)
    seen.check()

    seen.restarting(service("chat"))
    clock.passed_s = 61.0  # the same process stands for the restarted one
    seen.check()

    (drift,) = seen.of(state)
    assert drift.kind is DriftKind.COSMETIC
    assert drift.message.endswith("a restart did not change that")


def test_what_two_restarts_do_not_mend_is_not_tried_in_turns(
    running: tuple[Launch, int], file: Path
) -> None:
    of, pid = running
    clock = MovedClock()
    first = replace(of.command, env={"ANY": "thing"})
    second = replace(first, argv=(*first.argv, "--more"))
    states = [ready(replace(of, command=first), pid)]
    seen = DriftWatch(lambda: states, ask, file, clock=clock)
    seen.check()
    seen.restarting(service("chat"))
    states[0] = ready(replace(of, command=second), pid)
    clock.passed_s = 61.0  # the same process stands for the restarted ones
    seen.check()
    before = {drift.kind for drift in seen.of(states[0])}

    seen.restarting(service("chat"))
    clock.passed_s = 122.0
    seen.check()

    assert before == {DriftKind.RESTART, DriftKind.COSMETIC}
    assert {drift.kind for drift in seen.of(states[0])} == {DriftKind.COSMETIC}


def test_a_process_that_takes_our_port_is_named_and_left_alone(file: Path) -> None:
    message = "port 8080 is taken by pid 7 (nginx)"
    state = ProcessSnapshot(
        declared(8080), Phase.WAITING, False, "PortInUse", message, since=1000.0
    )

    (drift,) = watch(file, state, clock=MovedClock()).of(state)

    assert (drift.kind, drift.message, drift.since) == (DriftKind.FOREIGN, message, 1000.0)


def test_the_watch_says_when_something_changed(running: tuple[Launch, int], file: Path) -> None:
    of, pid = running
    clock = MovedClock()
    states = [ready(of, pid)]
    seen = DriftWatch(lambda: states, ask, file, clock=clock)

    news = [seen.check()]
    states[:] = [ready(replace(of, inputs={"settings": SETTINGS | {"parallelSlots": 1}}), pid)]
    news.append(seen.check())  # not due yet
    clock.passed_s = 61.0
    news.append(seen.check())
    os.kill(pid, signal.SIGKILL)
    states.clear()
    news.append(seen.check())

    assert news == [False, False, True, True]


def test_the_watch_looks_by_itself_says_what_is_new_and_goes_on_after_a_bug(
    running: tuple[Launch, int], file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of, pid = running
    state = ready(replace(of, inputs={"settings": SETTINGS | {"parallelSlots": 1}}), pid)
    looks, news = iter(range(9**9)), threading.Event()

    def states() -> tuple[ProcessSnapshot, ...]:
        return (state,) if next(looks) else (_ for _ in ()).throw(RuntimeError("a bug"))

    watch = DriftWatch(states, ask, file, changed=news.set, again_s=0.01)
    watch.start()

    assert news.wait(PATIENCE_S)
    watch.close()
    assert "stopped this look for drift" in caplog.text


def test_the_watch_ends_at_once_whoever_does_not_answer(
    running: tuple[Launch, int], file: Path
) -> None:
    of, pid = running
    asked: list[str] = []
    answers, waited = threading.Event(), list[bool]()

    def hangs(of: Launch, _: str) -> object:
        asked.append(of.ref.name)
        waited.append(answers.wait(PATIENCE_S))
        return {}

    states = [replace(ready(of, pid), launch=replace(of, ref=service(f"s{n}"))) for n in range(20)]
    watch = DriftWatch(lambda: states, hangs, file, again_s=0.01, end_s=0.1)
    watch.start()
    wait_for(lambda: bool(asked), "a question")

    watch.close()
    answers.set()

    wait_for(lambda: all(thread.name != "drift" for thread in threading.enumerate()), "its end")
    assert (asked, waited) == (["s0"], [True])
