"""Services beside each other on one machine: their ports, their memory, their model files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.client import complete, get
from tests.support.fleets import model, node
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.ports import own_port
from tests.support.reconciler import Fleet, Machine

pytestmark = pytest.mark.e2e


def test_a_second_service_leaves_the_first_alone_and_shares_its_model_file(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    fleet.push_service("more", contextSize=1024)
    more = machine.wait_ready("more")

    chat = machine.instance("chat")
    assert chat
    assert (chat.pid, chat.port) == (before.pid, before.port)
    assert more.port != chat.port
    assert chat.endpoint
    assert more.endpoint
    assert complete(chat.endpoint)
    assert complete(more.endpoint)
    assert len(list((machine.state / "models").rglob("*.gguf"))) == 1


def test_a_service_keeps_its_allocated_port_and_moves_to_a_stated_one(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local", "--stop-on-exit")
    first = machine.wait_ready("chat")
    assert running.end() == 0

    machine.start("-C", fleet.url, "--local")
    second = machine.wait_ready("chat")

    assert second.port == first.port
    stated = own_port()
    fleet.push_service("chat", endpoint={"port": stated})
    third = machine.wait_ready("chat", not_pid=second.pid)
    assert third.port == stated
    assert third.endpoint
    assert get(third.endpoint, "/v1/models")["data"][0]["id"] == "tiny"


def test_what_holds_a_port_from_another_state_directory_is_listed_and_ends_as_it_says(
    machine: Machine, fleet: Fleet
) -> None:
    once = ("-C", fleet.url, "--once", "--local", "--timeout", "60s")
    elsewhere = machine.root / "elsewhere"
    fleet.push_service("chat")
    assert machine.reconcile(*once, "--state-dir", str(elsewhere)).code == 0

    refused = machine.reconcile(*once)
    left = next(each for each in leftovers(machine) if each["stateDir"] == str(elsewhere))
    status = machine.reconcile("status", "-C", fleet.url, "--local")

    ends_with = f"fleet-agent stop default/chat --state-dir {elsewhere}"
    assert refused.code == 3
    assert f"`{ends_with}` ends it" in refused.out
    assert left["endsWith"] == ends_with
    assert status.code == 3
    assert f"`{ends_with}` ends it" in status.out
    assert f"    {ends_with}\n" in machine.agent("leftovers").out
    assert machine.agent(*ends_with.split()[1:]).code == 0
    assert machine.reconcile(*once).code == 0
    assert str(elsewhere) not in {each["stateDir"] for each in leftovers(machine)}


def leftovers(machine: Machine) -> list[dict[str, Any]]:
    """Of the whole machine, and so of tests beside this one."""
    found: list[dict[str, Any]] = machine.agent("leftovers", "-o", "json").json()
    return found


def test_a_service_over_budget_is_refused_with_the_arithmetic_before_anything_is_spawned(
    machine: Machine, fleet: Fleet, tmp_path: Path
) -> None:
    big = tiny_llama(tmp_path / "big.gguf", layers=16, heads=8, kv_heads=8, embedding=256)
    fleet.repo.write("models/big.yaml", model("big", source="models/big.gguf"))
    fleet.repo.write("models/big.gguf", big.read_bytes())
    # 1.5 million tokens of 16 layers of two times 256 values of two bytes: 24 GiB
    fleet.push_service("huge", "big", contextSize=1_572_864)
    fleet.push_service("chat")
    running = machine.start("-C", fleet.url, "--local")

    chat = machine.wait_ready("chat")

    assert chat.endpoint
    assert complete(chat.endpoint)
    assert "services/huge.yaml:6 " in running.out
    refused = _line(running.out, "MemoryFits")
    assert "16.0 GiB x 0.67 = 10.7 GiB budget" in refused
    assert "contextSize: " in refused  # the remedy
    assert [p.pid for p in machine.processes()] == [chat.pid]
    assert not list((machine.state / "logs").glob("*huge*/*"))
    once = machine.reconcile("-C", fleet.url, "--dry-run", "--local")
    assert once.code == 3

    # With less context it fits.
    fleet.push_service("huge", "big", contextSize=1024)
    huge = machine.wait_ready("huge")
    assert huge.endpoint
    assert complete(huge.endpoint, "big")
    still = machine.instance("chat")
    assert still
    assert still.pid == chat.pid


def test_a_downloaded_model_that_does_not_fit_is_not_downloaded_again(
    machine: Machine, fleet: Fleet, tmp_path: Path
) -> None:
    big = tiny_llama(tmp_path / "big.gguf", layers=16, heads=8, kv_heads=8, embedding=256)
    with FileServer(big.read_bytes()) as server:
        fleet.repo.write("models/big.yaml", model("big", source=server.url))
        fleet.push_service("huge", "big", contextSize=1_572_864)
        fleet.push_service("chat")

        for _ in range(2):  # and once more after our restart
            running = machine.start("-C", fleet.url, "--local")
            machine.wait_ready("chat")
            running.wait_planned("MemoryFits")
            fleet.repo.publish({"README.md": f"{running.pid}"}, "Have it look again")
            running.wait_planned("MemoryFits", count=2)
            running.end()

        assert len(server.requests) == 1


def test_a_change_that_would_not_fit_leaves_the_running_process_as_it_is(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat", contextSize=1024)
    running = machine.start("-C", fleet.url, "--local")
    before = machine.wait_ready("chat")

    fleet.push_service("chat", contextSize=100_000_000)
    running.wait_planned("MemoryFits")

    chat = machine.instance("chat")
    assert chat
    assert (chat.pid, chat.ready) == (before.pid, True)


def _line(text: str, word: str) -> str:
    return next(line for line in text.splitlines() if word in line)


def test_of_two_services_that_cannot_both_run_the_plan_says_who_stays_and_why(
    machine: Machine, fleet: Fleet
) -> None:
    small = node("here", hardware={"memory": "4Gi"}, memory={"budget": "400Mi"})
    fleet.repo.publish({"nodes/here.yaml": small}, "A small budget")
    fleet.push_service("low", priority="low")
    here = ("-C", fleet.url, "--local=here")
    assert machine.reconcile(*here, "--once").code == 0
    fleet.push_service("vip", priority="critical")

    plan = machine.reconcile(*here, "--dry-run", "-o", "json").json()

    said = {item["ref"]["name"]: item["message"] for item in plan["blocked"]}
    assert said["low"].startswith("it runs, and stays as it runs; were all started anew, others")
    assert "default/low" in said["vip"]
    assert (
        "what runs keeps its memory, whatever its priority; or suspend one of them" in said["vip"]
    )
