"""How much a process has computed."""

from __future__ import annotations

import contextlib

import psutil


def processor_seconds(pid: int) -> float | None:
    """Processor time of a process and all below it, those that have ended and waits for a disk
    (Linux) included; None where that may not be seen."""
    try:
        process = psutil.Process(pid)
        seconds = [sum(process.cpu_times())]
        below = process.children(recursive=True)
    except (psutil.Error, OSError):
        return None
    for child in below:
        with contextlib.suppress(
            psutil.Error, OSError
        ):  # it has ended meanwhile: its parent has it
            seconds.append(sum(child.cpu_times()))
    return sum(seconds)
