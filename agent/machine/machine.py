"""Where facts about this machine are read from: its files, its tools, its drivers' libraries."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.system.tool import run_tool

_MOST_READ = 64 << 10  # characters; sysfs itself ends at a page
_NVML = "libnvidia-ml.so.1"  # what pynvml opens


def load_nvml() -> Any | None:  # noqa: ANN401 - a C library's module, without types
    """NVIDIA's library, initialised; None without a driver or the Python binding."""
    try:
        ctypes.CDLL(_NVML)  # checked first: its binding costs an idle agent 2 MiB
        import pynvml
    except (OSError, ImportError):
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


@dataclass(frozen=True, slots=True)
class Machine:
    """Where facts are read from. Tests use a recorded one."""

    root: Path = Path("/")
    tool: Callable[..., str | None] = run_tool
    nvml: Callable[[], Any | None] = field(default=load_nvml)


def read_line(path: Path) -> str | None:
    """A small file of the kernel's; the beginning of one that is not small."""
    try:
        with path.open(errors="replace") as file:
            return file.read(_MOST_READ).strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    text = read_line(path)
    return int(text) if text and text.isdecimal() and len(text) < 20 else None
