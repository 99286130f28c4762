"""Facts about this machine: memory, cores, devices. A fact that cannot be read is None, never 0."""

from __future__ import annotations

import platform
import re
import sys

import psutil

from agent.machine.devices import devices
from agent.machine.drivers import System
from agent.machine.machine import Machine
from agent.machine.memory_host import host_memory
from agent.system.tool import run_tool
from reconciler.api.fleetnode import Cpu, Hardware


def probe(machine: Machine | None = None) -> Hardware:
    """What this machine is, as the `hardware` block of its FleetNode."""
    machine = machine or Machine()
    darwin = sys.platform == "darwin"
    return Hardware(
        os="darwin" if darwin else "linux",
        arch={"aarch64": "arm64", "x86_64": "amd64"}.get(platform.machine(), platform.machine()),
        cpu=Cpu(
            cores=psutil.cpu_count(logical=True),
            performance_cores=performance_cores(),
            avx512=has_avx512(machine),
        ),
        memory=psutil.virtual_memory().total,
        devices=devices("darwin" if darwin else "linux", machine),
    )


def own_memory(machine: Machine | None = None) -> Hardware:
    """The part of it that memory pools are made of; without memory if that cannot be read."""
    machine = machine or Machine()
    memory = host_memory(machine.root)
    system: System = "darwin" if sys.platform == "darwin" else "linux"
    return Hardware(
        memory=memory.total if memory else None,
        devices=devices(system, machine) if memory else (),
    )


def node_name() -> str:
    """This host's name, as a FleetNode may be called."""
    short = platform.node().partition(".")[0].lower()
    return re.sub(r"[^a-z0-9-]+", "-", short).strip("-") or "this-machine"


def performance_cores() -> int:
    """Threads that a model should get: physical performance cores, at least 1.

    Two threads on one core, or a model's threads on efficiency cores, make llama.cpp slower.
    """
    if sys.platform == "darwin":
        text = run_tool("sysctl", "-n", "hw.perflevel0.physicalcpu")
        if text and text.strip().isdigit():
            return max(1, int(text))
    affinity = getattr(psutil.Process(), "cpu_affinity", None)  # Linux has it
    allowed = len(affinity()) if affinity else 0
    physical = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return max(1, min(physical, allowed or physical))


def has_avx512(machine: Machine) -> bool | None:
    """Whether the kernel lists it; None where that cannot be read."""
    try:
        return "avx512f" in (machine.root / "proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return None
