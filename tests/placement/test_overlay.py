"""What a machine says of itself fills in what the fleet leaves open, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.node.overrides import overlay_of
from agent.node.settings import Settings
from reconciler.api.fleetnode import FleetNode, Hardware
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.capacity.pools import pools
from reconciler.fleet.fleet import Fleet
from reconciler.placement.assignment import assign
from reconciler.placement.overrides import Overlay
from tests.support.builders import ref
from tests.support.fleets import load_texts, model, node, service

MAC = ObjectRef("FleetNode", "", "mac")
SAID: dict[str, Any] = {
    "runtimes": ("llama-server",),
    "runtime": "mlx-server",
    "memory_fraction": 0.5,
    "host_ip": "10.0.0.7",
}


def fleet(*texts: str) -> Fleet:
    loaded = load_texts(*texts)
    assert loaded.fleet is not None, loaded.problems
    return loaded.fleet


def overlay(**said: Any) -> Overlay:
    return overlay_of("mac", Settings(Path("/state"), **said))


def spec(found: Fleet, name: str = "mac") -> Any:
    made = found.get(FleetNode, ObjectRef("FleetNode", "", name))
    assert made is not None
    return made.spec


def test_what_a_node_leaves_open_is_filled_in() -> None:
    found = spec(overlay(**SAID)(fleet(node("mac", hardware={"memory": "32Gi"}))))

    assert found.runtimes == ("llama-server",)
    assert found.default_runtime == "mlx-server"
    assert found.agent.host_ip == "10.0.0.7"
    assert found.memory.fraction == 0.5


@pytest.mark.parametrize(
    ("stated", "memory"),
    [
        ({}, 8 * 2**30),
        ({"hardware": {"os": "linux"}}, 8 * 2**30),
        ({"hardware": {"memory": "32Gi"}}, 32 * 2**30),
        ({"memory": {"budget": "12Gi"}}, None),
    ],
)
def test_a_node_that_states_no_memory_has_what_its_machine_has(
    stated: dict[str, Any], memory: int | None
) -> None:
    here = overlay_of("mac", Settings(Path("/state")), lambda: Hardware(memory=8 * 2**30))

    found = spec(here(fleet(node("mac", agent={}, **stated))))

    assert found.hardware.memory == memory


def test_memory_that_cannot_be_read_stays_unknown() -> None:
    assert spec(overlay_of("mac", Settings(Path()))(fleet(node("mac")))).hardware.memory is None


def test_what_a_node_states_wins() -> None:
    stated = node(
        "mac",
        agent={"hostIP": "10.0.0.1"},
        runtimes=["mlx-server"],
        defaultRuntime="llama-server",
        memory={"fraction": 0.9},
    )

    found = spec(overlay(**SAID)(fleet(stated)))

    assert found == spec(fleet(stated))


def test_a_stated_budget_outranks_the_fraction_of_an_option() -> None:
    stated = node("mac", hardware={"memory": "32Gi"}, memory={"budget": "10Gi"})

    adjusted = overlay(memory_fraction=0.5)(fleet(stated))

    made = adjusted.get(FleetNode, MAC)
    assert made is not None
    assert pools(made)[0].budget_bytes == 10 * 2**30


def test_other_nodes_are_as_the_fleet_has_them() -> None:
    before = fleet(node("mac"), node("other"))

    after = overlay(**SAID)(before)

    assert spec(after, "other") is spec(before, "other")


def test_a_service_that_states_its_mode_keeps_it_and_every_other_warns() -> None:
    texts = node("mac"), model("gemma"), service("open", "gemma")
    adjust = overlay(memory_mode="warn")
    adjust(fleet(*texts, service("strict", "gemma")))  # an earlier revision, equal by its values

    found = adjust(fleet(*texts, service("strict", "gemma", memory={"mode": "enforce"})))

    modes = {s.metadata.name: s.spec.memory.mode for s in found.all(InferenceService)}
    assert modes == {"open": "warn", "strict": "enforce"}


@pytest.mark.parametrize(("said", "runtime"), [({"runtime": "mlx-server"}, "mlx-server"), ({}, "")])
def test_a_service_without_a_runtime_gets_the_one_of_the_option(
    said: dict[str, Any], runtime: str
) -> None:
    texts = node("mac"), model("gemma", format="mlx"), service("chat", "gemma")

    assigned = assign(overlay(**said)(fleet(*texts)), {})

    assert [w.runtime for w in assigned.workloads] == ([runtime] if runtime else [])


def test_services_of_other_namespaces_are_not_ours() -> None:
    text = service("chat", "gemma").replace('"name": "chat"', '"name": "chat", "namespace": "x"')
    other = model("gemma").replace('"name": "gemma"', '"name": "gemma", "namespace": "x"')
    texts = node("mac"), model("gemma"), service("mine", "gemma"), other, text

    found = overlay(namespace="default")(fleet(*texts))

    assert [s.ref for s in found.all(InferenceService)] == [ref("mine")]


def test_what_does_not_change_stays_the_same_object() -> None:
    before = fleet(node("mac"), model("gemma"), service("chat", "gemma"))
    adjust = overlay(memory_mode="warn", **SAID)

    first, second = adjust(before), adjust(before)

    assert first.objects.keys() == before.objects.keys()
    assert all(first.objects[ref] is second.objects[ref] for ref in first.objects)


def test_a_machine_that_says_nothing_changes_nothing() -> None:
    before = fleet(node("mac"), model("gemma"), service("chat", "gemma"))

    after = overlay()(before)

    assert all(after.objects[ref] is before.objects[ref] for ref in before.objects)
