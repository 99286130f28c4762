"""What a person says on a machine reaches whoever plans for it from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.overlay import Overlay, as_told, said_of
from agent.settings import Settings
from reconciler.api.meta import ObjectRef
from reconciler.fleet import Fleet
from reconciler.kube.render.declared import manifest_of
from reconciler.placement import assign
from reconciler.workload import Workload
from tests.support.fleets import load_folder, model, node, service, write_fleet

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
        f"{k}={v}" for k, v in said_of(s).model_dump(exclude_none=True).items()
    ),
)
def test_a_plan_from_afar_wants_of_a_node_what_its_own_agent_wants(
    fleet: Fleet, settings: Settings
) -> None:
    told = as_told(fleet, {"mac": said_of(settings)})

    assert on("mac", told) == on("mac", Overlay("mac", settings)(fleet))
    assert on("gpu", told) == on("gpu", fleet)


def test_an_address_that_only_the_machine_knows_opens_its_services(fleet: Fleet) -> None:
    told = as_told(fleet, {"mac": said_of(Settings(HERE, host_ip="192.0.2.7"))})

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

    assert as_told(fleet, {"mac": said_of(Settings(HERE, host_ip="192.0.2.7"))}) is fleet


def test_nothing_said_is_no_difference(fleet: Fleet) -> None:
    assert as_told(fleet, {"mac": said_of(Settings(HERE))}) is fleet
    assert as_told(fleet, {}) is fleet


def test_what_a_person_said_is_not_written_as_if_the_fleet_stated_it(fleet: Fleet) -> None:
    said = {"mac": said_of(Settings(HERE, host_ip="192.0.2.7", memory_fraction=0.5))}
    mac = ObjectRef("FleetNode", "", "mac")

    told = as_told(fleet, said)

    assert told.objects[mac] != fleet.objects[mac]
    assert manifest_of(told.objects[mac]) == manifest_of(fleet.objects[mac])
