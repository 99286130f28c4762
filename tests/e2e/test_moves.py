"""A service that moves between two machines: its copy stays until its successor answers."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import complete
from tests.support.fleets import document, model, node, service
from tests.support.pids import alive
from tests.support.ports import own_port
from tests.support.reconciler import Finished, Fleet, Machine, Running
from tests.support.repos import run_git
from tests.support.served_node import request
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e


@dataclass(slots=True)
class Home:
    """A machine whose agent is asked at a port of its own."""

    name: str
    machine: Machine
    port: int = field(default_factory=own_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def begin(self, fleet: Fleet) -> Running:
        port = {"FLEET_PORT": str(self.port)}
        return self.machine.daemon("--fleet", fleet.url, "--node", self.name, env=port)

    def stated(self, **spec: Any) -> str:
        hardware = {"memory": "16Gi"}
        return node(self.name, agent={"url": self.url}, hardware=hardware, **spec)

    def state(self) -> dict[str, Any]:
        return dict(request(self.url, "GET", "/v1/state").json())

    def endpoint(self, name: str) -> str | None:
        """Where its NodeState says that a service answers; None where it does not."""
        try:
            found = [i for i in self.state()["instances"] if i["name"] == f"default/{name}"]
        except OSError:
            return None
        return found[0].get("endpoint") if found and found[0]["ready"] else None


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[tuple[Home, Home]]:
    """Two machines that know nothing of each other but what the fleet says."""
    with Machine(_folder(tmp_path / "a")) as one, Machine(_folder(tmp_path / "b")) as two:
        yield Home("a", one), Home("b", two)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def place(fleet: Fleet, name: str, on: Home, **spec: Any) -> str:
    return fleet.push_service(name, placement={"nodes": [on.name]}, **spec)


def declare(fleet: Fleet, a: Home, b: Home, **of_a: Any) -> None:
    (fleet.repo.work / "nodes/here.yaml").unlink()
    fleet.repo.publish({"nodes/a.yaml": a.stated(**of_a), "nodes/b.yaml": b.stated()}, "Two nodes")


class Client(threading.Thread):
    """Sends one request after the other to wherever the nodes say that a service answers."""

    def __init__(self, name: str, *homes: Home) -> None:
        super().__init__(daemon=True)
        self.answered: list[str] = []  # endpoints
        self.failed: list[str] = []
        self._service, self._homes = name, homes
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            endpoint, error = self._ask()
            if error is not None and endpoint != self._endpoint():  # it went while we asked there
                endpoint, error = self._ask()
            if error is None:
                self.answered.append(str(endpoint))
            else:
                self.failed.append(f"{endpoint}: {error}")

    def _ask(self) -> tuple[str | None, str | None]:
        endpoint = self._endpoint()
        if endpoint is None:
            return None, "nobody says that it answers"
        try:
            complete(endpoint, tokens=2)
        except (OSError, http.client.HTTPException) as error:
            return endpoint, repr(error)
        return endpoint, None

    def _endpoint(self) -> str | None:
        found = (home.endpoint(self._service) for home in self._homes)
        return next((one for one in found if one), None)

    def stop(self) -> None:
        self._end.set()
        self.join(PATIENCE_S)


@contextmanager
def sending(name: str, *homes: Home) -> Iterator[Client]:
    client = Client(name, *homes)
    client.start()
    try:
        yield client
    finally:
        client.stop()


def test_a_copy_stays_until_its_successor_answers_and_every_request_is_answered(
    homes: tuple[Home, Home], fleet: Fleet
) -> None:
    a, b = homes
    declare(fleet, a, b)
    place(fleet, "chat", on=a)
    place(fleet, "other", on=a)
    on_a, _ = a.begin(fleet), b.begin(fleet)
    before, other = a.machine.wait_ready("chat"), a.machine.wait_ready("other")
    wait_for(lambda: a.endpoint("chat") is not None)

    with sending("chat", a, b) as client:
        wait_for(lambda: len(client.answered) > 2)
        place(fleet, "chat", on=b)
        on_a.wait_said("action=move")
        after = b.machine.wait_ready("chat")
        a.machine.wait_gone("chat", before.pid)
        sent = len(client.answered)
        wait_for(lambda: len(client.answered) > sent + 2)

    assert client.failed == []
    assert client.answered[0] == before.endpoint
    assert client.answered[-1] == after.endpoint
    assert a.machine.wait_ready("other").pid == other.pid
    assert "MovedAway" in on_a.err


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a service cannot become ready on `b`, and the end of that. `reason`: in the plan of a
    move that is not overdue, also for `b` where `b` answers."""

    reason: str
    begin: Callable[[Fleet, Home, Running], dict[str, str]]
    end: Callable[[Fleet, Home], dict[str, str]]


def ends_agent(_: Fleet, __: Home, agent: Running) -> dict[str, str]:
    agent.end()
    return {}


def starts_agent(fleet: Fleet, b: Home) -> dict[str, str]:
    b.begin(fleet)
    return {}


def of_node(**spec: Any) -> Callable[..., dict[str, str]]:
    return lambda fleet, b, *_: {"nodes/b.yaml": b.stated(**spec)}


def of_model(source: str) -> Callable[..., dict[str, str]]:
    return lambda fleet, *_: {"models/other.yaml": model("other", source=source)}


OBSTACLES = {
    "unschedulable": Obstacle("NodeTakesNothingNew", of_node(unschedulable=True), of_node()),
    "no agent": Obstacle("NotReachable", ends_agent, starts_agent),
    "no model": Obstacle(
        "", of_model("http://127.0.0.1:1/none.gguf"), of_model("models/tiny.gguf")
    ),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_a_copy_stays_past_its_handover_until_its_successor_is_ready(
    homes: tuple[Home, Home], machine: Machine, fleet: Fleet, name: str
) -> None:
    (a, b), obstacle = homes, OBSTACLES[name]
    declare(fleet, a, b)
    fleet.repo.publish({"models/other.yaml": model("other", source="models/tiny.gguf")}, "Model")
    place(fleet, "chat", on=a)
    on_a, on_b = a.begin(fleet), b.begin(fleet)
    before = a.machine.wait_ready("chat")
    wait_for(lambda: a.endpoint("chat") is not None)
    moved = service(*("chat", "other"), placement={"nodes": ["b"]}, rollout={"handover": "1s"})

    files = obstacle.begin(fleet, b, on_b)
    fleet.repo.publish({**files, "services/chat.yaml": moved}, "Move")
    apply = ("apply", "-C", fleet.url, "--timeout", "3s", "--allow-unreachable")
    applied = machine.reconcile(*apply)
    wait_for(lambda: 'reason="MoveStuck"} 1.0' in metrics_of(a))
    again = machine.reconcile(*apply)
    plan = machine.reconcile("plan", "-C", fleet.url, "-o", "json")
    status = machine.reconcile("status", "-C", fleet.url)
    on_a.end()  # its word is noted for who only reads there
    local = a.machine.reconcile("plan", "-C", fleet.url, "--local=a", "-o", "json")
    a.begin(fleet)

    assert alive(before.pid or 0)
    assert (applied.code, again.code, plan.code, status.code, local.code) == (3, 3, 3, 3, 3)
    assert "everything answers" not in again.err
    stuck = [item for item in plan.json()["blocked"] if item["target"] == "node/a"]
    assert [item["reason"] for item in stuck] == ["MoveStuck"]
    assert obstacle.reason in stuck[0]["message"]
    if obstacle.reason and on_b.process.poll() is None:
        there = [item for item in plan.json()["blocked"] if item["target"] == "node/b"]
        assert [item["reason"] for item in there] == [obstacle.reason]
    assert not any(change["action"] == "move" for change in plan.json()["changes"])
    assert "update pending: MoveStuck: it stays on node a" in status.out
    assert [item["reason"] for item in local.json()["blocked"]] == ["MoveStuck"]

    if files := obstacle.end(fleet, b):
        fleet.repo.publish(files, "Remove the obstacle")
    b.machine.wait_ready("chat")
    a.machine.wait_gone("chat", before.pid)
    done = machine.reconcile("apply", "-C", fleet.url)
    assert (done.code, "everything answers" in done.err) == (0, True), done


def metrics_of(home: Home) -> str:
    try:
        return request(home.url, "GET", "/metrics").body.decode()
    except OSError:
        return ""


def test_a_service_waits_for_the_memory_of_a_copy_until_that_is_gone(
    homes: tuple[Home, Home], fleet: Fleet
) -> None:
    a, b = homes
    needs = {"promptCache": "6Gi"}
    declare(fleet, a, b, memory={"budget": "10Gi"})
    place(fleet, "chat", on=a, **needs)
    on_a = a.begin(fleet)
    before = a.machine.wait_ready("chat")

    fleet.repo.write(
        "services/more.yaml", service("more", "tiny", placement={"nodes": ["a"]}, **needs)
    )
    place(fleet, "chat", on=b, **needs)
    on_a.wait_said("default/chat leaves once it is ready on node b")
    assert a.machine.wait_ready("chat").pid == before.pid
    assert a.machine.instance("more") is None
    b.begin(fleet)

    a.machine.wait_gone("chat", before.pid)
    assert a.machine.wait_ready("more")
    assert b.machine.wait_ready("chat")


def test_a_move_that_is_taken_back_restarts_nothing(homes: tuple[Home, Home], fleet: Fleet) -> None:
    a, b = homes
    declare(fleet, a, b)
    place(fleet, "chat", on=a)
    on_a = a.begin(fleet)
    before = a.machine.wait_ready("chat")
    place(fleet, "chat", on=b)
    on_a.wait_said("action=move")

    back = place(fleet, "chat", on=a)
    on_a.wait_said(f"revision={back[:12]}")

    b.begin(fleet).wait_said("msg=plan")
    now = a.machine.wait_ready("chat")
    assert (now.pid, now.ready) == (before.pid, True)
    assert before.pid
    assert alive(before.pid)
    assert b.machine.instance("chat") is None


def test_a_move_to_a_silent_node_says_for_whom_it_waits_everywhere_and_at_the_end(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    here = ("-C", fleet.url, "--local=here")
    assert machine.reconcile(*here, "--once").code == 0
    silent = f"http://127.0.0.1:{own_port()}"
    fleet.repo.publish({"nodes/b.yaml": node("b", agent={"url": silent})}, "Another node")
    fleet.push_service("chat", placement={"nodes": ["b"]})

    says = "it stays on node here until it is ready on node b"
    runs: list[Finished] = []

    def says_so_while_it_waits() -> bool:
        runs.append(machine.reconcile(*here, "--once", "--timeout", "3s"))
        return f"(--timeout): NotReachable: {says}" in runs[-1].err

    wait_for(says_so_while_it_waits, "a run for which this machine was quick enough")
    done = runs[-1]
    assert done.code == 3
    assert f"default/chat  not as declared after 3s (--timeout): NotReachable: {says}" in done.err
    assert silent in done.err
    for view in (machine.reconcile("status", *here), machine.agent("status")):
        assert f"update pending: NotReachable: {says}" in view.out.replace("\n", " ")


def test_a_blocked_change_is_seen_where_no_agent_runs_until_it_is_gone(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    here = ("-C", fleet.url, "--local=here", "--once")
    assert machine.reconcile(*here).code == 0
    fleet.push_service("chat", contextSize=99_999_999)

    assert machine.reconcile(*here).code == 3
    blocked = machine.agent("status").out
    fleet.push_service("chat", contextSize=512)
    assert machine.reconcile(*here).code == 0

    assert "update pending: MemoryFits: " in blocked
    assert "pending" not in machine.agent("status").out


def test_the_guard_that_a_plan_for_all_nodes_announces_is_the_one_that_agents_keep(
    homes: tuple[Home, Home], machine: Machine, fleet: Fleet
) -> None:
    declare(fleet, *homes)
    for number, home in enumerate((*homes, *homes)):
        place(fleet, f"old{number}", on=home)
    for home in homes:
        home.begin(fleet)
    before = [homes[n % 2].machine.wait_ready(f"old{n}") for n in range(4)]
    for number in range(4):  # all four get another name, two on each node
        text = (fleet.repo.work / f"services/old{number}.yaml").read_text()
        (fleet.repo.work / f"services/old{number}.yaml").unlink()
        fleet.repo.write(f"services/new{number}.yaml", text.replace(f"old{number}", f"new{number}"))
    fleet.repo.commit("Rename", push=False)

    dry = machine.reconcile("-C", str(fleet.repo.work), "--dry-run", "-o", "json")
    fleet.repo.push()
    for number in range(4):
        homes[number % 2].machine.wait_ready(f"new{number}")

    assert dry.code == 3
    (held,) = dry.json()["blocked"]
    assert held["reason"] == "NeedsConfirmation"
    assert held["message"].startswith("4 of 4 services of this fleet would stop;")
    assert {ref["name"] for ref in held["holds"]} == {"old0", "old1", "old2", "old3"}
    for home in homes:
        (kept,) = home.state()["blocked"]
        assert f"confirm: [{held['confirm']}]" in kept["message"]
        assert "4 of 4 services of this fleet would stop, 2 of them here" in kept["message"]
    assert all(alive(instance.pid) for instance in before if instance.pid)

    policy = document("Fleet", "fleet", {"confirm": [held["confirm"]]})
    fleet.repo.publish({"fleet.yaml": policy}, "Confirm")

    wait_for(lambda: not any(alive(instance.pid) for instance in before if instance.pid))


def test_a_machine_that_leaves_the_fleet_stays_in_every_view_until_nothing_runs_there(
    homes: tuple[Home, Home], machine: Machine, fleet: Fleet
) -> None:
    declare(fleet, *homes)
    running = []
    for name, home in zip(("stays", "goes"), homes, strict=True):
        place(fleet, name, on=home)
        running.append(home.begin(fleet))
        home.machine.wait_ready(name)
    goes = homes[1].machine
    before = goes.wait_ready("goes")
    (fleet.repo.work / "nodes/b.yaml").unlink()
    (fleet.repo.work / "services/goes.yaml").unlink()
    gone = fleet.repo.commit("Without b", push=False)
    here, there = ("-C", str(fleet.repo.work)), ("-C", fleet.url)

    ahead = machine.reconcile(*here, "--dry-run", "-o", "json")  # the first that this machine asks
    fleet.repo.push()
    running[1].wait_said("has no FleetNode b (it has a): held, as it runs")
    wait_for(lambda: homes[0].state()["revision"]["applied"] == gone)

    says = "this fleet no longer declares node b, and its agent keeps running default/goes:"
    (held,) = ahead.json()["blocked"]
    assert (ahead.code, held["reason"], held["ref"]["name"]) == (3, "NodeNotDeclared", "b")
    assert [ref["name"] for ref in held["holds"]] == ["goes"]
    views = [(*there, "--dry-run"), (*there, "--once", "--timeout", "9s"), ("status", *there)]
    for words in views:  # no agent is left behind a revision that declared it
        found = machine.reconcile(*words)
        assert (found.code, says in found.out) == (3, True), found
    left = machine.reconcile("status", *there, "-o", "json").json()
    assert [(n["name"], n["declared"]) for n in left["nodes"]] == [("a", True), ("b", False)]
    seen = goes.agent("status")
    assert (seen.code, "If this machine left the fleet" in seen.out) == (3, True)
    let_in = goes.agent("accept", gone)  # it waits for no person's word
    assert (let_in.code, "to accept it would not help" in let_in.err) == (64, True)
    metrics = request(homes[1].url, "GET", "/metrics").body.decode()
    assert 'fleet_revision_held{node="b"} 1.0' in metrics
    assert request(homes[1].url, "GET", "/readyz").status == 200  # nothing there is to be restarted

    running[1].end()
    alone = goes.agent("status")
    assert (alone.code, "has no FleetNode b" in alone.out) == (3, True)
    silent = machine.reconcile(*there, "--dry-run")
    assert (silent.code, "whether it still runs default/goes is not known" in silent.err) == (
        (0, True)
    )
    homes[1].begin(fleet).wait_said("has no FleetNode b")
    wait_for(lambda: machine.reconcile("status", *there).code == 3)
    assert goes.agent("stop", "--all").code == 0  # as every view says
    assert before.pid
    assert not alive(before.pid)
    wait_for(lambda: not homes[1].state()["instances"])
    for words in views:
        found = machine.reconcile(*words)
        assert (found.code, "no longer declares" in found.out + found.err) == (0, False), found


def test_a_lost_source_and_an_update_that_waits_are_seen_by_who_asks_its_agent_and_in_metrics(
    homes: tuple[Home, Home], machine: Machine, fleet: Fleet
) -> None:
    a, b = homes
    declare(fleet, a, b)
    place(fleet, "chat", on=a, rollout={"handover": "10m"})
    a.begin(fleet)
    a.machine.wait_ready("chat")
    wait_for(lambda: a.machine.agent("status").code == 0)

    head = fleet.repo.head()
    run_git(fleet.repo.remote, "update-ref", "-d", "refs/heads/main")
    wait_for(lambda: "lost" in a.state()["revision"])
    clone = str(fleet.repo.work)
    seen = machine.reconcile("status", "-C", clone, "--allow-unreachable")
    assert (seen.code, "the default branch is gone there" in seen.out) == (3, True)
    assert a.machine.agent("status").code == 3
    assert 'fleet_source_lost{node="a"} 1.0' in request(a.url, "GET", "/metrics").body.decode()
    run_git(fleet.repo.remote, "update-ref", "refs/heads/main", head)
    wait_for(lambda: "lost" not in a.state()["revision"])
    assert machine.reconcile("status", "-C", clone, "--allow-unreachable").code == 0

    place(fleet, "chat", on=b, rollout={"handover": "10m"})
    wait_for(lambda: a.state()["instances"][0].get("pending", {}).get("reason") == "NotReachable")

    found = machine.reconcile("status", "-C", fleet.url, "--allow-unreachable")
    assert (found.code, "update pending: NotReachable: it stays on" in found.out) == (3, True)
    assert a.machine.agent("status").code == 3
    metrics = request(a.url, "GET", "/metrics").body.decode()
    assert 'fleet_pending{node="a",reason="NotReachable"} 1.0' in metrics
    assert request(a.url, "GET", "/readyz").status == 200
