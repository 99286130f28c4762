"""A machine's own memory decides: foreign programs, the plan, the gate, what is measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.machine.memory_host import host_memory
from tests.support.client import complete
from tests.support.fleets import node
from tests.support.memory import GIB, MIB, eater
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e
_EATEN_MIB = 4000
_SPARE = 2000 * MIB  # less than what is eaten, and more than what others here come and go with
_NOISE = 1500 * MIB


def in_use() -> int:
    found = host_memory()
    assert found is not None
    return found.in_use


def small_node(fleet: Fleet) -> None:
    """Models may take what is free now, and half of what will be eaten."""
    found = host_memory()
    assert found is not None

    memory = {
        "hardware": {"memory": str(found.total)},
        "memory": {"budget": str(in_use() + _SPARE)},
    }
    fleet.repo.publish({"nodes/here.yaml": node("here", **memory)}, "State what it has")


def in_quiet(fleet: Fleet, step: Callable[[], None]) -> None:
    """Do it while nobody else on this machine takes or gives back much memory."""
    for _ in range(6):
        small_node(fleet)
        before = in_use()
        try:
            step()
        except AssertionError:
            if abs(in_use() - before) < _NOISE:
                raise
            continue
        return
    pytest.fail("this machine is too busy to see one program's memory")


@pytest.mark.alone  # else the others' memory comes and goes with it
def test_a_foreign_program_decides_and_is_named(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")

    def look() -> None:
        free = machine.reconcile("-C", fleet.url, "--dry-run", "--local")
        with eater(_EATEN_MIB) as pid:
            full = machine.reconcile("-C", fleet.url, "--dry-run", "--local")
            shown = machine.reconcile("-C", fleet.url, "status", "--local")

        assert free.code == 2, free.out
        assert "+ " in free.out
        assert full.code == 3, full.out
        (refused,) = [line for line in full.out.splitlines() if "MemoryFits: needs " in line]
        assert " in use by other processes); " in refused
        assert " in use by other processes); " in shown.out, "a status says why as the plan does"
        assert f"(the largest: pid {pid} (python" in refused.lower()

    in_quiet(fleet, look)


@pytest.mark.alone  # else the others' memory comes and goes with it
def test_a_service_waits_for_memory_and_starts_when_it_is_given_back(
    machine: Machine, fleet: Fleet
) -> None:
    def wait() -> None:
        with eater(_EATEN_MIB):
            fleet.push_service("chat")
            running = machine.start("-C", fleet.url, "--local")
            running.wait_planned("MemoryFits: needs ")
            assert machine.instance("chat") is None
        try:
            wait_for(lambda: is_ready(machine), "ready once it is given back")
        finally:
            running.end()

    in_quiet(fleet, wait)

    chat = machine.instance("chat")
    assert chat
    assert chat.endpoint
    assert complete(chat.endpoint)


def is_ready(machine: Machine) -> bool:
    found = machine.instance("chat")
    return found is not None and found.ready


def test_what_a_service_takes_is_shown_beside_its_estimate(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    machine.start("-C", fleet.url, "--local")
    chat = machine.wait_ready("chat")
    assert chat.endpoint
    assert complete(chat.endpoint)

    shown = machine.reconcile("-C", fleet.url, "status", "--local", "-o", "json").json()

    (service,) = shown["services"]
    ((pool,),) = [placement["memory"] for placement in service["placements"]]
    assert pool["pool"] == "host"
    assert pool["requiredBytes"] < GIB
    assert MIB < pool["measuredBytes"] < GIB
    assert pool["budgetBytes"] == int(16 * GIB * 0.67)
    # Far below here: the estimate holds the whole prompt cache, which fills with use.
    share = pool["measuredBytes"] / pool["requiredBytes"] - 1
    assert service["placements"][0]["deviation"] == pytest.approx(share, abs=0.002)
