"""The reconciler beside its agents: it sees them all, wakes them, and executes nothing."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.plan import RevisionState
from tests.support.agents import FakeAgent, said_by
from tests.support.client import complete
from tests.support.fleets import node, service
from tests.support.ports import own_ports
from tests.support.reconciler import Fleet, Machine, Running

pytestmark = pytest.mark.e2e

OK, FAILED, CHANGES, BLOCKED = 0, 1, 2, 3
# Agents that are woken by nobody look at their source too late for any test.
_NEVER = "1000h"


@dataclass(frozen=True, slots=True)
class Two:
    """Two machines with an agent each, and a third place that looks at both."""

    one: Machine
    two: Machine
    centre: Machine
    fleet: Fleet
    agents: tuple[Running, Running]


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
        agents = [
            machine.daemon(
                *("--fleet", fleet.url, "--node", name),
                *("--port", str(port), "--interval", _NEVER),
            )
            for machine, name, port in ((one, "here", ports[0]), (other, "there", ports[1]))
        ]
        one.wait_ready("a")
        other.wait_ready("b")
        yield Two(one, other, centre, fleet, (agents[0], agents[1]))


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
    two.agents[1].process.kill()
    two.agents[1].process.wait()

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
    centre.wait_said("all 2 nodes run by it, everything answers")

    sha = two.fleet.repo.publish(
        {"services/c.yaml": _placed("c", "here"), "services/d.yaml": _placed("d", "there")}
    )

    centre.wait_said(f"{sha[:7]}: all 2 nodes run by it, everything answers")
    assert "+   default/c" in centre.out
    assert two.one.wait_ready("c").ready
    assert two.two.wait_ready("d").ready
    assert centre.end(signal.SIGTERM) == OK
    assert two.two.wait_ready("d").ready


def test_once_waits_for_all_agents_and_says_what_became_of_each_change(two: Two) -> None:
    two.fleet.repo.publish({"services/c.yaml": _placed("c", "here")})

    once = two.centre.reconcile("-C", two.fleet.url, "--once", "--timeout", "60s", "-o", "json")

    assert once.code == OK, once.err
    (outcome,) = once.json()["outcomes"]
    assert (outcome["change"]["ref"]["name"], outcome["result"]) == ("c", "applied")
    assert two.one.wait_ready("c").ready


def test_the_status_follows_a_stop_by_hand(two: Two) -> None:
    following = two.centre.start("-C", two.fleet.url, "status", "--follow")
    following.wait_planned("2 of 2 services ready")

    two.one.agent("stop", "a")

    following.wait_planned("1 of 2 services ready")
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
    assert f"here  refused it: {problem}" in once.err
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
    assert "here  is not there yet: it still runs by aaaaaaa" in once.err
    assert re.search(rf"{sha[:7]}: 0 of 1 nodes are there after \d+ s; not here .behind.", once.err)


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
    centre.wait_said(f"{sha[:7]}: 0 of 1 nodes are there after")

    with FakeAgent("here", port=port) as agent:
        agent.state = said_by("here", revision=RevisionState(sha, sha))
        centre.process.send_signal(signal.SIGHUP)

        centre.wait_said("here  runs by it, everything answers")
    assert centre.end() == OK


def _state_url(fleet: Fleet, agent: FakeAgent) -> str:
    return fleet.repo.publish({"nodes/here.yaml": node("here", agent={"url": agent.url})})


def _placed(name: str, on: str, **spec: object) -> str:
    """With a context that the model has: an agent that looked long enough shows it else."""
    spec = {"contextSize": 256, **spec}
    return service(name, "tiny", placement={"nodes": [on]}, **spec)
