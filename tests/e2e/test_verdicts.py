"""Programs that follow each other on one state directory have one verdict on a revision: no service
stops, and each reports the same reason."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleets import document, node, service
from tests.support.pids import alive
from tests.support.reconciler import Fleet, Machine, Running
from tests.support.repos import run_git
from tests.support.served_node import request
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

BROKEN = "# inference.llmkube.dev/\nspec: [\n"
FAULT = "a fault is planted here"
# Run by the interpreter at its start: reading such a revision raises, as a defect would.
PLANTED = f"""\
import reconciler.source.load as load
examine = load.examine
def planted(checkout, *words, **more):
    if any(b"{FAULT}" in file.data for file in checkout.yaml_files()):
        raise KeyError("planted")
    return examine(checkout, *words, **more)
load.examine = planted
"""


def _edits(**files: str) -> Callable[[Fleet], object]:
    paths = {"chat": "services/chat.yaml", "fleet": "fleet.yaml", "node": "nodes/here.yaml"}
    return lambda fleet: fleet.repo.publish({paths[name]: text for name, text in files.items()})


def _removes_all(fleet: Fleet) -> None:
    for path in fleet.repo.work.rglob("*.yaml"):
        path.unlink()
    fleet.repo.commit("Remove everything")


def _goes_back(fleet: Fleet) -> None:
    run_git(fleet.repo.remote, "update-ref", "refs/heads/main", fleet.repo.head() + "^")


@dataclass(frozen=True)
class Refusal:
    """A change that may not be applied as it stands, the reason that every program prints, and the
    programs that meet the revision one after the other."""

    change: Callable[[Fleet], object]
    why: str
    programs: tuple[str, ...]
    verdict: str | None = "refused"


REFUSALS = {
    "syntax": Refusal(
        _edits(chat=BROKEN), "services/chat.yaml:", ("agent", "apply", "follow", "agent")
    ),
    "header": Refusal(
        _edits(chat="<html>sign in</html>\n"),
        "contained documents of the fleet",
        ("agent", "apply", "watch", "agent"),
    ),
    "schema": Refusal(
        _edits(chat=service("chat", "tiny", contextSize="many")),
        "spec.contextSize",
        ("agent", "follow", "apply", "agent"),
    ),
    "policy": Refusal(
        _edits(fleet="<html>sign in</html>\n"),
        "fleet.yaml:1:1",
        ("agent", "watch", "apply", "follow"),
    ),
    "older": Refusal(_goes_back, "older than", ("agent", "apply", "apply", "agent"), "held"),
    "guard": Refusal(
        lambda fleet: fleet.push_removal("chat"),
        "NeedsConfirmation",
        ("agent", "agent", "follow", "follow"),
        None,
    ),
    "empty": Refusal(
        _removes_all, "holds no fleet document", ("agent", "watch", "watch", "follow"), "held"
    ),
    "node": Refusal(
        _edits(node=node("other")),
        "has no FleetNode here",
        ("apply", "follow", "watch", "apply"),
        "held",
    ),
    "defect": Refusal(
        _edits(chat=f"# {FAULT}\n{service('chat', 'tiny')}"),
        "InternalError: a bug in this program: KeyError",
        ("agent", "follow", "apply"),
        "failed",
    ),
}


def test_each_program_follows_each_other_in_some_row() -> None:
    followed = {pair for row in REFUSALS.values() for pair in itertools.pairwise(row.programs)}

    assert followed == set(itertools.product(("agent", "apply", "follow", "watch"), repeat=2))


@pytest.mark.parametrize("name", REFUSALS)
def test_programs_on_one_state_directory_have_one_verdict_and_stop_nothing(
    machine: Machine, fleet: Fleet, tmp_path: Path, name: str
) -> None:
    refusal = REFUSALS[name]
    limits = {"prune": {"maxCount": 0}} if name == "guard" else {"drift": "report"}
    fleet.repo.publish({"fleet.yaml": document("Fleet", "home", limits)})
    fleet.push_service("chat")
    env: dict[str, str] = {}
    if refusal.verdict == "failed":
        machine.expects_bugs = True
        (tmp_path / "sitecustomize.py").write_text(PLANTED)
        env = {"PYTHONPATH": str(tmp_path)}
    runs = Programs(machine, fleet, env)
    good = runs.apply("ready at")
    before = machine.wait_ready("chat")
    assert before.pid
    refusal.change(fleet)

    seen = []
    for program in refusal.programs:
        getattr(runs, program)(refusal.why)
        seen.append(runs.verdict())
        assert alive(before.pid), program
    plan = machine.reconcile("plan", "--local=here", "-C", fleet.url, env=env)
    status = machine.reconcile("status", "--local=here", "-C", fleet.url, env=env)
    shown = machine.agent("status")

    assert {known["kind"] for known in seen} == {refusal.verdict}
    assert len({json.dumps(known) for known in seen}) == 1, seen
    assert plan.code in (1, 3), plan.out
    assert refusal.why in plan.out + plan.err
    assert "to delete" not in plan.out
    if refusal.verdict is not None:
        assert status.code in (1, 3), status.out
        assert refusal.why in status.out + status.err
        assert refusal.why in shown.out
    again = machine.instance("chat")
    assert again
    assert (again.pid, again.ready) == (before.pid, True)
    assert good.code == 0


@dataclass
class Programs:
    """The programs that own a node, each run until it has reported a reason."""

    machine: Machine
    fleet: Fleet
    env: Mapping[str, str]

    def agent(self, why: str) -> None:
        words = ("--fleet", self.fleet.url, "--node", "here", "--interval", "1h")
        self._until(self.machine.daemon(*words, env=self.env), why)

    def follow(self, why: str) -> None:
        words = ("follow", "--local=here", "-C", self.fleet.url)
        self._until(self.machine.start(*words, env=self.env), why)

    def watch(self, why: str) -> None:
        words = ("watch", "--local=here", "-C", str(self.fleet.repo.work))
        self._until(self.machine.start(*words, env=self.env), why)

    def apply(self, why: str) -> Any:
        words = ("apply", "--local=here", "-C", self.fleet.url, "--timeout", "30s")
        done = self.machine.reconcile(*words, env=self.env)
        assert why in done.out + done.err, done.err
        return done

    def verdict(self) -> dict[str, object]:
        """The verdict that the record has."""
        record = json.loads((self.machine.state / "desired" / "history.json").read_text())
        kinds = [kind for kind in ("refused", "held", "failed") if record[kind]]
        if not kinds:
            return {"kind": None}
        (kind,) = kinds
        stored = record[kind]
        reason = (stored["problems"] or [stored["message"]])[0]
        return {"kind": kind, "revision": stored["revision"], "reason": reason}

    def _until(self, running: Running, why: str) -> None:
        wait_for(
            lambda: why in running.out + running.err or running.process.poll() is not None, why
        )
        code = running.end()
        assert (why in running.out + running.err, code) == (True, 0), running.err


def test_a_plan_beside_an_agent_is_of_the_revision_that_the_agent_has_applied(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    fleet.push_service("gone")
    agent = machine.daemon("--fleet", fleet.url, "--node", "here")
    machine.wait_ready("gone")
    noted = machine.reconcile("apply", "-C", fleet.url, "--timeout", "60s")  # in a user's record
    fleet.push_removal("gone")
    machine.wait_gone("gone")
    in_part = fleet.repo.publish({"services/chat.yaml": BROKEN})
    wait_for(lambda: machine.node_state()["revision"].get("applied") == in_part)

    beside = machine.reconcile("plan", "-C", fleet.url)
    status = machine.reconcile("status", "-C", fleet.url)
    agent.end()
    after = machine.reconcile("plan", "-C", fleet.url)

    assert noted.code == 0, noted.err
    for plan in (beside, after):
        assert f"this is the plan of {in_part[:12]}, which was applied last" in plan.err
        assert (plan.code, "Plan: 1 blocked, 1 unchanged." in plan.out) == (1, True), plan.out
    assert f"on {in_part[:7]}, refuses parts of it" in status.out


@pytest.mark.parametrize("of", ["the newest revision", "every revision"])
def test_an_agent_starts_its_services_after_a_reboot_under_a_defect(
    machine: Machine, fleet: Fleet, tmp_path: Path, of: str
) -> None:
    machine.expects_bugs = True
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    env = {"PYTHONPATH": str(tmp_path)}
    fleet.push_service("chat")
    words = ("--fleet", fleet.url, "--node", "here")
    agent = machine.daemon(*words, env=env)
    before = machine.wait_ready("chat")
    fleet.repo.publish({"services/chat.yaml": f"# {FAULT}\n{service('chat', 'tiny')}"})
    agent.wait_said("InternalError")

    agent.end()
    assert before.pid
    for process in machine.processes():
        process.kill()
    wait_for(lambda: not alive(before.pid or 0))
    if of == "every revision":
        (tmp_path / "sitecustomize.py").write_text(PLANTED.replace(FAULT, "apiVersion"))
    machine.daemon(*words, env=env)

    machine.wait_ready("chat", not_pid=before.pid)
    wait_for(lambda: "InternalError" in machine.node_state()["revision"].get("held", ""))
    url = json.loads((machine.state / "server.json").read_text())["url"]
    readiness = request(url, "GET", "/readyz")
    metrics = request(url, "GET", "/metrics").text
    status = machine.agent("status")
    assert (readiness.status, "InternalError" in readiness.text) == (503, True)
    assert 'fleet_revision_held{node="here"} 1.0' in metrics
    assert "InternalError: a bug in this program: KeyError" in status.out
    if of == "every revision":
        return

    fleet.push_service("chat", contextSize=1024)
    wait_for(lambda: request(url, "GET", "/readyz").status == 200)
    assert "held" not in machine.node_state()["revision"]
