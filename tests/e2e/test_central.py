"""The reconciler beside its agents: it sees them all, wakes them, and executes nothing."""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.observation import RevisionState
from tests.support.agents import FakeAgent, said_by
from tests.support.client import complete
from tests.support.fleets import node, service
from tests.support.one_pass import History, wander
from tests.support.ports import own_ports
from tests.support.reconciler import Finished, Fleet, Machine, Running
from tests.support.served_node import request
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

OK, FAILED, CHANGES, BLOCKED = 0, 1, 2, 3
# Agents that are woken by nobody look at their source too late for any test.
_NEVER = "1000h"
_STEPS = 6  # of a random walk


@dataclass(frozen=True, slots=True)
class Two:
    """Two machines with an agent each, and a third place that looks at both."""

    one: Machine
    two: Machine
    centre: Machine
    fleet: Fleet
    ports: Mapping[str, int]  # of the nodes' agents
    agents: dict[str, Running]

    @property
    def machines(self) -> Mapping[str, Machine]:
        return {"here": self.one, "there": self.two}

    def start(self) -> None:
        """The agents that do not run; each has made a pass."""
        gone = [name for name in self.ports if name not in self.agents]
        for name in gone:
            self.agents[name] = self.machines[name].daemon(
                *("--fleet", self.fleet.url, "--node", name),
                *("--port", str(self.ports[name]), "--interval", _NEVER),
            )
        for name in gone:
            self.wait_passed(name, 0)

    def passes(self, name: str) -> float:
        """How many an agent has ended; 0: it does not answer."""
        return self._metric(name, "fleet_loop_passes_total")

    def _metric(self, name: str, metric: str) -> float:
        with suppress(OSError):
            said = request(f"http://127.0.0.1:{self.ports[name]}", "GET", "/metrics").metrics()
            return said.get(f'{metric}{{node="{name}"}}', 0)
        return 0

    def wait_passed(self, name: str, before: float) -> None:
        wait_for(lambda: self.passes(name) > before, f"a pass on {name}")

    def read_at(self, name: str) -> float:
        """When an agent read the fleet last, in epoch seconds; 0: it does not answer."""
        return self._metric(name, "fleet_source_read_timestamp_seconds")

    def wait_read(self, since: float) -> None:
        """Every agent that runs has read the fleet since then."""
        wait_for(
            lambda: all(self.read_at(name) > since for name in self.agents),
            "all agents read the fleet",
        )

    def end(self, name: str) -> bool:
        """End a node's agent; its models run on. False: it did not run."""
        if name not in self.agents:
            return False
        assert self.agents.pop(name).end() == OK
        return True


@pytest.fixture
def two(tmp_path: Path, fleet: Fleet) -> Iterator[Two]:
    """Nodes `here` and `there`, each with a service that is ready: `a` and `b`."""
    ports = own_ports(2)
    fleet.repo.publish(
        {
            **{
                f"nodes/{name}.yaml": node(
                    name,
                    agent={"url": f"http://127.0.0.1:{port}"},
                    hardware={"memory": "16Gi"},
                )
                for name, port in zip(("here", "there"), ports, strict=True)
            },
            "services/a.yaml": _placed("a", "here"),
            "services/b.yaml": _placed("b", "there"),
        }
    )
    folders = [tmp_path / name for name in ("one", "two", "centre")]
    for folder in folders:
        folder.mkdir()
    with Machine(folders[0]) as one, Machine(folders[1]) as other, Machine(folders[2]) as centre:
        made = Two(one, other, centre, fleet, dict(zip(("here", "there"), ports, strict=True)), {})
        made.start()
        one.wait_ready("a")
        other.wait_ready("b")
        yield made


def test_a_dry_run_covers_every_agent_and_changes_nothing(two: Two) -> None:
    pids = {two.one.wait_ready("a").pid, two.two.wait_ready("b").pid}
    current = two.centre.reconcile("-C", two.fleet.url, "--dry-run")
    two.fleet.repo.publish(
        {
            "services/b.yaml": _placed("b", "there", contextSize=512),
            "services/c.yaml": _placed("c", "here"),
        }
    )

    ahead = two.centre.reconcile("-C", two.fleet.url, "--dry-run", "-o", "json")

    assert (current.code, current.out.splitlines()[-1]) == (
        OK,
        "Plan: nothing to do, 2 unchanged.",
    )
    assert ahead.code == CHANGES
    assert {(c["action"], c["target"], c["ref"]["name"]) for c in ahead.json()["changes"]} == {
        ("create", "node/here", "c"),
        ("replace", "node/there", "b"),
    }
    assert {two.one.wait_ready("a").pid, two.two.wait_ready("b").pid} == pids


def test_a_dead_agent_is_unknown_with_when_it_was_seen_and_its_models_run_on(two: Two) -> None:
    assert two.centre.reconcile("-C", two.fleet.url, "status").code == OK
    two.agents["there"].process.kill()
    two.agents["there"].process.wait()

    plan = two.centre.reconcile("-C", two.fleet.url, "--dry-run")
    allowed = two.centre.reconcile("-C", two.fleet.url, "--dry-run", "--allow-unreachable")
    status = two.centre.reconcile("-C", two.fleet.url, "status", "-o", "json")

    assert plan.code == status.code == BLOCKED
    assert allowed.code == OK
    assert "node there (last seen" in plan.out
    assert "connection refused: does fleet-agent run there?" in plan.out
    assert "  ?   default/b" in plan.out
    nodes = {n["name"]: n for n in status.json()["nodes"]}
    assert (nodes["here"]["reachable"], nodes["there"]["reachable"]) == (True, False)
    endpoint = two.two.wait_ready("b").endpoint
    assert endpoint
    assert complete(endpoint, "tiny")


def test_a_push_reaches_agents_that_do_not_poll_because_they_are_woken(two: Two) -> None:
    centre = two.centre.start("-C", two.fleet.url)
    centre.wait_said("all 2 nodes are on ")

    sha = two.fleet.repo.publish(
        {"services/c.yaml": _placed("c", "here"), "services/d.yaml": _placed("d", "there")}
    )

    centre.wait_said(f"all 2 nodes are on {sha[:7]}, everything answers")
    assert two.one.wait_ready("c").ready
    assert two.two.wait_ready("d").ready
    assert centre.end(signal.SIGTERM) == OK
    assert two.two.wait_ready("d").ready


def test_a_loop_beside_agents_alone_has_the_page_of_all(two: Two) -> None:
    centre = two.centre.start("follow", "-C", two.fleet.url, "--listen", "127.0.0.1:0")
    centre.wait_said("served on port ")
    url = f"http://127.0.0.1:{centre.err.partition('served on port ')[2].split()[0]}"
    names = {"node/here", "node/there", "default/a", "default/b"}

    wait_for(lambda: all(name in request(url, "GET", "/").text for name in names), url)

    assert "reconcile ask default/a" in request(url, "GET", "/services/default/a").text
    assert request(url, "GET", "/readyz").status == 200
    assert centre.end() == OK


def test_once_waits_for_all_agents_and_says_what_became_of_each_change(two: Two) -> None:
    two.fleet.repo.publish({"services/c.yaml": _placed("c", "here")})

    once = two.centre.reconcile("-C", two.fleet.url, "--once", "--timeout", "60s", "-o", "json")

    assert once.code == OK, once.err
    (outcome,) = once.json()["outcomes"]
    assert (outcome["change"]["ref"]["name"], outcome["result"]) == ("c", "applied")
    assert two.one.wait_ready("c").ready


def test_after_any_edits_a_dry_run_beside_agents_says_what_they_do(
    two: Two, tmp_path: Path
) -> None:
    """Nobody but the pass wakes the agents, or the test waits for what they do then: what it
    plans is still to be done."""

    def drawn(number: int) -> dict[str, Any]:
        on = random.sample(("here", "there"), 2)
        return {"modelRef": "tiny", "contextSize": 512 + number, "placement": {"nodes": on}}

    history = History(two.fleet.repo, drawn, [two.fleet.repo.head()])
    other = _other_fleet(tmp_path / "other", two.fleet.repo.work)

    def stop_by_hand() -> None:
        """Which wakes an agent: it reads the newest revision too."""
        name, machine = random.choice(tuple(two.machines.items()))
        before = two.passes(name)
        stopped = machine.agent("stop", "--all")
        if name in two.agents and "stopping" in stopped.err:
            two.wait_passed(name, before)

    def end_an_agent() -> None:
        two.end(random.choice(("here", "there")))

    def all_come_back() -> None:
        two.start()

    def another_fleet_passes() -> None:
        name, machine = random.choice(tuple(two.machines.items()))
        was_there = two.end(name)
        machine.reconcile("-C", str(other), "--local", "--node", name, "--once", "--timeout", "10s")
        if was_there:
            two.start()

    def run(*words: str) -> Finished:
        is_pass, begun = "--once" in words, time.time()
        all_there = len(two.agents) == len(two.ports)
        patience = () if all_there or not is_pass else ("--timeout", "3s")
        done = two.centre.reconcile("-C", two.fleet.url, *words, *patience)
        if is_pass and done.out:  # an agent that it woke for nothing would read the next edit
            two.wait_read(begun)
        return done

    moves = (stop_by_hand, end_an_agent, all_come_back, all_come_back, another_fleet_passes)
    wander((*history.moves, *moves), run, repair=history.repair, steps=_STEPS)


def _other_fleet(folder: Path, like: Path) -> Path:
    """Files that know both nodes, a service `a` as well, and one of their own."""
    shutil.copytree(like, folder, ignore=shutil.ignore_patterns(".git", "b.yaml"))
    (folder / "services/x.yaml").write_text(service("x", "tiny"))
    return folder


def test_a_machine_that_is_a_node_of_the_fleet_looks_at_itself(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("a")
    bare = ("-C", fleet.url)
    before = machine.reconcile(*bare, "status")
    assert machine.reconcile(*bare, "--once", "--local").code == OK

    status = machine.reconcile(*bare, "status")
    planned = machine.reconcile(*bare, "--dry-run")
    explained = machine.reconcile(*bare, "explain", "a")
    fleet.push_service("a", contextSize=512)
    once = machine.reconcile(*bare, "--once", "--timeout", "10s")

    assert before.code == BLOCKED
    assert "--local on the machine itself" in before.out
    assert status.code == planned.code == OK, status.out + planned.out
    assert "1 of 1 services ready" in status.out
    assert str(machine.state) in explained.out
    assert once.code == BLOCKED
    assert "`reconcile apply --local` applies what is newer" in once.err


def test_the_status_follows_a_stop_by_hand(two: Two) -> None:
    following = two.centre.start("-C", two.fleet.url, "status", "--follow")
    following.wait_planned("2 of 2 services ready")

    two.one.agent("stop", "a")

    following.wait_planned("1 of 1 services ready, 1 stopped by hand")
    assert following.end(signal.SIGINT) == 130


def test_a_refusal_ends_the_wait_and_says_the_agents_own_words(
    machine: Machine, fleet: Fleet
) -> None:
    with FakeAgent("here") as agent:
        sha = _state_url(fleet, agent)
        problem = "services/x.yaml:3:5: spec.nonsense: no such field"
        agent.state = said_by("here", revision=RevisionState(sha, "a" * 40, sha, (problem,)))

        once = machine.reconcile("-C", fleet.url, "--once")

    assert once.code == BLOCKED
    assert f"here  refuses {sha[:7]}: {problem}" in once.err
    assert agent.wakes == 1
    assert {method for method, path in agent.requests if path != "/v1/wake"} == {"GET"}


def test_an_agent_that_never_comes_is_named_when_the_time_is_over(
    machine: Machine, fleet: Fleet
) -> None:
    with FakeAgent("here") as agent:
        sha = _state_url(fleet, agent)
        agent.state = said_by("here", revision=RevisionState("a" * 40, "a" * 40))

        once = machine.reconcile("-C", fleet.url, "--once", "--timeout", "1s")

    assert once.code == BLOCKED
    assert f"here  not on {sha[:7]} yet: still on aaaaaaa" in once.err
    assert re.search(rf"0 of 1 nodes ready on {sha[:7]} after \d+ s; not here .behind.", once.err)


def test_a_node_without_a_url_is_not_waited_for(machine: Machine, fleet: Fleet) -> None:
    once = machine.reconcile("-C", fleet.url, "--once")
    allowed = machine.reconcile("-C", fleet.url, "--once", "--allow-unreachable")

    assert (once.code, allowed.code) == (BLOCKED, OK)
    assert "states no spec.agent.url" in once.err


def test_an_invalid_revision_wakes_nobody(machine: Machine, fleet: Fleet) -> None:
    with FakeAgent("here") as agent:
        _state_url(fleet, agent)
        fleet.repo.publish({"services/bad.yaml": service("bad", "tiny", nonsense=1)})

        once = machine.reconcile("-C", fleet.url, "--once", "--timeout", "20s")

    assert once.code == FAILED
    assert "services/bad.yaml" in once.err
    assert agent.requests == []


def test_a_token_file_that_is_not_there_is_a_wrong_command_line(
    machine: Machine, fleet: Fleet
) -> None:
    done = machine.reconcile("-C", fleet.url, "status", "--agent-token-file", "gone")

    assert done.code == 64
    assert "/gone: there is no such file" in done.err


def test_the_central_loop_goes_on_after_an_agent_comes_back(machine: Machine, fleet: Fleet) -> None:
    (port,) = own_ports(1)
    sha = fleet.repo.publish(
        {"nodes/here.yaml": node("here", agent={"url": f"http://127.0.0.1:{port}"})}
    )
    centre = machine.start("-C", fleet.url, "--timeout", "1s")
    centre.wait_said(f"0 of 1 nodes ready on {sha[:7]} after")

    with FakeAgent("here", port=port) as agent:
        agent.state = said_by("here", revision=RevisionState(sha, sha))
        centre.process.send_signal(signal.SIGHUP)

        centre.wait_said(f"here  on {sha[:7]}, everything answers")
    assert centre.end() == OK


def _state_url(fleet: Fleet, agent: FakeAgent) -> str:
    return fleet.repo.publish({"nodes/here.yaml": node("here", agent={"url": agent.url})})


def _placed(name: str, on: str, **spec: object) -> str:
    """With a context that the model has: an agent that looked long enough shows it else."""
    spec = {"contextSize": 256, **spec}
    return service(name, "tiny", placement={"nodes": [on]}, **spec)
