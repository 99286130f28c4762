"""The owner of the processes, with real children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cli import status
from agent.node.view import recorded_leaving
from agent.process.admission import ADMITS_ALL, Beside
from agent.process.cputime import processor_seconds
from agent.process.effects import Effects
from agent.process.launch import Phase
from agent.process.owner import Processes
from agent.process.pidwatch import PidWatch
from agent.state.directory import StateDir
from agent.state.room import LOG_CAP_BYTES
from reconciler.api.errors import StateError
from tests.support.owner import (
    BACKOFF_S,
    HOUR_S,
    LONGEST_BACKOFF_S,
    QUICK,
    MovedClock,
    get,
    launch,
    post,
    service,
    state_of,
    wait_gone,
    wait_ready,
    wait_reason,
    wait_state,
)
from tests.support.pids import alive
from tests.support.ports import own_port
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e
Owner = Callable[..., Processes]


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def owner(state: StateDir, clock: MovedClock) -> Iterator[Processes]:
    processes = Processes(state, ADMITS_ALL, clock=clock, timing=QUICK)
    processes.start()
    yield processes
    processes.close(stop_children=True, deadline_s=5)


def test_a_launch_becomes_a_ready_process(owner: Processes) -> None:
    port = own_port()

    began = time.monotonic()
    owner.run(launch("chat", port))
    found = wait_ready(owner, "chat")
    waited_s = time.monotonic() - began

    assert found.pid is not None
    assert alive(found.pid)
    assert found.endpoint == f"http://127.0.0.1:{port}"
    assert found.start_seconds is not None
    assert 0 < found.start_seconds <= round(waited_s, 3)
    assert get(port, "/v1/models") == {"data": [{"id": "tiny"}]}


def test_a_process_is_not_ready_while_it_loads(owner: Processes) -> None:
    owner.run(launch("chat", own_port(), "--load-seconds", "600"))

    found = wait_state(owner, "chat", lambda state: "503" in state.message)

    assert (found.ready, found.reason, found.endpoint) == (False, "Loading", None)
    assert found.message == "/health answers 503: Loading model"


def test_a_server_of_another_model_is_not_ready(owner: Processes) -> None:
    owner.run(launch("chat", own_port(), "--alias", "other"))

    found = wait_reason(owner, "chat", "WrongModel")

    assert found.message == "serves other instead of tiny"


def test_running_the_same_launch_again_changes_nothing(owner: Processes) -> None:
    wanted = launch("chat", own_port())
    owner.run(wanted)
    before = wait_ready(owner, "chat")

    owner.run(replace(wanted, drain_timeout_s=1.0))
    owner.call(lambda: None)

    after = state_of(owner, "chat")
    assert after is not None
    assert after.pid == before.pid
    assert after.launch.drain_timeout_s == 1.0


def test_an_update_changes_the_record_and_not_the_process(
    owner: Processes, state: StateDir
) -> None:
    wanted = launch("chat", own_port())
    owner.run(wanted)
    before = wait_ready(owner, "chat")

    owner.update(replace(wanted, inputs={"rollout.drainTimeout": 3}, inputs_digest="new"))
    owner.call(lambda: None)

    after = state_of(owner, "chat")
    assert after is not None
    assert (after.pid, after.launch.inputs_digest) == (before.pid, "new")
    assert '"inputsDigest": "new"' in state.record_file(service("chat")).read_text()


def test_a_changed_launch_replaces_the_process(owner: Processes) -> None:
    port = own_port()
    owner.run(launch("chat", port))
    before = wait_ready(owner, "chat")

    owner.run(launch("chat", port, "--busy", "0"))
    after = wait_state(owner, "chat", lambda s: s.ready and s.pid != before.pid)

    assert before.pid is not None
    assert not alive(before.pid)
    assert after.launch.inputs == {"options": ["--busy", "0"]}


def test_a_killed_child_comes_back_after_the_backoff(owner: Processes, clock: MovedClock) -> None:
    owner.run(launch("chat", own_port()))
    before = wait_ready(owner, "chat")
    assert before.pid is not None

    os.kill(before.pid, signal.SIGKILL)
    down = wait_state(owner, "chat", lambda state: state.phase is Phase.WAITING)
    clock.passed_s += BACKOFF_S
    owner.call(lambda: None)
    after = wait_ready(owner, "chat")

    assert (down.reason, down.failures, down.exit_code) == ("KilledBySignal", 1, -9)
    assert after.pid != before.pid


def test_a_crash_loop_waits_longer_each_time(owner: Processes, clock: MovedClock) -> None:
    owner.run(launch("chat", own_port(), "--print", "sad", "--exit-code", "3"))

    failures = []
    for expected in (1, 2, 3, 4):
        down = wait_state(
            owner, "chat", lambda s, n=expected: s.phase is Phase.WAITING and s.failures == n
        )
        failures.append((down.reason, down.exit_code))
        clock.passed_s += (2 ** (expected - 1) - 0.5) * BACKOFF_S  # not yet
        owner.call(lambda: None)
        still = state_of(owner, "chat")
        assert still is not None
        assert still.failures == expected
        clock.passed_s += 0.5 * BACKOFF_S
        owner.call(lambda: None)

    assert failures == [("Crashed", 3)] * 4


def test_a_corrupt_model_is_not_retried_in_a_tight_loop(
    owner: Processes, clock: MovedClock
) -> None:
    line = "tensor 'x' data is not within the file bounds, model is corrupted or incomplete"
    owner.run(launch("chat", own_port(), "--print", line, "--exit-code", "1"))

    wait_reason(owner, "chat", "ModelCorrupt")
    clock.passed_s += LONGEST_BACKOFF_S - BACKOFF_S
    owner.call(lambda: None)

    still = state_of(owner, "chat")
    assert still is not None
    assert (still.reason, still.failures) == ("ModelCorrupt", 1)


def test_changed_inputs_end_the_wait_for_a_retry(owner: Processes) -> None:
    port = own_port()
    owner.run(launch("chat", port, "--print", "error: bad flag", "--exit-code", "1"))
    wait_reason(owner, "chat", "BadFlag")

    owner.run(launch("chat", port))

    assert wait_ready(owner, "chat").failures == 0


def test_a_missing_engine_is_a_reason_and_no_crash(owner: Processes) -> None:
    wanted = launch("chat", own_port())
    command = replace(wanted.command, argv=("/nowhere/llama-server",))

    owner.run(replace(wanted, command=command))
    found = wait_reason(owner, "chat", "EngineMissing")

    assert found.message == (
        "/nowhere/llama-server cannot be run: No such file or directory;"
        " install it or give its path"
    )


def test_a_taken_port_is_named_with_its_owner_and_nothing_is_spawned(owner: Processes) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        owner.run(launch("chat", port))
        found = wait_reason(owner, "chat", "PortInUse")

    assert found.pid is None
    assert found.message.startswith(f"port {port} is taken by pid {os.getpid()} (")


def test_a_stopped_service_ends_and_is_forgotten(owner: Processes, state: StateDir) -> None:
    owner.run(launch("chat", own_port()))
    found = wait_ready(owner, "chat")
    assert found.pid is not None

    owner.stop(service("chat"))
    owner.stop(service("chat"))
    wait_gone(owner, "chat")

    assert not alive(found.pid)
    assert not state.record_file(service("chat")).exists()


def test_a_record_that_cannot_be_removed_is_said_and_the_service_is_gone_all_the_same(
    owner: Processes, state: StateDir, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = launch("chat", own_port())
    owner.run(replace(wanted, command=replace(wanted.command, argv=("/nowhere/llama-server",))))
    wait_reason(owner, "chat", "EngineMissing")
    record = state.record_file(service("chat"))
    record.unlink()
    record.mkdir()

    owner.stop(service("chat"))
    wait_gone(owner, "chat")
    wait_for(lambda: any("it had no process" in note.text for note in owner.notices()))

    assert "default/chat: its record cannot be removed" in caplog.text
    assert "bug in" not in caplog.text


def test_a_log_that_two_rotate_at_once_is_kept(state: StateDir, clock: MovedClock) -> None:
    path = state.log_file(service("chat"))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * LOG_CAP_BYTES)
    woken, watched = socket.socketpair()
    with woken, watched:
        watch = PidWatch(watched.fileno())
        effects = Effects(
            state, clock, {}, watch, _nothing, _nothing, ADMITS_ALL, lambda _: Beside()
        )

        with ThreadPoolExecutor(8) as probes:
            list(probes.map(lambda _: effects.rotate(service("chat")), range(8)))
        effects.close()

    assert path.with_name("current.log.1").stat().st_size == LOG_CAP_BYTES
    assert not path.with_name("current.log.2").exists()


def _nothing(*_: object) -> None:
    return


def test_a_stop_waits_for_requests_in_flight(owner: Processes) -> None:
    port = own_port()
    owner.run(launch("chat", port, "--busy", "2"))
    found = wait_ready(owner, "chat")
    assert found.pid is not None

    owner.stop(service("chat"))
    draining = wait_state(owner, "chat", lambda s: s.message.startswith("waiting for 2 requests"))
    assert alive(found.pid)
    post(port, "/busy/0")
    wait_gone(owner, "chat")

    assert (draining.endpoint, draining.reason) == (None, "Stopping")
    assert not any("cut" in notice.text for notice in owner.notices())


def test_a_stop_that_was_interrupted_shows_the_process_that_lives(
    owner: Processes, state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    port = own_port()
    owner.run(launch("chat", port, "--busy", "2"))
    found = wait_ready(owner, "chat")
    owner.stop(service("chat"))
    wait_state(owner, "chat", lambda s: s.message.startswith("waiting for 2 requests"))

    status.run(
        Namespace(state_dir=str(state.root), output="text", follow=False, names=[], not_ready=False)
    )
    nobody = capsys.readouterr().out
    state.lock()
    owned = recorded_leaving(state)[service("chat")]
    state.unlock()
    post(port, "/busy/0")
    wait_gone(owner, "chat")

    lives = f"still ending: pid {found.pid}, waiting for 2 requests"
    assert "default/chat  Stopping" in nobody
    assert f"{lives}; nobody ends it now: `fleet-agent stop default/chat` does" in nobody
    assert owned == f"{lives}, for {HOUR_S:g} s at most"
    assert recorded_leaving(state) == {}


def test_requests_that_outlive_the_drain_are_cut_and_counted(
    owner: Processes, clock: MovedClock
) -> None:
    owner.run(launch("chat", own_port(), "--busy", "2"))
    wait_ready(owner, "chat")

    owner.stop(service("chat"))
    wait_state(owner, "chat", lambda s: s.message.startswith("waiting for 2 requests"))
    clock.passed_s += HOUR_S
    owner.call(lambda: None)
    wait_gone(owner, "chat")

    texts = [notice.text for notice in owner.notices()]
    assert f"2 requests cut after {HOUR_S:g} s of draining" in texts


def test_a_process_that_ignores_sigterm_is_killed(owner: Processes) -> None:
    owner.run(launch("chat", own_port(), "--ignore-sigterm"))
    found = wait_ready(owner, "chat")
    assert found.pid is not None

    owner.stop(service("chat"))
    wait_gone(owner, "chat")

    assert not alive(found.pid)
    assert "did not end by SIGTERM: killed" in [n.text for n in owner.notices()]


def test_a_service_can_be_stopped_while_it_starts(owner: Processes) -> None:
    owner.run(launch("chat", own_port(), "--load-seconds", "600"))
    found = wait_reason(owner, "chat", "Loading")
    assert found.pid is not None

    owner.stop(service("chat"))
    wait_gone(owner, "chat")

    assert not alive(found.pid)


def test_a_service_can_be_started_while_it_stops(owner: Processes) -> None:
    port = own_port()
    owner.run(launch("chat", port, "--ignore-sigterm"))
    before = wait_ready(owner, "chat")

    owner.stop(service("chat"))
    owner.run(launch("chat", port))
    after = wait_state(owner, "chat", lambda s: s.ready and s.pid != before.pid)

    assert before.pid is not None
    assert not alive(before.pid)
    assert after.launch.inputs == {"options": []}


def test_draining_one_service_does_not_hold_up_another(owner: Processes) -> None:
    owner.run(launch("slow", own_port(), "--busy", "1"))
    wait_ready(owner, "slow")

    owner.stop(service("slow"))
    owner.run(launch("fast", own_port()))
    wait_ready(owner, "fast")

    slow = state_of(owner, "slow")
    assert slow is not None
    assert slow.phase is Phase.DRAINING
    owner.call(lambda: None)
    post(slow.launch.port, "/busy/0")


def test_changes_in_quick_succession_end_in_the_last_one(owner: Processes) -> None:
    port = own_port()
    owner.run(launch("chat", port, "--busy", "1"))
    wait_ready(owner, "chat")

    for busy in ("0", "00", "000", "0000"):
        owner.run(launch("chat", port, "--busy", busy))
    owner.call(lambda: None)
    post(port, "/busy/0")  # until here the first one drains
    found = wait_state(
        owner, "chat", lambda s: s.ready and s.launch.inputs == {"options": ["--busy", "0000"]}
    )

    started = [notice for notice in owner.notices() if notice.text.startswith("started")]
    assert found.reason == "Ready"
    assert len(started) == 2


def test_services_do_not_disturb_each_other(owner: Processes) -> None:
    owner.run(launch("one", own_port()))
    one = wait_ready(owner, "one")

    owner.run(launch("two", own_port()))
    two = wait_ready(owner, "two")
    assert two.pid is not None
    os.kill(two.pid, signal.SIGKILL)
    wait_state(owner, "two", lambda state: state.phase is Phase.WAITING)
    owner.stop(service("two"))
    wait_gone(owner, "two")

    after = state_of(owner, "one")
    assert after is not None
    assert (after.pid, after.ready, after.failures) == (one.pid, True, 0)


def test_a_log_is_rotated_before_each_start(owner: Processes, state: StateDir) -> None:
    """What ends before it is ever asked anything would fill the disk."""
    path = state.log_file(service("chat"))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * LOG_CAP_BYTES)
    wanted = launch("chat", own_port())

    owner.run(replace(wanted, command=replace(wanted.command, argv=("/nowhere/llama-server",))))
    wait_reason(owner, "chat", "EngineMissing")

    assert path.with_name("current.log.1").stat().st_size == LOG_CAP_BYTES


def test_children_of_a_dead_process_are_ended_too(owner: Processes, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    owner.run(launch("router", own_port(), "--child", str(file)))
    found = wait_ready(owner, "router")
    assert found.pid is not None
    grandchild = int(file.read_text())

    os.kill(found.pid, signal.SIGKILL)

    wait_for(lambda: not alive(grandchild))


def test_a_live_process_that_stops_answering_is_shown_and_left_running(
    owner: Processes, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    owner.run(launch("chat", own_port(), "--fail-health", str(broken)))
    before = wait_ready(owner, "chat")

    broken.touch()
    silent = wait_reason(owner, "chat", "NotResponding")
    broken.unlink()
    after = wait_ready(owner, "chat")

    assert (silent.ready, silent.endpoint, silent.pid) == (False, None, before.pid)
    assert (after.pid, after.reason) == (before.pid, "Ready")


def test_a_process_that_hangs_is_replaced_by_another(state: StateDir) -> None:
    processes = Processes(
        state, ADMITS_ALL, timing=replace(QUICK, misses=2, hung_s=0.0, backoff_first_s=0.01)
    )
    processes.start()
    try:
        processes.run(launch("chat", own_port()))
        hung = wait_ready(processes, "chat").pid
        assert hung is not None

        os.kill(hung, signal.SIGSTOP)
        after = wait_state(processes, "chat", lambda s: s.ready and s.pid != hung)
    finally:
        processes.close(stop_children=True, deadline_s=5)

    assert not alive(hung)
    assert after.failures == 1
    assert any(
        "gave no answer and used no processor" in notice.text for notice in processes.notices()
    )


def test_what_a_process_and_those_below_it_compute_is_counted() -> None:
    words = ("import subprocess, sys", "subprocess.run([sys.executable, '-c', 'while True: pass'])")
    with subprocess.Popen([sys.executable, "-c", "; ".join(words)], process_group=0) as process:
        wait_for(lambda: (processor_seconds(process.pid) or 0.0) > 0.5)
        os.killpg(process.pid, signal.SIGKILL)

    assert processor_seconds(process.pid) is None


@pytest.mark.parametrize("jump_s", [-86400.0, 7200.0, 1e9])
def test_a_clock_jump_restarts_nothing(owner: Processes, clock: MovedClock, jump_s: float) -> None:
    owner.run(launch("chat", own_port()))
    before = wait_ready(owner, "chat")

    clock.slept_s += jump_s
    owner.call(lambda: None)
    owner.call(lambda: None)

    after = state_of(owner, "chat")
    assert after is not None
    assert (after.pid, after.ready, after.failures) == (before.pid, True, 0)


def test_a_child_gets_a_scrubbed_environment(state: StateDir) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/home/someone",
        "CUDA_VISIBLE_DEVICES": "1",
        "LLAMA_ARG_CTX_SIZE": "7",
        "XDG_CONFIG_HOME": "/home/someone/.config",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    processes = Processes(state, ADMITS_ALL, timing=QUICK, environ=environ)
    processes.start()
    port = own_port()
    wanted = launch("chat", port)
    command = replace(wanted.command, env={"OMP_WAIT_POLICY": "passive"})

    try:
        processes.run(replace(wanted, command=command))
        wait_ready(processes, "chat")
        seen, directory = get(port, "/environ"), get(port, "/cwd")
    finally:
        processes.close(stop_children=True, deadline_s=5)

    home = state.workload_dir(service("chat"))
    seen.pop("LC_CTYPE", None)  # CPython sets it in a C locale
    assert len(seen.pop("FLEET_RECONCILER_INSTANCE")) == 32
    assert seen == {
        "PATH": os.environ["PATH"],
        "HOME": "/home/someone",
        "CUDA_VISIBLE_DEVICES": "1",
        "OMP_WAIT_POLICY": "passive",
        "XDG_CONFIG_HOME": str(home),
    }
    assert directory == str(home)


def test_files_of_the_command_are_there_before_it_starts(owner: Processes, state: StateDir) -> None:
    wanted = launch("chat", own_port())
    command = replace(wanted.command, files={"presets.ini": "version = 1\n"})

    owner.run(replace(wanted, command=command))
    wait_ready(owner, "chat")

    file = state.workload_dir(service("chat")) / "presets.ini"
    assert file.read_text() == "version = 1\n"


def test_a_file_outside_the_service_directory_is_refused(owner: Processes) -> None:
    wanted = launch("chat", own_port())
    command = replace(wanted.command, files={"../../agent.lock": "x"})

    owner.run(replace(wanted, command=command))
    found = wait_reason(owner, "chat", "SpawnFailed")

    assert "'../../agent.lock' is not a plain file name" in found.message


def test_what_a_process_prints_is_in_its_log(owner: Processes, state: StateDir) -> None:
    owner.run(launch("chat", own_port(), "--print", "hello there"))
    wait_ready(owner, "chat")

    assert "hello there\n" in state.log_file(service("chat")).read_text()


def test_closing_can_leave_the_children_running(state: StateDir) -> None:
    processes = Processes(state, ADMITS_ALL, timing=QUICK)
    processes.start()
    port = own_port()
    processes.run(launch("chat", port))
    pid = wait_ready(processes, "chat").pid
    assert pid is not None

    processes.close(stop_children=False)
    answered = get(port, "/health")
    again = Processes(state, ADMITS_ALL, timing=QUICK)
    again.start()
    adopted = wait_ready(again, "chat")
    again.close(stop_children=True, deadline_s=5)

    assert answered == {"status": "ok"}
    assert (adopted.pid, adopted.adopted) == (pid, True)
    assert not alive(pid)


def test_closing_kills_what_outlives_the_deadline(state: StateDir) -> None:
    processes = Processes(state, ADMITS_ALL, timing=replace(QUICK, terminate_s=HOUR_S))
    processes.start()
    processes.run(launch("chat", own_port(), "--ignore-sigterm"))
    pid = wait_ready(processes, "chat").pid
    assert pid is not None

    processes.close(stop_children=True, deadline_s=0.3)

    assert not alive(pid)
    assert "the deadline is over: killed" in [notice.text for notice in processes.notices()]


def test_closing_ends_also_what_was_begun_a_moment_before(state: StateDir) -> None:
    processes = Processes(state, ADMITS_ALL, timing=QUICK)
    processes.start()

    processes.run(launch("chat", own_port()))
    processes.close(stop_children=True, deadline_s=5)

    assert processes.snapshot() == ()


def test_a_closed_owner_takes_no_orders(state: StateDir) -> None:
    processes = Processes(state, ADMITS_ALL)
    processes.start()
    processes.close(stop_children=False)

    with pytest.raises(StateError):
        processes.stop(service("chat"))


def test_a_call_is_waited_for_while_its_owner_lives(owner: Processes, state: StateDir) -> None:
    done, never_begun = threading.Event(), Processes(state, ADMITS_ALL)
    threading.Timer(0.3, done.set).start()  # longer than it takes to look whether the owner lives

    assert owner.call(lambda: done.wait(PATIENCE_S))
    with pytest.raises(StateError, match="is closed"):
        never_begun.call(done.wait)
    never_begun.close(stop_children=False)


def test_an_error_in_a_call_is_the_callers(owner: Processes) -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        owner.call(fail)

    owner.run(launch("chat", own_port()))
    assert wait_ready(owner, "chat").ready


def test_a_surprise_in_a_callback_does_not_end_the_owner(
    state: StateDir, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("surprise")

    processes = Processes(state, ADMITS_ALL, timing=QUICK, changed=fail)
    processes.start()

    processes.run(launch("chat", own_port()))
    found = wait_ready(processes, "chat")
    processes.close(stop_children=True, deadline_s=5)

    assert found.ready
    assert "surprise" in caplog.text


def test_a_restart_gives_a_new_process_of_the_same_launch(owner: Processes) -> None:
    owner.run(launch("chat", own_port()))
    before = wait_ready(owner, "chat")

    owner.restart(service("chat"))
    after = wait_state(owner, "chat", lambda s: s.ready and s.pid != before.pid)

    assert after.launch == before.launch


def test_instances_speak_the_words_of_the_planner(owner: Processes) -> None:
    port = own_port()
    owner.run(launch("chat", port))
    found = wait_ready(owner, "chat")

    instance = found.to_instance("node/here")

    assert (instance.target, instance.ref, instance.ready) == ("node/here", service("chat"), True)
    assert (instance.pid, instance.port, instance.reason) == (found.pid, port, "Ready")
