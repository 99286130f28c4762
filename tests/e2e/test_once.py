"""`--once`: one pass, then wait until what should run answers. And what else commands say of it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from agent.state.directory import StateDir
from agent.state.room import LOG_CAP_BYTES
from tests.support.client import complete, context_size
from tests.support.fleets import model
from tests.support.llama_server import llama_server
from tests.support.ports import own_port
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e
OK, FAILED, BLOCKED = 0, 1, 3


def test_once_prints_the_plan_with_its_outcomes_and_ends_when_all_is_ready(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    fleet.push_service("more")

    first = machine.reconcile("-C", fleet.url, "--local", "--once", "-o", "json")

    assert first.code == OK
    document = first.json()
    assert document["revision"] == fleet.repo.head()
    assert {c["ref"]["name"] for c in document["changes"]} == {"chat", "more"}
    done = {o["change"]["ref"]["name"]: o["result"] for o in document["outcomes"]}
    assert done == {"chat": "applied", "more": "applied"}
    now = machine.instances()
    assert {name: i.ready for name, i in now.items()} == {"chat": True, "more": True}
    endpoint = now["chat"].endpoint
    assert endpoint
    assert complete(endpoint)

    log = StateDir(machine.state).log_file(now["chat"].ref)  # that grows while no agent is here
    with log.open("ab") as file:
        file.write(b"x" * (LOG_CAP_BYTES + 1))
    wait_for(lambda: log.stat().st_size < LOG_CAP_BYTES, "the log is rotated")

    again = machine.reconcile("-C", fleet.url, "--local", "--once", "-o", "json")
    assert again.code == OK
    assert (again.json()["changes"], again.json()["outcomes"]) == ([], [])
    assert machine.instance("chat") == now["chat"]


def test_once_ends_with_3_when_a_service_is_not_ready_in_time(
    machine: Machine, fleet: Fleet
) -> None:
    source = f"http://127.0.0.1:{own_port()}/late.gguf"  # nobody listens there
    fleet.repo.write("models/late.yaml", model("late", source=source))
    fleet.push_service("late", "late")
    fleet.push_service("chat")

    def says_why() -> bool:
        words = ("--once", "--timeout", "3s", "-o", "json")
        done = machine.reconcile("-C", fleet.url, "--local", *words)
        assert done.code == BLOCKED
        return "Connection refused" in done.err

    wait_for(says_why, "a run for which this machine was quick enough")
    machine.wait_ready("chat")  # it starts all the same, in more time than that where much runs


def test_once_ends_with_1_for_a_fleet_with_errors(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat", contextSize="many")

    done = machine.reconcile("-C", fleet.url, "--local", "--once")

    assert done.code == FAILED
    assert "services/chat.yaml:6:" in done.err
    assert machine.processes() == []


def test_once_follows_only_what_is_committed(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat", contextSize=1024)
    fleet.repo.write("services/chat.yaml", "nonsense: [")

    done = machine.reconcile("-C", str(fleet.repo.work), "--local", "--once")

    assert done.code == OK
    chat = machine.instance("chat")
    assert chat
    assert chat.endpoint
    assert context_size(chat.endpoint) == 1024


def test_status_and_explain_say_what_really_runs(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat", contextSize=1024, parallelSlots=2)
    assert machine.reconcile("-C", fleet.url, "--local", "--once").code == OK
    chat = machine.instance("chat")
    assert chat

    status = machine.reconcile("status", "-C", fleet.url, "--local", "-o", "json")
    explained = machine.reconcile(
        "explain", "InferenceService/chat", "-C", fleet.url, "--local", "-o", "json"
    )

    assert status.code == OK
    (service,) = status.json()["services"]
    assert service["ref"] == {"kind": "InferenceService", "namespace": "default", "name": "chat"}
    assert service["ready"] is True
    assert service["endpoint"] == f"{chat.endpoint}/v1/chat/completions"
    assert service["advertisedModels"] == ["tiny"]
    assert service["placements"][0]["node"] == "here"
    assert explained.code == OK
    assert explained.json()["placement"]["node"] == "here"
    assert explained.json()["command"] == psutil.Process(chat.pid).cmdline()
    memory = explained.json()["memory"]
    parts = [v for k, v in memory.items() if k.endswith("Bytes") and k != "totalBytes"]
    assert sum(parts) == memory["totalBytes"]


def test_a_given_llama_server_serves_in_the_place_of_the_embedded_engine(
    machine: Machine, fleet: Fleet
) -> None:
    program = str(llama_server())
    fleet.push_service("chat", contextSize=1024)

    done = machine.reconcile("-C", fleet.url, "--local", "--once", "--llama-server", program)

    assert done.code == OK
    chat = machine.instance("chat")
    assert chat
    assert chat.endpoint
    assert Path(psutil.Process(chat.pid).exe()) == Path(program).resolve()
    assert context_size(chat.endpoint) == 1024
    assert complete(chat.endpoint)


def test_a_llama_server_that_is_not_there_blocks_with_how_to_get_it(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")

    done = machine.reconcile("-C", fleet.url, "--local", "--once", "--llama-server", "/nowhere/it")

    assert done.code == BLOCKED
    assert "EngineMissing" in done.out
    assert "/nowhere/it" in done.out
    assert machine.processes() == []
