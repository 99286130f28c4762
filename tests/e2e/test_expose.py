"""Who may reach a node's models: nobody else, everybody on an address, or who has the key."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from agent.process.ports import not_local
from tests.support.fleets import node
from tests.support.gguf_models import tiny_llama
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import PATIENCE_S

pytestmark = pytest.mark.e2e

ELSEWHERE = "127.0.0.2"  # an address of this machine that is not the usual loopback
has_elsewhere = pytest.mark.skipif(
    not_local(ELSEWHERE) is not None,
    reason=f"on a Mac: sudo ifconfig lo0 alias {ELSEWHERE}; Linux has it",
)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "tiny.gguf")


def _push_node(fleet: Fleet, **agent: str) -> None:
    text = node("here", hardware={"memory": "16Gi"}, agent=agent)
    fleet.repo.publish({"nodes/here.yaml": text}, f"Expose {agent}")


def _holds(path: Path, key: str) -> bool:
    """False of a folder, and of what was there only while it was written."""
    try:
        return path.is_file() and key.encode() in path.read_bytes()
    except FileNotFoundError:
        return False


def _status(url: str, key: str | None = None) -> int | None:
    """Of a list of models; None: nobody listens."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}/v1/models", headers=headers), timeout=PATIENCE_S
        ) as answer:
            json.load(answer)
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


@has_elsewhere
def test_a_service_moves_to_the_nodes_address_and_then_asks_for_a_key(
    tmp_path: Path, gguf: Path
) -> None:
    with Machine(tmp_path) as machine:
        fleet = Fleet.create(tmp_path, gguf, "chat")
        running = machine.start("-C", fleet.url, "--local")
        first = machine.wait_ready("chat")
        assert first.endpoint == f"http://127.0.0.1:{first.port}"

        _push_node(fleet, expose="open", hostIP=ELSEWHERE)
        second = machine.wait_ready("chat", not_pid=first.pid)
        assert second.endpoint == f"http://{ELSEWHERE}:{first.port}"
        assert _status(second.endpoint) == 200
        assert _status(str(first.endpoint)) is None
        running.wait_planned("node.agent.expose")
        running.wait_planned("nodes/here.yaml:")

        _push_node(fleet, expose="key", hostIP=ELSEWHERE)
        third = machine.wait_ready("chat", not_pid=second.pid)
        key = (machine.state / "api-key").read_text().strip()

        assert [_status(str(third.endpoint), k) for k in (None, "wrong", key)] == [401, 401, 200]
        copies = {p.name for p in machine.state.rglob("*") if _holds(p, key)}
        assert copies == {"api-key"}
        assert key not in machine.everything_said()
        assert all(key not in word for p in machine.processes() for word in p.cmdline())


@has_elsewhere
def test_a_key_that_was_changed_holds_from_the_next_start(tmp_path: Path, gguf: Path) -> None:
    with Machine(tmp_path) as machine:
        machine.state.mkdir()
        (machine.state / "api-key").write_text("first-key")
        (machine.state / "api-key").chmod(0o600)
        fleet = Fleet.create(tmp_path, gguf, "chat", agent={"expose": "key", "hostIP": ELSEWHERE})
        machine.start("-C", fleet.url, "--local")
        first = machine.wait_ready("chat")

        (machine.state / "api-key").write_text("second-key")
        still = machine.wait_ready("chat")
        fleet.push_service(contextSize=1024)
        second = machine.wait_ready("chat", not_pid=first.pid)

        assert still.pid == first.pid
        assert _status(str(second.endpoint), "first-key") == 401
        assert _status(str(second.endpoint), "second-key") == 200


@has_elsewhere
def test_the_key_of_a_machine_may_lie_elsewhere(tmp_path: Path, gguf: Path) -> None:
    with Machine(tmp_path) as machine:
        own = tmp_path / "own-key"
        own.write_text("keep-it-here")
        own.chmod(0o600)
        words = ("--api-key-file", str(own))
        fleet = Fleet.create(tmp_path, gguf, "chat", agent={"expose": "key", "hostIP": ELSEWHERE})
        machine.daemon("--fleet", fleet.url, "--node", "here", *words)
        by_daemon = machine.wait_ready("chat")
        for running in machine.running():
            running.end()
        assert machine.agent("restart", "chat", *words).code == 0
        by_hand = machine.wait_ready("chat", not_pid=by_daemon.pid)

        machine.start("-C", fleet.url, "--local", *words)
        fleet.push_service("more")
        by_local = machine.wait_ready("more")

        for instance in (by_hand, by_local):
            keys = (None, "wrong", "keep-it-here")
            assert [_status(str(instance.endpoint), k) for k in keys] == [401, 401, 200]
        assert not (machine.state / "api-key").exists()


@has_elsewhere
def test_an_agent_and_reconcile_local_make_one_key(tmp_path: Path, gguf: Path) -> None:
    with Machine(tmp_path) as machine:
        fleet = Fleet.create(tmp_path, gguf, "chat", agent={"expose": "key", "hostIP": ELSEWHERE})
        machine.daemon("--fleet", fleet.url, "--node", "here")
        machine.wait_ready("chat")
        key = (machine.state / "api-key").read_text().strip()
        for running in machine.running():
            running.end()

        machine.start("-C", fleet.url, "--local")
        fleet.push_service("more")
        more = machine.wait_ready("more")

        assert _status(str(more.endpoint), key) == 200


def test_an_ipv6_address_stands_in_brackets(tmp_path: Path, gguf: Path) -> None:
    with Machine(tmp_path) as machine:
        fleet = Fleet.create(tmp_path, gguf, "chat", agent={"expose": "open", "hostIP": "::1"})
        machine.start("-C", fleet.url, "--local")

        ready = machine.wait_ready("chat")

        assert ready.endpoint == f"http://[::1]:{ready.port}"
        assert _status(ready.endpoint) == 200


@pytest.mark.parametrize("address", ["203.0.113.9", "0.0.0.0", "1.2.3"])
def test_an_address_that_is_not_this_machines_starts_nothing_and_stops_nothing(
    tmp_path: Path, gguf: Path, address: str
) -> None:
    with Machine(tmp_path) as machine:
        fleet = Fleet.create(tmp_path, gguf, "chat")
        running = machine.start("-C", fleet.url, "--local")
        first = machine.wait_ready("chat")

        _push_node(fleet, expose="open", hostIP=address)
        running.wait_planned("HostIPNotLocal")
        fleet.push_service("second")
        running.wait_planned("default/second")

        assert f"HostIPNotLocal: {address} is not " in running.out
        assert machine.instance("second") is None
        still = machine.instance("chat")
        assert still is not None
        assert (still.pid, still.ready) == (first.pid, True)
