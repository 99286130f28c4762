"""The agent is not in the data path: what it does to itself, no client notices; and of what it does
to a model, only what it says."""

from __future__ import annotations

import re
import shutil
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import agent
import reconciler
from tests.support.client import get
from tests.support.reconciler import Fleet, Machine
from tests.support.steady import Fate, asking, long_requests
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

_ENOUGH = 5
_CUT = re.compile(r"(\d+) requests? cut after (\d+) s of draining")


@pytest.fixture
def next_version(tmp_path: Path) -> dict[str, str]:
    """The variables with which both packages are those of the next version."""
    for package in (agent, reconciler):
        assert package.__file__
        folder = Path(package.__file__).parent
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder, tmp_path / "next" / folder.name, ignore=skipped)
    shutil.copytree(Path(reconciler.__file__).parents[1] / "schemas", tmp_path / "next/schemas")
    version = tmp_path / "next/reconciler/__init__.py"
    version.write_text(version.read_text().replace(reconciler.__version__, "9.9.9"))
    return {"PYTHONPATH": str(tmp_path / "next")}


def test_no_request_is_lost_while_the_agent_is_killed_restarted_and_upgraded(
    machine: Machine, fleet: Fleet, other_engine: Path, next_version: dict[str, str]
) -> None:
    fleet.push_service("chat")
    fleet.push_service("more", contextSize=1024)
    words = ("--fleet", fleet.url, "--node", "here")
    running = machine.daemon(*words)
    before = {name: machine.wait_ready(name) for name in ("chat", "more")}
    endpoints = [instance.endpoint or "" for instance in before.values()]

    with asking(endpoints[0]) as one, asking(endpoints[1]) as two:

        def go_on(reason: str, *more: str, env: dict[str, str] | None = None) -> None:
            """The agent comes back in some way, and sees what is there."""
            nonlocal running
            for seen in (one, two):
                seen.wait_more(_ENOUGH)  # with no agent at all
            running = machine.daemon(*words, *more, env=env)
            running.wait_said("msg=plan")
            running.wait_said(reason)
            for seen in (one, two):
                seen.wait_more(_ENOUGH)

        running.end(signal.SIGKILL)
        go_on("unchanged=2")
        assert running.end() == 0
        go_on("unchanged=2")
        assert running.end() == 0
        go_on("version=9.9.9", env=next_version)
        assert running.end() == 0
        go_on("deferred", "--llama-server", str(other_engine))

    assert one.failures == two.failures == []
    for name, instance in before.items():
        assert machine.wait_ready(name).pid == instance.pid


def test_a_replace_cuts_only_what_is_past_the_drain_deadline_and_says_how_many(
    machine: Machine, fleet: Fleet
) -> None:
    settings: dict[str, Any] = {"parallelSlots": 2, "contextSize": 65536}
    fleet.push_service("chat", rollout={"drainTimeout": "1s"}, **settings)
    running = machine.daemon("--fleet", fleet.url, "--node", "here")
    before = machine.wait_ready("chat")
    assert before.endpoint

    # Two are worked on, and one waits in the engine's own queue.
    with long_requests(before.endpoint, "tiny", 30_000, 3) as requests:
        _wait_busy(before.endpoint, 2)
        wait_for(lambda: "llamacpp:requests_deferred 1\n" in _metrics(before.endpoint or ""))
        fleet.push_service(
            "chat", rollout={"drainTimeout": "1s"}, parallelSlots=2, contextSize=32768
        )
        machine.wait_ready("chat", not_pid=before.pid)
        fates = [request.result() for request in requests]

    assert fates == [Fate.CUT] * 3
    running.wait_said("of draining")
    assert _CUT.findall(running.err) == [("3", "1")]


def test_with_a_generous_drain_timeout_a_replace_cuts_nothing(
    machine: Machine, fleet: Fleet
) -> None:
    settings: dict[str, Any] = {
        "parallelSlots": 2,
        "contextSize": 65536,
        "rollout": {"drainTimeout": "2m"},
    }
    fleet.push_service("chat", **settings)
    running = machine.daemon("--fleet", fleet.url, "--node", "here")
    before = machine.wait_ready("chat")
    assert before.endpoint

    with long_requests(before.endpoint, "tiny", 2_000, 2) as requests:
        _wait_busy(before.endpoint, 2)
        fleet.push_service("chat", **{**settings, "contextSize": 32768})
        running.wait_said("waiting for 2 requests")
        fates = [request.result() for request in requests]
        machine.wait_ready("chat", not_pid=before.pid)

    assert fates == [Fate.ANSWERED, Fate.ANSWERED]
    assert not _CUT.search(running.err)
    # One replace, however many passes its drain took.
    assert running.err.count("starts once its predecessor has drained") == 1
    assert running.err.count("msg=applied action=replace") <= 2


def _metrics(endpoint: str) -> str:
    with urllib.request.urlopen(f"{endpoint}/metrics", timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
        return text


def _wait_busy(endpoint: str, count: int) -> None:
    """Until so many requests are worked on."""
    wait_for(lambda: sum(slot["is_processing"] for slot in get(endpoint, "/slots")) == count)
