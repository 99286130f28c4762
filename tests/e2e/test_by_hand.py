"""`fleet-agent stop` and `restart`, with a running agent and without one."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reconciler.api.meta import HOLD_ANNOTATION
from tests.support.fleets import document, model, service
from tests.support.pids import alive
from tests.support.reconciler import Fleet, Machine
from tests.support.small_disk import small_disk
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


def test_a_running_agent_stops_a_service_and_keeps_it_stopped_until_a_restart(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    fleet.push_service("more")
    running = machine.daemon("--fleet", fleet.url, "--node", "here")
    chat, more = machine.wait_ready("chat"), machine.wait_ready("more")
    assert chat.pid

    stopped = machine.agent("stop", "chat")

    assert stopped.code == 0
    assert "default/chat: stopped" in stopped.err
    assert machine.instance("chat") is None
    assert not alive(chat.pid)
    # Another revision that does not change it, and another life of the agent.
    fleet.push_service("more", rollout={"drainTimeout": "5s"})
    running.wait_said(fleet.repo.head())
    running.end(signal.SIGKILL)
    machine.daemon("--fleet", fleet.url, "--node", "here").wait_said("msg=plan")
    assert machine.wait_ready("more").pid == more.pid
    assert machine.instance("chat") is None
    status = machine.agent("status")
    assert "StoppedByHand" in status.out
    assert status.code == 0

    restarted = machine.reconcile("restart", "chat")

    assert restarted.code == 0
    assert "default/chat: ready at http://" in restarted.err
    assert "not started here" in machine.reconcile("stop", "chatt").err
    assert machine.wait_ready("chat").port == chat.port


def test_a_stop_works_on_a_full_disk_with_an_agent_and_without(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    fleet.push_service("more")
    with small_disk(machine.state, 16 << 20):
        running = machine.daemon("--fleet", fleet.url, "--node", "here")
        pids = [machine.wait_ready(name).pid for name in ("chat", "more")]
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={machine.state}/other"], capture_output=True, check=False
        )

        stopped = machine.agent("stop", "chat")
        running.end()
        also = machine.agent("stop", "more")

        assert (stopped.code, also.code) == (0, 0), stopped.err + also.err
        assert not any(alive(pid) for pid in pids if pid)
        machine.daemon("--fleet", fleet.url, "--node", "here").wait_said("msg=plan")
        assert "StoppedByHand" in machine.agent("status").out


def test_a_hung_engine_is_named_with_the_command_that_starts_another(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat", rollout={"drainTimeout": "1h"})
    assert machine.reconcile("-C", fleet.url, "--once", "--local").code == 0
    hung = machine.wait_ready("chat").pid
    assert hung
    os.kill(hung, signal.SIGSTOP)

    said = machine.reconcile("-C", fleet.url, "--dry-run", "--local")
    remedy = re.search("`fleet-agent (.*?)`", said.err)
    assert remedy, said.err
    done = machine.agent(*shlex.split(remedy[1]))

    assert (said.code, done.code) == (3, 0)
    assert "default/chat  NotResponding: no answer on port" in said.err
    assert "default/chat: answers and computes nothing: ended without waiting" in done.err
    assert machine.wait_ready("chat", not_pid=hung)


def test_a_stopped_service_comes_back_with_its_next_input_change(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    machine.daemon("--fleet", fleet.url, "--node", "here")
    machine.wait_ready("chat")
    assert machine.agent("stop", "--all").code == 0
    again = machine.agent("stop", "--all")
    assert (again.code, again.err) == (0, f"{machine.state}: nothing runs from here\n")

    fleet.push_service("chat", contextSize=1024)
    machine.wait_ready("chat")

    # And going back is a change too, not the stop again.
    before = machine.wait_ready("chat").pid
    fleet.push_service("chat")
    machine.wait_ready("chat", not_pid=before)


def test_what_was_stopped_without_an_agent_stays_so_for_the_next_one_and_for_local(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    machine.daemon("--fleet", fleet.url, "--node", "here").wait_said("msg=ready")
    machine.wait_ready("chat")
    for running in machine.running():
        running.end()

    assert machine.agent("stop", "chat").code == 0

    plan = machine.reconcile("-C", fleet.url, "--local", "--dry-run")
    assert plan.code == 0, plan.out
    once = machine.reconcile("-C", fleet.url, "--local", "--once")
    assert once.code == 0
    assert machine.instance("chat") is None
    machine.daemon("--fleet", fleet.url, "--node", "here").wait_said("stopped by hand")
    assert machine.processes() == []

    released = machine.agent("restart", "--all")

    assert released.code == 0
    machine.wait_ready("chat")


def test_the_command_that_a_plan_names_starts_again_what_was_stopped_where_no_agent_runs(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    local = ("-C", fleet.url, "--local")
    assert machine.reconcile(*local, "--once").code == 0
    before = machine.wait_ready("chat")
    stopped = machine.agent("stop", "chat")
    kept = machine.reconcile(*local, "--once")
    assert machine.instance("chat") is None

    (typed,) = re.findall(r"stopped by a person: `fleet-agent (.*)` starts it", kept.out)
    again = machine.agent(*shlex.split(typed))

    assert f"until `fleet-agent {typed}` or until the fleet changes" in stopped.err
    assert again.code == 0, again.err
    assert machine.wait_ready("chat", not_pid=before.pid).port == before.port
    assert machine.reconcile(*local, "--dry-run").code == 0


def test_a_restart_starts_a_running_service_anew_as_it_would_be_rendered_now(
    machine: Machine, fleet: Fleet, other_engine: Path
) -> None:
    fleet.push_service("chat")
    first = machine.daemon("--fleet", fleet.url, "--node", "here")
    before = machine.wait_ready("chat")
    first.end()
    option = ("--llama-server", str(other_engine))
    second = machine.daemon("--fleet", fleet.url, "--node", "here", *option)
    second.wait_said("deferred")
    assert machine.wait_ready("chat").pid == before.pid

    assert machine.agent("restart", "chat").code == 0

    after = machine.wait_ready("chat", not_pid=before.pid)
    assert after.render_digest != before.render_digest
    assert after.inputs_digest == before.inputs_digest
    second.end()

    # Without an agent, the command renders itself, with the options that it is given.
    back = machine.agent("restart", "chat", "--timeout", "60s")
    assert back.code == 0, back.err
    last = machine.wait_ready("chat", not_pid=after.pid)
    assert last.render_digest == before.render_digest


def test_a_name_that_nobody_started_is_refused_with_those_that_are_there(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    machine.daemon("--fleet", fleet.url, "--node", "here")
    machine.wait_ready("chat")

    for command in ("stop", "restart"):
        refused = machine.agent(command, "caht")
        assert refused.code == 64
        assert "there is default/chat" in refused.err
    assert machine.wait_ready("chat")


def test_a_loop_of_reconcile_is_an_agent_too_and_a_hold_annotation_yields_to_a_person(
    machine: Machine, fleet: Fleet
) -> None:
    held = {HOLD_ANNOTATION: "true"}
    text = document("InferenceService", "chat", {"modelRef": "tiny"}, annotations=held)
    fleet.repo.publish({"services/chat.yaml": text})
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    assert machine.agent("stop", "chat").code == 0

    running.wait_planned("stopped by a person")
    assert machine.instance("chat") is None
    assert machine.agent("restart", "chat").code == 0
    again = machine.wait_ready("chat", not_pid=before.pid)
    assert machine.agent("restart", "chat").code == 0
    machine.wait_ready("chat", not_pid=again.pid)


def test_a_request_is_done_by_the_command_when_the_agent_ends_before_it_takes_it(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    running = machine.daemon("--fleet", fleet.url, "--node", "here")
    before = machine.wait_ready("chat")
    running.process.send_signal(signal.SIGSTOP)  # it has the lock and hears nothing

    with ThreadPoolExecutor() as pool:
        stopping = pool.submit(machine.agent, "stop", "chat")
        wait_for(lambda: any((machine.state / "requests").glob("*.json")))
        running.end(signal.SIGKILL)
        stopped = stopping.result()

    assert stopped.code == 0
    assert before.pid
    assert not alive(before.pid)
    assert list((machine.state / "requests").glob("*.json")) == []
    machine.daemon("--fleet", fleet.url, "--node", "here").wait_said("stopped by hand")


def test_a_service_that_waits_for_its_model_can_be_stopped(machine: Machine, fleet: Fleet) -> None:
    slow = model("slow", source="https://127.0.0.1:1/slow.gguf", sha256="ab" * 32)
    fleet.repo.publish({"models/slow.yaml": slow, "services/late.yaml": service("late", "slow")})
    machine.daemon("--fleet", fleet.url, "--node", "here")
    machine.wait_instance("late", lambda instance: True)

    assert machine.agent("stop", "late").code == 0

    assert machine.instance("late") is None
