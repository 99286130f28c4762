"""What a machine says of itself, from recorded machines and from this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.cli import main as agent_main
from agent.machine.devices import devices
from agent.machine.machine import Machine
from agent.machine.probe import probe
from reconciler.api.fleetnode import Device
from tests.support.fleets import load_texts
from tests.support.machines import RecordedNvml, write


def no_tool(program: str, *args: str) -> None:
    return None


def machine(root: Path, nvml: RecordedNvml | None = None, tool: Any = no_tool) -> Machine:
    return Machine(root, tool, lambda: nvml)


def amd_card(root: Path, *, target: int, vram: int | None, number: int = 0) -> None:
    card = f"sys/class/drm/card{number}/device"
    node = f"sys/class/kfd/kfd/topology/nodes/{number + 1}/properties"
    write(
        root,
        {
            f"{card}/vendor": "0x1002\n",
            f"{card}/uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0{number + 3}:00.0\n",
            f"{card}/unique_id": f"id{number}\n",
            node: f"simd_count 96\ngfx_target_version {target}\nlocation_id {(number + 3) << 8}\n",
        },
    )
    if vram is not None:
        write(root, {f"{card}/mem_info_vram_total": f"{vram}\n"})


def test_an_nvidia_gpu_is_described_by_its_library(tmp_path: Path) -> None:
    nvml = RecordedNvml({"name": "NVIDIA L4", "mib": 23034, "capability": "8.9"})

    found = devices("linux", machine(tmp_path, nvml))

    expected = Device(
        vendor="NVIDIA", product="NVIDIA L4", arch="sm_89", memory=24152899584, uuid="GPU-0"
    )
    assert found == (expected,)


def test_an_nvidia_part_without_memory_of_its_own_is_unified(tmp_path: Path) -> None:
    nvml = RecordedNvml({"name": "NVIDIA GB10", "mib": None, "capability": "12.1"})

    (found,) = devices("linux", machine(tmp_path, nvml))

    assert (found.memory, found.arch) == ("unified", "sm_121")


def test_without_the_library_the_drivers_tool_is_asked(tmp_path: Path) -> None:
    def tool(program: str, *args: str) -> str | None:
        return "NVIDIA L4, 23034, GPU-1, 8.9\n" if program == "nvidia-smi" else None

    (found,) = devices("linux", machine(tmp_path, tool=tool))

    assert (found.memory, found.arch, found.uuid) == (23034 * 2**20, "sm_89", "GPU-1")


def test_an_amd_card_is_read_from_the_kernel(tmp_path: Path) -> None:
    amd_card(tmp_path, target=110000, vram=25753026560)

    (found,) = devices("linux", machine(tmp_path))

    assert (found.vendor, found.arch, found.memory) == ("AMD", "gfx1100", 25753026560)


@pytest.mark.parametrize(
    ("target", "arch"), [(90010, "gfx90a"), (100302, "gfx1032"), (110501, "gfx1151")]
)
def test_an_amd_architecture_is_written_as_compilers_write_it(
    tmp_path: Path, target: int, arch: str
) -> None:
    amd_card(tmp_path, target=target, vram=2**30)

    (found,) = devices("linux", machine(tmp_path))

    assert found.arch == arch


def test_an_amd_part_that_shares_the_machines_memory_is_unified(tmp_path: Path) -> None:
    amd_card(tmp_path, target=110501, vram=512 * 2**20)

    (found,) = devices("linux", machine(tmp_path))

    assert found.memory == "unified"


def test_a_card_that_cannot_be_sized_is_left_out(tmp_path: Path) -> None:
    amd_card(tmp_path, target=110000, vram=None)
    amd_card(tmp_path, target=110000, vram=2**34, number=1)

    found = devices("linux", machine(tmp_path))

    assert [device.memory for device in found] == [2**34]


def test_apple_silicon_shares_the_machines_memory(tmp_path: Path) -> None:
    def tool(program: str, *args: str) -> str | None:
        return "Apple M4 Max\n" if args == ("-n", "machdep.cpu.brand_string") else None

    found = devices("darwin", machine(tmp_path, tool=tool))

    assert found == (Device(vendor="Apple", product="M4 Max", memory="unified"),)


def test_a_machine_without_accelerators_has_none(tmp_path: Path) -> None:
    assert devices("linux", machine(tmp_path)) == ()
    assert probe(machine(tmp_path)).cpu.avx512 is None  # not readable is not "no"


@pytest.mark.parametrize("name", ["here", "123", "1e3", "0x10", "true", "null", "a.b-c"])
def test_what_is_printed_is_a_node_that_a_fleet_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    agent_main(["probe", "--node", name])

    loaded = load_texts(capsys.readouterr().out)

    assert loaded.problems == ()
    assert loaded.fleet is not None


def test_programs_get_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    agent_main(["probe", "-o", "json", "--node", "here"])

    document = json.loads(capsys.readouterr().out)

    assert document["metadata"] == {"name": "here"}
    assert document["spec"]["hardware"]["memory"]
