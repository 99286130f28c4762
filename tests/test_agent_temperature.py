"""How warm accelerators are, from recorded machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.machine.devices import Machine
from agent.server.temperature import Temperatures, read
from tests.support.wait import wait_for


class Nvml:
    """NVIDIA's library as its binding calls it, with one card that fell off the bus."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 0:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 40 + handle


def card(root: Path, name: str, millidegrees: str) -> None:
    device = root / "sys/class/drm" / name / "device"
    sensor = device / "hwmon" / "hwmon3"
    sensor.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")
    (device / "mem_info_vram_total").write_text(f"{8 << 30}\n")
    (sensor / "temp1_input").write_text(millidegrees)


def machine(root: Path, nvml: Any = None) -> Machine:
    return Machine(root=root, tool=lambda *_: None, nvml=lambda: nvml)


def test_every_card_that_answers_is_read_by_its_place(tmp_path: Path) -> None:
    card(tmp_path, "card0", "51500\n")
    card(tmp_path, "card1", "nonsense\n")

    found = list(read(Nvml(), machine(tmp_path)))

    assert found == [("1", 41.0), ("2", 51.5)]


def test_a_machine_without_accelerators_has_no_temperature(tmp_path: Path) -> None:
    assert list(read(None, machine(tmp_path))) == []


def test_readings_are_kept_for_whoever_asks(tmp_path: Path) -> None:
    card(tmp_path, "card0", "51500\n")
    temperatures = Temperatures(machine(tmp_path), every_s=0.01)

    temperatures.start()
    wait_for(lambda: temperatures.now == (("0", 51.5),))
    (tmp_path / "sys/class/drm/card0/device/hwmon/hwmon3/temp1_input").write_text("60000\n")

    wait_for(lambda: temperatures.now == (("0", 60.0),))
    temperatures.close()
