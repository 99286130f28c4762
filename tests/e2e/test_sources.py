"""Where an agent's fleet comes from, and what an agent makes of one that is wrong."""

from __future__ import annotations

import hashlib
import shutil
import signal
from pathlib import Path

import pytest

from tests.support.client import complete
from tests.support.fleets import model, node, service
from tests.support.reconciler import Fleet, Machine
from tests.support.repos import Repo
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

BROKEN = "# inference.llmkube.dev/\nspec: [\n"


def test_a_node_without_a_network_serves_from_a_bundle_with_its_models_beside_it(
    machine: Machine, tmp_path: Path, tiny: Path
) -> None:
    repo, stick = Repo.create(tmp_path / "far"), tmp_path / "stick"
    data = tiny.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    stored = stick / "models" / "sha256" / digest / "tiny.gguf"
    stored.parent.mkdir(parents=True)
    stored.write_bytes(data)
    shutil.copy(tiny, stick / "models" / "named.gguf")
    pinned = {"source": "https://models.invalid/tiny.gguf", "sha256": digest}
    repo.publish(
        {
            "here.yaml": node("here", hardware={"memory": "16Gi"}),
            "tiny.yaml": model("tiny", **pinned),
            "named.yaml": model("named", source="hf://org/repo/named.gguf@main"),
            "a.yaml": service("a", "tiny"),
        }
    )
    file = stick / "fleet.bundle"
    repo.git("bundle", "create", "-q", str(file), "HEAD", "--all")

    daemon = machine.daemon("--fleet", str(file), "--node", "here", "--interval", "300ms")
    first = machine.wait_ready("a")
    repo.publish({"b.yaml": service("b", "named")})
    repo.git("bundle", "create", "-q", str(stick / "next"), "HEAD", "--all")
    file.write_bytes((stick / "next").read_bytes()[:200])
    daemon.wait_said("copy it again")
    (stick / "next").replace(file)
    second = machine.wait_ready("b")
    shutil.rmtree(stick)
    daemon.end(signal.SIGKILL)
    for process in machine.processes():
        process.kill()
    machine.daemon("--fleet", str(file), "--node", "here")

    assert second.endpoint
    assert first.pid != machine.wait_ready("a", not_pid=first.pid).pid
    again = machine.wait_ready("b", not_pid=second.pid)
    assert again.endpoint
    assert complete(again.endpoint)


def test_an_agent_holds_what_is_wrong_in_its_slice_and_goes_on_with_the_rest(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.repo.publish({"nodes/there.yaml": node("there")})
    here = {"placement": {"nodes": ["here"]}}
    fleet.push_service("chat", **here)
    daemon = machine.daemon("--fleet", fleet.url, "--node", "here")
    before = machine.wait_ready("chat")

    far = service("far", "nothing", placement={"nodes": ["there"]})
    fleet.repo.publish({"services/chat.yaml": BROKEN, "services/far.yaml": far})
    fleet.push_service("more", **here)
    machine.wait_ready("more")
    daemon.wait_said("services/chat.yaml")
    daemon.end(signal.SIGKILL)
    for process in machine.processes():
        process.kill()
    machine.daemon("--fleet", fleet.url, "--node", "here")
    revived = machine.wait_ready("chat", not_pid=before.pid)
    machine.wait_ready("more")
    fleet.push_service("again", **here)
    machine.wait_ready("again")
    shown = machine.agent("status", "-o", "json").json()

    assert machine.instances()["chat"].pid == revived.pid
    revision = shown["nodes"][0]["revision"]
    assert (revision["applied"], revision["refused"]) == (fleet.repo.head(), fleet.repo.head())
    assert "services/chat.yaml:2:8" in str(revision["problems"])
    fleet.push_removal("chat")
    machine.wait_gone("chat", revived.pid)


def test_a_head_that_strict_history_holds_is_followed_once_a_person_accepts_it(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    words = ("--fleet", fleet.url, "--node", "here", "--strict-history")
    daemon = machine.daemon(*words)
    machine.wait_ready("chat")
    applied = fleet.repo.head()
    wait_for(lambda: applied in (machine.state / "desired/history.json").read_text())
    fleet.repo.write("services/other.yaml", service("other", "tiny"))
    fleet.repo.git("add", "--all")
    fleet.repo.git("commit", "-q", "--amend", "-m", "rewritten")
    fleet.repo.push(force=True)
    head = fleet.repo.head()
    daemon.wait_said("held (--strict-history)")

    wrong = machine.agent("accept", applied[:12])
    with_it = set(machine.instances())
    right = machine.agent("accept", head[:12])
    machine.wait_ready("other")
    nothing = machine.agent("accept", head)

    assert (wrong.code, "another head is held" in wrong.err) == (64, True)
    assert with_it == {"chat"}
    assert (right.code, "followed now" in right.err) == (0, True)
    assert (nothing.code, "no head is held" in nothing.err) == (64, True)


def test_a_head_is_accepted_also_while_no_agent_runs(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    old = fleet.repo.head()
    daemon = machine.daemon("--fleet", fleet.url, "--node", "here")
    machine.wait_ready("chat")
    fleet.push_service("more")
    machine.wait_ready("more")
    wait_for(lambda: fleet.repo.head() in (machine.state / "desired/history.json").read_text())
    fleet.repo.git("reset", "-q", "--hard", old)
    fleet.repo.push(force=True)
    daemon.wait_said("older than")
    daemon.end()

    accepted = machine.agent("accept", old)
    machine.daemon("--fleet", fleet.url, "--node", "here")

    assert (accepted.code, "when the agent starts" in accepted.err) == (0, True)
    machine.wait_gone("more")


def test_a_folder_that_is_gone_at_the_start_is_a_lost_source(
    machine: Machine, tmp_path: Path, tiny: Path
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "here.yaml").write_text(node("here", hardware={"memory": "16Gi"}))
    (folder / "tiny.yaml").write_text(model("tiny", source=tiny.as_uri()))
    (folder / "chat.yaml").write_text(service("chat", "tiny"))
    daemon = machine.daemon("--fleet", str(folder), "--node", "here")
    before = machine.wait_ready("chat")
    wait_for(lambda: str(folder) in (machine.state / "desired/history.json").read_text())
    daemon.end()
    folder.rename(tmp_path / "away")

    again = machine.daemon("--fleet", str(folder), "--node", "here")
    again.wait_said("source lost")
    during = machine.wait_ready("chat")
    (tmp_path / "away").rename(folder)
    (folder / "more.yaml").write_text(service("more", "tiny"))

    assert machine.wait_ready("more").ready
    assert during.pid == machine.wait_ready("chat").pid == before.pid
