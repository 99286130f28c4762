"""How short of memory a machine is, from recorded kernels."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from agent.machine.machine import Machine
from agent.machine.pressure import PressureWatch, read_pressure


def linux(root: Path, some: float, full: float) -> Machine:
    path = root / "proc/pressure/memory"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"some avg10={some:.2f} avg60=9.00 avg300=0.00 total=12\n"
        f"full avg10={full:.2f} avg60=9.00 avg300=0.00 total=3\n"
    )
    return Machine(root)


def mac(level: str | None) -> Machine:
    def tool(*words: Any) -> str | None:
        return level if words == ("sysctl", "-n", "kern.memorystatus_vm_pressure_level") else None

    return Machine(Path("/nowhere"), tool)


@pytest.mark.parametrize(
    ("some", "full", "level"),
    [
        (0.0, 0.0, "normal"),
        (6.99, 5.0, "normal"),
        (7.0, 0.0, "warning"),
        (99.0, 59.9, "warning"),
        (99.0, 60.0, "critical"),
    ],
)
def test_the_level_follows_how_long_tasks_waited(
    tmp_path: Path, some: float, full: float, level: str
) -> None:
    found = read_pressure(linux(tmp_path, some, full), "linux")

    assert found is not None
    assert found.level == level
    assert (found.some_share, found.full_share) == pytest.approx((some / 100, full / 100))


@pytest.mark.parametrize(
    ("said", "level"),
    [("1\n", "normal"), ("2\n", "warning"), ("4\n", "critical"), ("9\n", None), (None, None)],
)
def test_a_mac_says_its_level_itself(said: str | None, level: str | None) -> None:
    found = read_pressure(mac(said), "darwin")

    assert (found and found.level) == level


@pytest.mark.parametrize("text", ["", "some nonsense\n", "some avg10=x\nfull avg10=1.0\n"])
def test_what_cannot_be_read_is_unknown_and_never_critical(tmp_path: Path, text: str) -> None:
    missing = read_pressure(Machine(tmp_path / "nowhere"), "linux")
    machine = linux(tmp_path, 0, 0)
    (tmp_path / "proc/pressure/memory").write_text(text)

    assert missing is None
    assert read_pressure(machine, "linux") is None


def test_pressure_comes_back_to_normal_by_itself_and_each_change_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="agent.machine.pressure")
    watch = PressureWatch(linux(tmp_path, 0.0, 0.0), "linux")

    levels = []
    for some, full in ((0.0, 0.0), (90.0, 70.0), (90.0, 70.0), (30.0, 1.0), (0.0, 0.0)):
        linux(tmp_path, some, full)
        found = watch.read()
        levels.append(found and found.level)
    (tmp_path / "proc/pressure/memory").unlink()
    lost = watch.read()

    assert levels == ["normal", "critical", "critical", "warning", "normal"]
    assert lost is None
    assert [record.message for record in caplog.records] == [
        "memory pressure is critical: in the last 10 s some task waited 90% of the time, all 70%"
        " (it was normal)",
        "memory pressure is warning: in the last 10 s some task waited 30% of the time, all 1%"
        " (it was critical)",
        "memory pressure is normal: in the last 10 s some task waited 0% of the time, all 0%"
        " (it was warning)",
        "memory pressure is not known (it was normal)",
    ]
