"""The name of this machine's processor, as people know it."""

from __future__ import annotations

import re
import sys

from agent.machine.machine import Machine


def processor(machine: Machine) -> str | None:
    """Its model; None where neither the kernel nor a tool tells it."""
    if sys.platform == "darwin":
        name = machine.tool("sysctl", "-n", "machdep.cpu.brand_string")
    else:
        name = _of_linux(machine)
    return " ".join((name or "").split())[:200] or None


def _of_linux(machine: Machine) -> str | None:
    try:
        text = (machine.root / "proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    # Kernels of ARM name no model, and lscpu knows it from the numbers that they do name.
    named = re.search(r"(?m)^model name\s*:\s*(\S.*)$", text) or re.search(
        r"(?m)^Model name:\s*(\S.*)$", machine.tool("lscpu") or ""
    )
    return named[1] if named else None
