"""GPUs that a service asks a machine for are looked for in what the machine states."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.placement.assignment import Assignment
from tests.support.cluster_views import desired
from tests.support.fleets import model, node, service

NVIDIA = {"vendor": "NVIDIA", "memory": "24Gi"}
APPLE = {"vendor": "Apple", "memory": "unified"}
ONE_OF_NVIDIA = {"resources": {"requests": {"nvidia.com/gpu": 1}}}


def assigned(asked: dict[str, Any], **nodes: dict[str, Any]) -> Assignment:
    """Nodes by their hardware."""
    files = {f"{name}.yaml": node(name, hardware=nodes[name]) for name in nodes}
    files |= {"model.yaml": model(), "chat.yaml": service("chat", **asked)}
    return desired(files).assignment


@pytest.mark.parametrize(
    ("devices", "asked", "why"),
    [
        ([NVIDIA], ONE_OF_NVIDIA, ""),
        ([NVIDIA], {"devices": 1}, ""),
        ([APPLE], {"devices": 1}, ""),
        ([], {}, ""),
        ([], {"resources": {"requests": {"cpu": 2}}}, ""),
        (
            [],
            ONE_OF_NVIDIA,
            "`nvidia.com/gpu: 1` asks for 1, and node box states no NVIDIA device;",
        ),
        ([APPLE], ONE_OF_NVIDIA, "asks for 1, and node box states no NVIDIA device;"),
        ([NVIDIA], {"resources": {"limits": {"amd.com/gpu": 1}}}, "states no AMD device;"),
        ([NVIDIA], {"devices": 2}, "`devices: 2` asks for 2, and node box states 1 device;"),
        ([NVIDIA] * 2, {"resources": {"limits": {"nvidia.com/gpu": "4"}}}, "2 NVIDIA devices;"),
        ([NVIDIA] * 2, {"mainGPU": 1}, ""),
        ([NVIDIA] * 2, {"mainGPU": 2}, "`mainGPU: 2` asks for 3, and node box states 2 devices;"),
    ],
)
def test_a_machine_that_states_too_few_gpus_does_not_take_the_service(
    devices: list[Any], asked: dict[str, Any], why: str
) -> None:
    hardware = {"os": "linux", "memory": "64Gi", "devices": devices}

    found = assigned(asked, box=hardware)

    if not why:
        assert (found.holds, len(found.workloads)) == ((), 1)
        return
    (held,) = found.holds
    assert held.finding.rule == "NodeCapability"
    assert why in held.finding.message


def test_hardware_that_is_stated_without_devices_has_none() -> None:
    (held,) = assigned({"devices": 1}, box={"os": "linux", "memory": "64Gi"}).holds

    assert (held.finding.rule, held.finding.field) == ("NodeCapability", "spec.devices")


@pytest.mark.parametrize("asked", [ONE_OF_NVIDIA, {"devices": 1}])
def test_a_machine_that_states_nothing_of_its_devices_takes_it_with_a_warning(
    asked: dict[str, Any],
) -> None:
    found = assigned(asked, box={"memory": "64Gi"})

    (warning,) = (w for w in found.warnings if w.rule == "DevicesUnknown")
    assert len(found.workloads) == 1
    assert "without one the service runs on the processor" in warning.message


def test_of_several_machines_the_one_with_the_gpu_takes_it() -> None:
    plain, fast = {"os": "linux", "devices": []}, {"os": "linux", "devices": [NVIDIA]}

    found = assigned(ONE_OF_NVIDIA, plain=plain, fast=fast)

    assert [w.node for w in found.workloads] == ["fast"]
