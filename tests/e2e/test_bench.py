"""`fleet-agent bench`, against a real engine."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from agent.state.benchmarks import read_results
from reconciler.core.observation import Instance
from tests.support.reconciler import Finished, Fleet, Machine
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.together]

# The machine of a test is busy with other tests: how noisy it is, is not what they are about.
_ANY_NOISE = ("--max-variation", "1000")
_QUICK = {"warmupIterations": 1, "iterations": 3, "minDuration": "20s"}
_LONG = {"warmupIterations": 0, "iterations": 1000, "minDuration": "10m"}


def _serving(machine: Machine, fleet: Fleet, name: str = "chat", **spec: Any) -> Instance:
    fleet.push_service(name, **spec)
    machine.daemon("--fleet", fleet.url, "--node", "here")
    return machine.wait_ready(name)


def _ask(instance: Instance, tokens: int) -> None:
    body = {"prompt": "a", "n_predict": tokens, "ignore_eos": True}
    request = urllib.request.Request(
        f"{instance.endpoint}/completion",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        answer.read()


@contextmanager
def _traffic(instance: Instance) -> Iterator[None]:
    """Two clients: while one has its answer and asks again, the other is still being served."""
    done = threading.Event()

    def keep_asking(tokens: int) -> None:
        while not done.is_set():
            _ask(instance, tokens)

    with ThreadPoolExecutor(2) as pool:
        clients = [pool.submit(keep_asking, tokens) for tokens in (500, 700)]
        try:
            yield
        finally:
            done.set()
    for client in clients:
        client.result()


def _is_busy(instance: Instance) -> bool:
    with urllib.request.urlopen(f"{instance.endpoint}/slots", timeout=PATIENCE_S) as answer:
        return any(slot["is_processing"] for slot in json.load(answer))


def test_a_service_that_runs_is_measured_with_its_own_settings(
    machine: Machine, fleet: Fleet
) -> None:
    chat = _serving(machine, fleet, benchmark=_QUICK)

    measured = machine.agent("bench", "chat", "-o", "json", *_ANY_NOISE)

    assert measured.code == 0, measured.err
    (result,) = measured.json()
    assert (result["service"], result["model"], result["node"]) == ("default/chat", "tiny", "here")
    assert (result["iterations"], result["warmupIterations"]) == (3, 1)
    assert (result["batchTokens"], result["timings"]) == (128, "engine")
    assert len(result["generation"]["samples"]) == len(result["prompt"]["samples"]) == 3
    assert result["loadSeconds"] > 0
    assert "problem" not in result, "nobody else asked it anything, and its tokens are counted"
    now = machine.instance("chat")
    assert now is not None
    assert now.pid == chat.pid, "measured is the process that serves"

    (served,) = machine.agent("status", "-o", "json").json()["services"]
    (speed,) = served["placements"][0]["benchmarks"]
    assert speed["tokensPerSecond"] == result["generation"]["tokensPerSecond"]
    assert speed["stale"] is None
    wait_for(
        lambda: [b["key"] for b in machine.node_state()["benchmarks"]] == [result["key"]],
        "the agent's next look, within 13 s of the one before",
        timeout_s=150,
    )

    shown = machine.agent("bench", *_ANY_NOISE)

    assert shown.code == 0
    assert shown.out.startswith("default/chat tiny: ")
    assert " tokens/s written; " in shown.out
    assert len(read_results(machine.state)) == 1, "the second run took the place of the first"

    words = ("bench", "chat", "--local", "--again", "-C", fleet.url, "-o", "json")
    gathered = machine.reconcile(*words)

    assert gathered.code in (0, 3), gathered.err  # 3: beside other tests its runs may differ
    # One that does not count, beside other tests, does not take the place of one that does.
    measured_at = [each["measuredAt"] for each in gathered.json()["results"]]
    assert max(measured_at) > result["measuredAt"]


def test_a_service_beside_traffic_is_not_measured_unless_asked_to_and_then_says_so(
    machine: Machine, fleet: Fleet
) -> None:
    chat = _serving(machine, fleet, benchmark=_QUICK, parallelSlots=3, contextSize=6144)
    with _traffic(chat):
        wait_for(lambda: _is_busy(chat))
        refused = machine.agent("bench", "chat", "--wait", "0s")
        beside = machine.agent("bench", "chat", "--beside-traffic", "-o", "json", *_ANY_NOISE)

    assert refused.code == 3
    assert re.search("default/chat serves [12] requests?; wait longer with --wait", refused.err)
    assert beside.code == 3
    assert beside.json()[0]["problem"].startswith("beside traffic: ")


def test_an_engine_that_dies_in_the_middle_leaves_no_figure(machine: Machine, fleet: Fleet) -> None:
    chat = _serving(machine, fleet, benchmark=_LONG)
    assert chat.pid is not None
    with ThreadPoolExecutor(1) as pool:
        measuring = pool.submit(machine.agent, "bench", "chat")
        wait_for(lambda: _is_busy(chat))
        os.kill(chat.pid, signal.SIGKILL)
        ended: Finished = measuring.result()

    assert ended.code == 3
    assert ended.out == ""
    assert (
        "default/chat: its process ended in the middle of the measurement, and nothing is kept of"
        " it; see fleet-agent logs default/chat" in ended.err
    )
    assert read_results(machine.state) == ()


def test_what_cannot_be_measured_is_said_and_the_others_are(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("words", benchmark=_QUICK)
    _serving(machine, fleet, "vectors", runtimeOptions={"embeddings": True})
    machine.wait_ready("words")

    measured = machine.agent("bench", *_ANY_NOISE)

    assert measured.code == 3
    assert "default/vectors writes no text, which is what is measured" in measured.err
    assert measured.out.startswith("default/words tiny: ")
    unknown = machine.agent("bench", "word")
    assert unknown.code == 64
    assert 'default/word: not started here (did you mean "default/words"?)' in unknown.err


def test_a_service_without_a_process_is_not_measured(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    running = machine.daemon("--fleet", fleet.url, "--node", "here")
    chat = machine.wait_ready("chat")
    running.end(signal.SIGKILL)
    assert chat.pid is not None
    os.kill(chat.pid, signal.SIGKILL)
    wait_for(lambda: not (found := machine.instance("chat")) or found.pid is None)

    measured = machine.agent("bench", "chat")

    assert measured.code == 3
    assert "default/chat does not run here; start it: fleet-agent restart" in measured.err


def test_results_become_evidence_that_a_fleet_keeps(machine: Machine, fleet: Fleet) -> None:
    _serving(machine, fleet, benchmark=_QUICK)
    clone = fleet.repo.work
    local = ("-C", str(clone), "--local", "here", "--write", str(clone))
    unmeasured = machine.reconcile("bench", "chat", *local)
    assert machine.agent("bench", "chat", *_ANY_NOISE).code == 0
    (measured,) = read_results(machine.state)

    written = machine.reconcile("bench", "chat", *local)
    again = machine.reconcile("bench", "-o", "json", *local)

    assert unmeasured.code == 3
    assert "default/chat: no result that counts; on its machine: " in unmeasured.err
    path = f"bench/{measured.key.short}.yaml"
    assert written.code == 0, written.err
    assert written.out.startswith("default/chat tiny: ")
    assert f"{path}: written" in written.err
    assert again.json()["evidence"] == {path: "unchanged"}
    assert [r["key"] for r in again.json()["results"]] == [
        measured.key.model_dump(mode="json", by_alias=True, exclude_none=True)
    ]
    assert machine.reconcile("validate", "-C", str(clone)).code == 0

    (clone / path).write_text((clone / path).read_text().replace("tokensPerSecond: ", "x: ", 1))
    put_right = machine.reconcile("bench", "chat", *local)

    assert f"{path}: updated" in put_right.err
    assert machine.reconcile("bench", "nope", *local).code == 64
