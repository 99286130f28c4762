"""`fleet-agent status`: named, and kept current."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.byhand.stopped import Stopped
from agent.cli import main
from agent.models.expected import ExpectedFile
from agent.node.recorded import recorded_node
from agent.node.settings import Settings
from agent.node.view import read_gone, recorded_instances, recorded_leaving, with_gone_reason
from agent.process.identity import MARKER_VARIABLE, identity_of
from agent.process.launch import Child
from agent.process.ports import can_bind
from agent.process.records import ProcessRecord, Records
from agent.state.directory import StateDir
from agent.state.drift_file import drift_file, write_drifts
from agent.state.suspended import note_suspended
from reconciler.core.observation import Drift, DriftKind
from tests.support.builders import instance, ref, workload
from tests.support.owner import launch, post
from tests.support.ports import own_port
from tests.support.wait import PATIENCE_S, wait_for

AGENT = Path(sys.executable).parent / "fleet-agent"


def test_a_status_is_followed_until_ctrl_c(tmp_path: Path) -> None:
    state, out = StateDir.open(tmp_path / "state"), tmp_path / "out"
    words = (str(AGENT), "status", "--follow", "--state-dir", str(state.root))
    with out.open("wb") as stdout:
        command = subprocess.Popen(words, stdout=stdout, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: "no services" in out.read_text())
        Stopped(state).add({ref("chat"): "d"}, {})
        wait_for(lambda: "nothing should run, 1 stopped by hand" in out.read_text())
        command.send_signal(signal.SIGINT)
        code = command.wait(timeout=PATIENCE_S)
    finally:
        command.kill()

    assert code == 130
    assert out.read_text().count("no services") == 1


def test_a_restart_without_an_agent_forgets_no_update_that_another_service_waits_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateDir.open(tmp_path / "state")
    Records(state).write(ProcessRecord(launch("chat", 20_000), wanted=True, boot="b"))
    failed = {"ready": False, "reason": "DownloadFailed", "message": "404", "since": 1.5}
    ExpectedFile(state).write([instance("chat", **failed)])
    Stopped(state).add({ref("idle"): "d"}, {})

    main(["restart", "idle", "--state-dir", str(state.root)])
    main(["status", "--state-dir", str(state.root)])

    assert "update pending: DownloadFailed: 404; no agent runs here" in capsys.readouterr().out


@pytest.mark.parametrize("command", [("status",), ("logs", "chat")])
def test_a_state_directory_that_no_agent_would_take_is_shown_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    state = StateDir.open(tmp_path / "state")
    Records(state).write(ProcessRecord(launch("chat", 20_000), wanted=True, boot="b"))
    state.root.chmod(0o777)

    main([*command, "--state-dir", str(state.root)])

    said = capsys.readouterr()
    assert f"warning: {state.root}: others may write there (mode 777)" in said.err
    assert "default/chat" in said.out + said.err


def test_an_update_whose_download_failed_is_still_said_once_nobody_watches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateDir.open(tmp_path / "state")
    Records(state).write(ProcessRecord(launch("chat", 20_000), wanted=True, boot="b"))
    failed = {"ready": False, "reason": "DownloadFailed", "message": "404", "since": 1.5}
    waiting = [instance("chat", **failed), instance("never-ran", **failed)]
    ExpectedFile(state).write(waiting)
    (node,) = recorded_instances(state, "mac")

    main(["status", "--state-dir", str(state.root)])

    assert node.pending is not None
    assert (node.pending.reason, node.pending.since) == ("DownloadFailed", 1.5)
    said = capsys.readouterr().out
    assert "update pending: DownloadFailed: 404; no agent runs here" in said
    assert "never-ran" not in said  # nobody waits for it, so the next plan creates it


def test_who_only_looks_says_what_is_gone_and_what_is_still_ending(tmp_path: Path) -> None:
    state, port = StateDir.open(tmp_path / "state"), own_port()
    records, of = Records(state), launch("chat", port, "--busy", "2")
    gone = ProcessRecord(launch("gone", 20_000), wanted=True, boot="b")
    records.write(gone)
    process = subprocess.Popen(of.command.argv, env=os.environ | {MARKER_VARIABLE: "m"})
    try:
        wait_for(lambda: not can_bind("127.0.0.1", port))
        identity = identity_of(process.pid)
        assert identity is not None
        runs = ProcessRecord(of, wanted=True, boot="b", marker="m", child=Child(identity, "m", 0.0))
        records.write(runs)
        drift = Drift(DriftKind.COSMETIC, "its threads are 3", 1.0)
        drifts = []
        for pid in (process.pid, process.pid + 1):
            write_drifts(drift_file(state), {"default/chat": (pid, (drift,))})
            drifts += [i.drifts for i in recorded_instances(state, "mac") if i.ref == ref("chat")]
        only_looks = recorded_node("mac", Settings(state.root))
        seen = only_looks.observe([workload("chat", port=port)]).targets["node/mac"]
        wanted = read_gone(state), recorded_leaving(state)
        records.write(replace(runs, wanted=False))
        records.write(replace(gone, reason="Crashed", message="code 1"))
        nobody = read_gone(state), recorded_leaving(state)
        state.lock()
        busy = recorded_leaving(state)
        post(port, "/busy/0")
        idle = recorded_leaving(state)
        state.unlock()
    finally:
        process.kill()
        process.wait()

    unseen = "its process ended while no agent ran to start it again"
    ending = f"still ending: pid {process.pid}, "
    assert drifts == [(drift,), ()], "of another process"
    assert (seen.ports, seen.ports_taken) == ({ref("chat"): port}, {}), "its own"
    assert wanted == ({ref("gone"): unseen}, {})
    assert nobody == (
        {ref("gone"): f"{unseen}; the last time: Crashed: code 1"},
        {ref("chat"): f"{ending}waiting for 2 requests; nobody ends it now: `fleet-agent stop"
                      " default/chat` does"},
    )  # fmt: skip
    assert busy == {ref("chat"): f"{ending}waiting for 2 requests, for 3600 s at most"}
    assert idle == {ref("chat"): f"{ending}no request in flight"}
    assert list(read_gone(state)) == [ref("gone")]
    assert recorded_leaving(state) == {}


def test_what_has_no_process_is_said_by_what_its_owner_knows_of_it(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "state")
    bare = ProcessRecord(launch("chat", 20_000), wanted=True, boot="b")
    state.lock()

    said = []
    for record in (bare, replace(bare, reason="CrashLoopBackOff", message="code 1")):
        Records(state).write(record)
        (found,) = recorded_instances(state, "mac")
        said.append((found.reason, found.message, found.gone, found.ready))
    state.unlock()

    assert said == [
        ("ProcessGone", "its process ended", False, False),
        ("CrashLoopBackOff", "code 1", False, False),
    ]


def test_what_was_gone_when_its_agent_came_is_shown_so_unless_it_was_found_after_all() -> None:
    runs = instance("chat", ready=True, pid=7, endpoint="http://127.0.0.1:1")
    gone = {ref("chat"): "it ended"}

    shown = with_gone_reason(runs, gone)

    assert (shown.ready, shown.gone, shown.pid, shown.endpoint) == (False, True, None, None)
    assert (shown.reason, shown.message) == ("ProcessGone", "it ended")
    for same, of in ((runs, {}), (replace(runs, adopted=True), gone)):
        assert with_gone_reason(same, of) is same


def test_a_suspended_service_is_said_while_no_agent_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateDir.open(tmp_path / "state")
    note_suspended(state, [ref("idle")])

    code = main(["status", "--state-dir", str(state.root)])
    note_suspended(state, [])
    main(["status", "--state-dir", str(state.root)])

    before, _, after = capsys.readouterr().out.partition("no services")
    assert (code, "default/idle  Suspended" in before) == (0, True)
    assert "idle" not in after


def test_a_status_of_one_service_leaves_out_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = StateDir.open(tmp_path / "state")
    Stopped(state).add({ref("chat"): "d", ref("more"): "d"}, {})

    codes = [main(["status", name, "--state-dir", str(state.root)]) for name in ("chat", "none")]

    said = capsys.readouterr()
    assert codes == [0, 64]
    assert "default/chat  StoppedByHand" in said.out
    assert "default/more" not in said.out
    assert "default/none: no such service" in said.err
