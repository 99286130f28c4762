"""A fleet with a router, from the push to the answers of its models."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleets import document, model
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.llama_server import llama_server
from tests.support.reconciler import Fleet, Machine, Running
from tests.support.routers import argument, ask, listed, states, stream
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A pushed fleet with two models of a repository."""
    made = Fleet.create(tmp_path / "git", tiny_llama(tmp_path / "tiny.gguf"))
    other = tiny_llama(tmp_path / "other.gguf", seed=3)
    made.repo.publish(
        {
            "models/other.yaml": model("other", source="models/other.gguf"),
            "models/other.gguf": other.read_bytes(),
        },
        "Add another model",
    )
    return made


def push(fleet: Fleet, *models: dict[str, Any], resident: int = 2) -> str:
    text = document(
        "InferenceService",
        "both",
        {
            "runtime": "llamacpp-router",
            "models": list(models),
            "router": {"resident": resident},
            "contextSize": 512,
            "extraArgs": ["--context-shift"],
        },
    )
    return fleet.repo.publish({"services/both.yaml": text}, "Set both")


def start(machine: Machine, fleet: Fleet) -> Running:
    """With the real engine, wherever it is: the embedded one has no router."""
    return machine.start("-C", fleet.url, "--local", "--llama-server", str(llama_server()))


TINY, OTHER = {"name": "tiny"}, {"name": "other"}


def test_a_push_that_changes_one_model_does_not_cut_the_other(
    machine: Machine, fleet: Fleet
) -> None:
    push(fleet, TINY, OTHER)
    running = start(machine, fleet)
    before = machine.wait_ready("both")
    assert before.port
    assert ask(before.port, "other")[0] == 200

    with stream(before.port, "other") as held:
        push(fleet, {**TINY, "contextSize": 1024}, OTHER)
        wait_for(lambda: argument(before.port or 0, "tiny", "--ctx-size") == "1024")
        enough = held.chunks + 50
        wait_for(lambda: held.chunks >= enough or bool(held.ended))

    assert held.ended == ""
    assert "~   default/both" in running.out
    assert "reloads the changed models" in running.out
    after = machine.wait_instance(
        "both", lambda i: states(i.served) == {"tiny": "loaded", "other": "loaded"}
    )
    assert after.pid == before.pid
    assert running.out.count("Plan: 1 to update") == 1


def test_new_bytes_of_one_model_are_served_without_a_restart(
    machine: Machine, fleet: Fleet, tmp_path: Path
) -> None:
    push(fleet, TINY, OTHER)
    start(machine, fleet)
    before = machine.wait_ready("both")
    assert before.port

    untold = machine.reconcile("status", "-C", fleet.url, "--local")
    assert "EngineMissing" not in untold.out  # though the command was not told where it is

    new = tiny_llama(tmp_path / "new.gguf", seed=9).read_bytes()
    fleet.repo.publish({"models/tiny.gguf": new}, "Train it again")

    digest = hashlib.sha256(new).hexdigest()
    wait_for(lambda: digest in argument(before.port or 0, "tiny", "--model"))
    after = machine.wait_instance("both", lambda i: states(i.served).get("tiny") == "loaded")
    assert after.pid == before.pid
    assert ask(before.port, "tiny")[0] == 200


def test_more_models_in_memory_need_a_restart(machine: Machine, fleet: Fleet) -> None:
    push(fleet, TINY, OTHER, resident=1)
    running = start(machine, fleet)
    before = machine.wait_ready("both")

    push(fleet, TINY, OTHER, resident=2)

    machine.wait_ready("both", not_pid=before.pid)
    assert re.search(r"router.resident +1 -> 2\s+restart", running.out)


def test_models_swap_where_there_is_room_for_one(machine: Machine, fleet: Fleet) -> None:
    push(fleet, TINY, OTHER, resident=1)
    start(machine, fleet)
    found = machine.wait_ready("both")
    assert found.port

    assert ask(found.port, "other")[0] == 200

    assert {name: status["value"] for name, status in listed(found.port).items()} == {
        "tiny": "unloaded",
        "other": "loaded",
    }
    assert ask(found.port, "tiny")[0] == 200
    machine.wait_instance(
        "both", lambda i: states(i.served) == {"tiny": "loaded", "other": "unloaded"}
    )


def test_looking_at_a_router_loads_nothing(machine: Machine, fleet: Fleet) -> None:
    push(fleet, TINY, OTHER)
    running = start(machine, fleet)
    found = machine.wait_ready("both")
    assert found.port

    for _ in range(3):
        machine.reconcile("-C", fleet.url, "--local", "--dry-run")
        machine.agent("status")

    assert listed(found.port)["other"]["value"] == "unloaded"
    assert running.process.poll() is None


def test_after_a_sigkill_in_a_reload_the_next_agent_finishes_it(
    machine: Machine, fleet: Fleet
) -> None:
    push(fleet, TINY, OTHER)
    first = start(machine, fleet)
    before = machine.wait_ready("both")
    assert before.port

    with stream(before.port, "tiny"):  # the reload waits for it
        push(fleet, {**TINY, "contextSize": 1024}, OTHER)
        first.wait_planned("reloads the changed models")
        first.end(signal.SIGKILL)
    start(machine, fleet)

    wait_for(lambda: argument(before.port or 0, "tiny", "--ctx-size") == "1024")
    after = machine.wait_instance("both", lambda i: states(i.served).get("tiny") == "loaded")
    assert after.pid == before.pid


def test_a_model_that_the_engine_cannot_load_is_named_with_its_reason(
    machine: Machine, fleet: Fleet, tmp_path: Path
) -> None:
    strange = tiny_llama(tmp_path / "strange.gguf", arch="strange").read_bytes()
    stated = model("strange", source="models/strange.gguf", hardware={"memoryBudget": "9Gi"})
    fleet.repo.publish(
        {"models/strange.yaml": stated, "models/strange.gguf": strange}, "Add a strange model"
    )
    push(fleet, TINY, OTHER, {"name": "strange"})
    start(machine, fleet)
    found = machine.wait_ready("both")
    assert found.port

    assert ask(found.port, "strange")[0] == 500

    port = found.port
    found = machine.wait_instance(
        "both", lambda i: states(i.served).get("strange") == "quarantined"
    )
    assert found.ready
    assert {m.name: m.reason for m in found.served}["strange"] == "ModelUnsupported"
    wait_for(lambda: "strange" not in json.dumps(listed(port)))
    assert ask(port, "other")[0] == 200


def test_no_router_starts_before_all_of_its_models_are_here(
    tmp_path: Path, machine: Machine, fleet: Fleet
) -> None:
    late = tiny_llama(tmp_path / "late.gguf", seed=4)
    with FileServer(late.read_bytes()) as server:
        server.go_on.clear()  # it stops after its first 64 KiB
        fleet.repo.write("models/late.yaml", model("late", source=server.url))
        push(fleet, TINY, {"name": "late"})
        fleet.push_service("chat")
        running = start(machine, fleet)
        running.wait_said("default/both  Downloading")
        machine.wait_ready("chat")  # of a model that the router waits for in vain

        engines = [p for p in machine.processes() if p.name() == llama_server().name]
        server.go_on.set()
        router = machine.wait_ready("both")

    assert len(engines) == 1  # that of chat
    assert set(listed(router.port or 0)) == {"tiny", "late"}
