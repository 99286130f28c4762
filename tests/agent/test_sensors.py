"""How warm and how busy accelerators are, from recorded machines."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from agent.machine.machine import Machine
from agent.machine.sensors import SensorReading, Sensors, read
from tests.support.machines import RecordedNvml, amd_card, write
from tests.support.wait import wait_for


def card(root: Path, number: int, **said: Any) -> None:
    write(root, dict(amd_card(number, address=f"0000:0{number + 3}:00.0", vram=8192, **said)))


def machine(root: Path, nvml: Any = None) -> Machine:
    return Machine(root=root, tool=lambda *_: None, nvml=lambda: nvml)


def test_every_card_that_answers_is_read_by_its_place(tmp_path: Path) -> None:
    card(tmp_path, 0, degrees=51, busy=98)
    card(tmp_path, 1)
    write(tmp_path, {"sys/class/drm/card1/device/hwmon/hwmon3/temp1_input": "nonsense\n"})
    nvml = RecordedNvml({"lost": True}, {"degrees": 41, "busy": 12}, {"degrees": 60})

    found = list(read(machine(tmp_path, nvml)))

    assert found == [
        SensorReading("0"),
        SensorReading("1", 41.0, 0.12),
        SensorReading("2", 60.0),  # cut into slices: it does not say how busy it is
        SensorReading("3", 51.0, 0.98),
        SensorReading("4"),
    ]


def test_a_machine_without_accelerators_has_no_readings(tmp_path: Path) -> None:
    assert list(read(machine(tmp_path))) == []


def test_without_the_library_the_drivers_tool_is_asked(tmp_path: Path) -> None:
    def tool(program: str, *args: str) -> str | None:
        return "47, 12\n[N/A], [GPU is lost]\n" if program == "nvidia-smi" else None

    found = list(read(Machine(tmp_path, tool, lambda: None)))

    assert found == [SensorReading("0", 47.0, 0.12), SensorReading("1")]


def test_readings_of_a_driver_that_hangs_are_not_given_out_for_ever(tmp_path: Path) -> None:
    card(tmp_path, 0, degrees=51)
    now = 1000.0
    sensors = Sensors(machine(tmp_path), every_s=3600, clock=lambda: now)

    sensors.start()
    wait_for(lambda: sensors.now() == (SensorReading("0", 51.0),))
    now += 61

    assert sensors.now() == ()
    sensors.close()


def test_readings_go_on_after_one_that_a_driver_did_not_give(tmp_path: Path) -> None:
    card(tmp_path, 0, degrees=51)
    sensor = tmp_path / "sys/class/drm/card0/device/hwmon/hwmon3/temp1_input"
    sensors = Sensors(machine(tmp_path), every_s=0.01)

    sensors.start()
    wait_for(lambda: sensors.now() == (SensorReading("0", 51.0),))
    sensor.write_text("nonsense\n")
    wait_for(lambda: sensors.now() == (SensorReading("0"),))
    sensor.write_text("60000\n")

    wait_for(lambda: sensors.now() == (SensorReading("0", 60.0),))
    sensors.close()


def test_without_an_accelerator_no_thread_stays(tmp_path: Path) -> None:
    Sensors(machine(tmp_path), every_s=0.01).start()

    wait_for(lambda: "sensors" not in {thread.name for thread in threading.enumerate()})
