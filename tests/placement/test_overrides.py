"""What a person says on a machine reaches whoever plans for it from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.node.overrides import overlay_of, overrides_of
from agent.node.settings import Settings
from reconciler.api.fleetnode import Device, FleetNode, Hardware
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.capacity.pools import pools
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import Workload
from reconciler.kube.render.declared import manifest_of
from reconciler.placement.assignment import assign
from reconciler.placement.overrides import with_overrides
from tests.support.builders import ref
from tests.support.fleets import load_folder, load_texts, model, node, service, write_fleet

HERE = Path()


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Two nodes with a service each, that are open to their networks at addresses not stated."""
    files = {
        "mac.yaml": node("mac", agent={"expose": "open"}),
        "gpu.yaml": node("gpu", agent={"expose": "open"}),
        "model.yaml": model(),
        "chat.yaml": service("chat", placement={"nodes": ["mac"]}),
        "embed.yaml": service("embed", placement={"nodes": ["gpu"]}),
    }
    read = load_folder(write_fleet(tmp_path, files)).fleet
    assert read is not None
    return read


def on(name: str, fleet: Fleet) -> list[Workload]:
    return [w for w in assign(fleet, {}).workloads if w.node == name]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(HERE, host_ip="192.0.2.7"),
        Settings(HERE, runtimes=("mlx-lm",)),
        Settings(HERE, runtime="llama-server", memory_fraction=0.5),
        Settings(HERE, namespace="default"),
        Settings(HERE, namespace="other"),
    ],
    ids=lambda s: ", ".join(
        f"{k}={v}" for k, v in overrides_of(s).model_dump(exclude_none=True).items()
    ),
)
def test_a_plan_from_afar_wants_of_a_node_what_its_own_agent_wants(
    fleet: Fleet, settings: Settings
) -> None:
    told = with_overrides(fleet, {"mac": overrides_of(settings)})

    assert on("mac", told) == on("mac", overlay_of("mac", settings)(fleet))
    assert on("gpu", told) == on("gpu", fleet)


@pytest.mark.parametrize(
    ("nodes", "elsewhere", "stays"),
    [
        (["mac"], ["mac"], False),
        (["mac"], ["gpu"], True),
        (["mac", "gpu"], ["mac"], True),
        (["mac", "gpu"], ["mac", "gpu"], False),
        (None, ["mac", "gpu"], True),
    ],
)
def test_a_service_is_nobodys_where_all_of_its_nodes_serve_another_namespace(
    nodes: list[str] | None, elsewhere: list[str], stays: bool
) -> None:
    base = service("base", placement={"nodes": nodes} if nodes else {})
    before = load_texts(node("mac"), node("gpu"), model(), base).fleet
    assert before is not None
    other = overrides_of(Settings(HERE, namespace="other"))

    told = with_overrides(before, dict.fromkeys(elsewhere, other))

    assert (told.get(InferenceService, ref("base")) is not None) is stays


def test_an_address_that_only_the_machine_knows_opens_its_services(fleet: Fleet) -> None:
    told = with_overrides(fleet, {"mac": overrides_of(Settings(HERE, host_ip="192.0.2.7"))})

    (opened,) = on("mac", told)
    assert on("mac", fleet) == []  # `expose: open` without an address is blocked
    assert opened.listen.host == "192.0.2.7"


def test_what_the_fleet_states_wins(tmp_path: Path) -> None:
    files = {
        "mac.yaml": node("mac", agent={"expose": "open", "hostIP": "192.0.2.1"}),
        "model.yaml": model(),
        "chat.yaml": service(),
    }
    fleet = load_folder(write_fleet(tmp_path, files)).fleet
    assert fleet is not None

    assert (
        with_overrides(fleet, {"mac": overrides_of(Settings(HERE, host_ip="192.0.2.7"))}) is fleet
    )


def test_nothing_said_is_no_difference(fleet: Fleet) -> None:
    assert with_overrides(fleet, {"mac": overrides_of(Settings(HERE))}) is fleet
    assert with_overrides(fleet, {}) is fleet


def test_a_node_that_states_no_memory_is_held_to_what_its_agent_says_it_has(
    tmp_path: Path,
) -> None:
    files = {"mac.yaml": node("mac", agent={}), "model.yaml": model(), "chat.yaml": service()}
    fleet = load_folder(write_fleet(tmp_path, files)).fleet
    assert fleet is not None
    settings = Settings(HERE, memory_fraction=0.5)
    there = overlay_of("mac", settings, lambda: Hardware(memory=2**30))

    own = there(fleet)
    told = with_overrides(fleet, {"mac": overrides_of(settings, there.own)})

    (pool,) = pools(told.all(FleetNode)[0])
    assert (pool.name, pool.basis) == ("host", "1.0 GiB x 0.5 = 512 MiB")
    assert told.objects == own.objects


def test_devices_that_only_the_machine_knows_size_a_service_and_place_none(tmp_path: Path) -> None:
    files = {
        "gpu.yaml": node("gpu", agent={}),
        "other.yaml": node("other", agent={}),
        "model.yaml": model(hardware={"accelerator": "metal"}),
        "chat.yaml": service(placement={"nodes": ["gpu"]}),
        "open.yaml": service("open"),
    }
    fleet = load_folder(write_fleet(tmp_path, files)).fleet
    assert fleet is not None
    cuda = Hardware(memory=2**30, devices=(Device(vendor="NVIDIA", memory=2**34, uuid="GPU-1"),))

    own = overlay_of("gpu", Settings(HERE), lambda: cuda)(fleet)

    assert [pool.name for pool in pools(own.all(FleetNode)[0])] == ["host", "device0"]
    assert (
        assign(own, {}).holds == assign(fleet, {}).holds
    )  # two nodes could take `open`, as before
    assert [w.ref.name for w in on("gpu", own)] == ["chat"]


def test_what_a_person_said_is_not_written_as_if_the_fleet_stated_it(fleet: Fleet) -> None:
    said = {"mac": overrides_of(Settings(HERE, host_ip="192.0.2.7", memory_fraction=0.5))}
    mac = ObjectRef("FleetNode", "", "mac")

    told = with_overrides(fleet, said)

    assert told.objects[mac] != fleet.objects[mac]
    assert manifest_of(told.objects[mac]) == manifest_of(fleet.objects[mac])


def test_the_devices_of_a_machine_are_told_with_their_memory_or_as_sharing_its_own() -> None:
    own = Hardware(memory=2**34, devices=(Device(memory="unified"), Device(memory=2**33, uuid="a")))

    said = overrides_of(Settings(HERE), own).own_memory

    assert said is not None
    assert said.bytes == 2**34
    assert [(d.bytes, d.uuid) for d in said.devices] == [(None, None), (2**33, "a")]
    assert overrides_of(Settings(HERE), Hardware(memory=None)).own_memory is None
