"""`fleet-agent run`: its own node only, alone where it must be, and what it leaves behind."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import complete
from tests.support.fleets import model, node, service, write_fleet
from tests.support.git_http import GitServer, git_server
from tests.support.http import FileServer
from tests.support.pids import alive
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture
def server(fleet: Fleet) -> Iterator[GitServer]:
    """The fleet's remote over git's http protocol."""
    with git_server(fleet.repo.remote.parent) as made:
        yield made


def test_two_agents_of_one_repository_run_each_its_own_node(
    tmp_path: Path, fleet: Fleet, server: GitServer
) -> None:
    url = server.url("fleet.git")
    fleet.repo.publish(
        {
            "nodes/there.yaml": node("there", hardware={"memory": "16Gi"}),
            "services/a.yaml": service("a", "tiny", placement={"nodes": ["here"]}),
            "services/b.yaml": service("b", "tiny", placement={"nodes": ["there"]}),
        }
    )
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()

    with Machine(tmp_path / "one") as one, Machine(tmp_path / "two") as two:
        one.daemon("--fleet", url, "--node", "here")
        two.daemon("--fleet", url, "--node", "there")
        one.wait_ready("a")
        two.wait_ready("b")

        assert set(one.instances()) == {"a"}
        assert set(two.instances()) == {"b"}

        # A removal concerns the one that has it, and nobody else restarts.
        before = two.instance("b")
        fleet.push_removal("a")
        one.wait_gone("a")
        assert before
        assert two.wait_ready("b").pid == before.pid


def test_it_serves_after_a_crash_and_a_reboot_with_the_network_gone(
    machine: Machine, fleet: Fleet, server: GitServer
) -> None:
    fleet.push_service("chat")
    first = machine.daemon("--fleet", server.url("fleet.git"), "--node", "here")
    before = machine.wait_ready("chat")
    wait_for(lambda: fleet.repo.head() in (machine.state / "desired/history.json").read_text())

    server.stop()
    first.end(signal.SIGKILL)
    for process in machine.processes():
        process.kill()
    wait_for(lambda: not machine.processes())
    second = machine.daemon("--fleet", server.url("fleet.git"), "--node", "here")

    after = machine.wait_ready("chat", not_pid=before.pid)
    second.wait_said("source lost")
    assert after.endpoint
    assert complete(after.endpoint)
    shown = machine.agent("status", "-o", "json")
    its = shown.json()["nodes"][0]["revision"]
    assert (shown.code, its["applied"]) == (3, fleet.repo.head())
    assert "unable to access" in its["lost"]["message"]

    server.start()
    second.wait_said("source answers again")
    fleet.push_service("more")
    machine.wait_ready("more")


@pytest.mark.parametrize("change", ["gone", "empty"])
def test_without_its_own_node_or_with_an_empty_tree_it_holds_what_runs(
    machine: Machine, fleet: Fleet, change: str
) -> None:
    fleet.push_service("chat")
    running = machine.daemon("--fleet", fleet.url, "--node", "here")
    before = machine.wait_ready("chat")

    if change == "gone":
        (fleet.repo.work / "nodes/here.yaml").unlink()
        fleet.repo.publish({"nodes/other.yaml": node("other")})
    else:
        fleet.repo.git("rm", "-rq", ".")
        fleet.repo.commit("Remove everything")

    running.wait_said("held, what runs stays as it is")
    now = machine.wait_ready("chat")
    assert now.pid == before.pid
    running.end()
    again = machine.daemon("--fleet", fleet.url, "--node", "here")
    again.wait_said("held, what runs stays as it is")
    assert machine.wait_ready("chat").pid == before.pid


def test_a_hangup_has_it_look_at_once_and_the_end_leaves_the_models_running(
    machine: Machine, fleet: Fleet
) -> None:
    running = machine.daemon("--fleet", fleet.url, "--node", "here", "--interval", "1h")
    running.wait_said("msg=plan")
    fleet.push_service("chat")

    running.process.send_signal(signal.SIGHUP)

    running.wait_said("action=create")
    chat = machine.wait_ready("chat")
    assert running.end() == 0
    assert chat.pid
    assert alive(chat.pid)
    assert "leaves_running=default/chat" in running.err


def test_what_it_says_is_one_line_an_event_with_what_was_decided_first(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    running = machine.daemon(
        "--fleet", fleet.url, "--node", "here", "--memory-fraction", "0.5", "--runtime", "llamacpp"
    )
    machine.wait_ready("chat")
    running.wait_said("msg=ready")
    head = fleet.push_service("chat", contextSize=-1)
    running.wait_said(head)

    lines = running.err.splitlines()
    assert all(line.startswith("time=") and " level=" in line for line in lines)
    first = lines[0]
    for pair in ('msg="fleet-agent begins"', "node=here", "memory_fraction=0.5"):
        assert pair in first
    assert f"fleet={fleet.url}" in first
    assert f"state={machine.state}" in first
    assert "16.0 GiB x 0.5" in running.err
    assert "level=error" in running.err
    assert sum("msg=ready" in line for line in lines) == 1


def test_a_refused_revision_is_known_after_a_restart(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    good = fleet.repo.head()
    first = machine.daemon("--fleet", fleet.url, "--node", "here")
    machine.wait_ready("chat")
    bad = fleet.push_service("chat", contextSize=-1)
    first.wait_said(f"revision={bad}")
    first.end(signal.SIGKILL)

    shown = machine.agent("status", "-o", "json").json()["nodes"][0]["revision"]
    text = machine.agent("status").out

    assert shown["applied"] in (good, bad)  # what of it is right may be applied by then
    assert shown["refused"] == bad
    assert any("contextSize" in problem for problem in shown["problems"])
    assert ("refuses parts of it" if shown["applied"] == bad else f"refuses {bad[:7]}") in text
    assert "contextSize" in text


def test_a_new_model_that_does_not_come_is_said_once_while_the_old_one_serves(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    fleet.push_service("chat")
    running = machine.daemon("--fleet", fleet.url, "--node", "here")
    before = machine.wait_ready("chat")

    with FileServer(tiny.read_bytes()) as server:
        server.status = 503
        fleet.repo.write("models/other.yaml", model("other", source=server.url))
        fleet.push_service("chat", "other")
        running.wait_said("waits for its model: DownloadFailed: ")
        wait_for(lambda: len(server.requests) >= 2)  # and again, and again
        server.go_on.clear()
        server.status = None
        asked = len(server.requests)
        wait_for(lambda: len(server.requests) > asked, "a download that is under way")
        fleet.push_service("second")
        machine.wait_ready("second")  # a pass has found it so

        assert running.err.count("waits for its model: DownloadFailed") == 1, running.err
        said = [line for line in running.err.splitlines() if "HTTP 503" in line]
        assert len(said) == 1
        assert "service=default/chat" in said[0]
        assert "try again later" in said[0]
        assert machine.wait_ready("chat").pid == before.pid
        for seen in (
            machine.agent("status"),
            machine.reconcile("status", "-C", fleet.url, "--local"),
        ):
            assert re.search(r"update pending: Download(Failed|ing): ", seen.out), seen.out
        server.go_on.set()
        machine.wait_ready("chat", not_pid=before.pid)


def test_only_services_of_the_named_namespace_are_its_own(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    all_of_them = machine.daemon("--fleet", fleet.url, "--node", "here")
    chat = machine.wait_ready("chat")
    all_of_them.end()

    running = machine.daemon("--fleet", fleet.url, "--node", "here", "--namespace", "other")
    running.wait_said("msg=plan")
    running.wait_said("msg=plan revision")

    now = machine.instance("chat")
    assert now
    assert (now.pid, now.ready) == (chat.pid, True)  # not its own: neither served nor removed


def test_a_second_agent_on_one_state_directory_is_refused(machine: Machine, fleet: Fleet) -> None:
    first = machine.daemon("--fleet", fleet.url, "--node", "here")
    first.wait_said("msg=plan")

    second = machine.daemon("--fleet", fleet.url, "--node", "here")

    assert second.process.wait(PATIENCE_S) == 1
    assert f"already in use by pid {first.pid}" in second.err


def test_without_a_fleet_or_with_a_wrong_node_it_says_what_to_do(
    machine: Machine, fleet: Fleet
) -> None:
    nowhere = machine.agent("run")
    unknown = machine.agent("run", "--fleet", fleet.url, "--node", "elsewhere")

    assert nowhere.code == unknown.code == 64
    assert "--fleet" in nowhere.err
    assert "it has here" in unknown.err


def test_in_warn_mode_a_service_that_does_not_fit_starts_all_the_same(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.repo.publish(
        {"nodes/here.yaml": node("here", hardware={"memory": "16Gi"}, memory={"budget": "64Mi"})}
    )
    fleet.push_service("chat")
    strict = machine.daemon("--fleet", fleet.url, "--node", "here")
    strict.wait_said("MemoryFits")
    assert machine.instance("chat") is None
    strict.end()

    machine.daemon("--fleet", fleet.url, "--node", "here", "--memory-check-mode", "warn")

    machine.wait_ready("chat")


def test_one_pass_ends_with_why_a_change_did_not_come(
    machine: Machine, fleet: Fleet, tiny: Path
) -> None:
    fleet.push_service("chat")
    assert machine.reconcile("-C", fleet.url, "--local", "--once").code == 0
    before = machine.wait_ready("chat")

    with FileServer(tiny.read_bytes()) as server:
        wrong = model("other", source=server.url, sha256="0" * 64)
        fleet.repo.write("models/other.yaml", wrong)
        fleet.push_service("chat", "other")
        done = machine.reconcile("-C", fleet.url, "--local", "--once")  # not until its --timeout

    assert done.code == 3
    assert done.err.count("default/chat  update pending: ModelCorrupt: ") == 1
    after = machine.wait_ready("chat")
    assert after.pid == before.pid


def test_a_model_file_that_is_repaired_in_a_folder_is_followed(
    tmp_path: Path, machine: Machine, tiny: Path
) -> None:
    files = {
        "node.yaml": node("here", hardware={"memory": "16Gi"}),
        "model.yaml": model("tiny", source="tiny.gguf"),
        "chat.yaml": service("chat", "tiny"),
        "tiny.gguf": tiny.read_bytes()[:1000],
    }
    folder = write_fleet(tmp_path / "folder", files)
    running = machine.daemon("--fleet", str(folder), "--node", "here")
    running.wait_said("undamaged")

    (folder / "tiny.gguf").write_bytes(tiny.read_bytes())

    assert machine.wait_ready("chat").ready
