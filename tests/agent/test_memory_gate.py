"""No process is started that the machine's memory does not take, whatever a plan saw before."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.machine.memory import MachineMemory
from agent.process.admission import ADMITS_ALL
from agent.process.launch import Launch, Phase
from agent.process.owner import Processes
from agent.process.records import Records
from agent.state.directory import StateDir
from reconciler.fleet.workload import PoolNeed
from tests.support.memory import GIB, kernel, machine, stated
from tests.support.owner import (
    QUICK,
    launch,
    state_of,
    wait_gone,
    wait_ready,
    wait_reason,
    wait_state,
)
from tests.support.pids import somebody_else
from tests.support.ports import own_port

pytestmark = pytest.mark.e2e
BUDGET = int(32 * GIB * 0.67)
TIMING = replace(QUICK, backoff_first_s=0.05, backoff_refused_s=0.1)


def large(name: str, size: int = 12 * GIB, **changes: Any) -> Launch:
    return launch(name, own_port(), needs=(PoolNeed("host", size, BUDGET),), **changes)


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of 32 GiB, of which 1 GiB is in use."""
    return kernel(tmp_path / "machine", 32 * GIB, GIB)


@pytest.fixture
def owner(state: StateDir, root: Path) -> Iterator[Processes]:
    processes = new_owner(state, root)
    yield processes
    processes.close(stop_children=True, deadline_s=5)


def new_owner(state: StateDir, root: Path) -> Processes:
    memory = MachineMemory(machine(root))
    memory.follow(stated())
    processes = Processes(state, replace(ADMITS_ALL, no_room=memory.refusal), timing=TIMING)
    processes.start()
    return processes


def test_the_second_of_two_that_fit_alone_waits_and_starts_when_the_first_has_gone(
    owner: Processes,
) -> None:
    owner.run(large("a"))
    first = wait_ready(owner, "a")
    owner.run(large("b"))

    refused = wait_reason(owner, "b", "MemoryFits")

    assert (refused.phase, refused.pid) == (Phase.WAITING, None)
    assert "12.0 GiB taken by default/a" in refused.message
    assert wait_ready(owner, "a").pid == first.pid
    owner.stop(first.ref)
    wait_gone(owner, "a")
    assert wait_ready(owner, "b").pid


def test_a_start_is_held_against_the_budget_of_today(owner: Processes) -> None:
    admitted = (PoolNeed("host", BUDGET + GIB, BUDGET + 2 * GIB),)  # its node had more then

    owner.run(launch("a", own_port(), needs=admitted))

    assert "lower what is asked" in wait_reason(owner, "a", "MemoryFits").message


def test_a_file_that_both_map_lets_both_start(owner: Processes) -> None:
    shared = (PoolNeed("host", 12 * GIB, BUDGET, (("sha", 11 * GIB),)),)

    owner.run(launch("a", own_port(), needs=shared))
    owner.run(launch("b", own_port(), needs=shared))

    assert wait_ready(owner, "a").pid
    assert wait_ready(owner, "b").pid


def test_a_start_after_a_crash_is_held_against_what_others_use_by_then(
    owner: Processes, root: Path
) -> None:
    owner.run(large("chat"))
    first = wait_ready(owner, "chat")
    assert first.pid

    kernel(root, 32 * GIB, 20 * GIB)
    with somebody_else():
        os.kill(first.pid, signal.SIGKILL)
        refused = wait_reason(owner, "chat", "MemoryFits")

    assert "20.0 GiB in use by other processes" in refused.message
    assert "(the largest: pid " in refused.message
    kernel(root, 32 * GIB, GIB)  # they give it back: it is tried again by itself
    assert wait_ready(owner, "chat").pid != first.pid


def test_one_that_crashed_keeps_its_memory_from_one_that_waits_for_it(owner: Processes) -> None:
    owner.run(large("victim"))
    first = wait_ready(owner, "victim")
    owner.run(large("waiter"))
    wait_reason(owner, "waiter", "MemoryFits")
    assert first.pid

    os.kill(first.pid, signal.SIGKILL)
    again = wait_state(owner, "victim", lambda s: s.ready and s.pid != first.pid)

    assert again.pid
    waiter = state_of(owner, "waiter")
    assert waiter
    assert waiter.reason == "MemoryFits"


def test_mode_warn_starts_what_does_not_fit(owner: Processes) -> None:
    owner.run(large("a"))
    wait_ready(owner, "a")

    owner.run(large("b", inputs={"lifecycle": {"memory.mode": "warn"}}))

    assert wait_ready(owner, "b").pid


def test_a_new_owner_counts_a_file_that_two_services_share_once(
    state: StateDir, root: Path
) -> None:
    shared = (PoolNeed("host", 12 * GIB, BUDGET, (("sha", 11 * GIB),)),)
    before = new_owner(state, root)
    for name in ("a", "b"):
        before.run(launch(name, own_port(), needs=shared))
        wait_ready(before, name)
    before.close(stop_children=False)

    after = new_owner(state, root)
    try:
        assert [r.launch.needs for r in Records(state).read_all()] == [shared, shared]
        after.run(launch("c", own_port(), needs=shared))
        assert wait_ready(after, "c").pid
        after.run(large("d"))
        text = wait_reason(after, "d", "MemoryFits").message
    finally:
        after.close(stop_children=True, deadline_s=5)

    assert "14.0 GiB taken by default/a, default/b, default/c" in text
