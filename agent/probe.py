"""Facts about this machine: memory, cores, devices. A fact that cannot be read is None, never 0."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
from pydantic import ValidationError

from reconciler.api.fleetnode import Cpu, Device, Hardware

_TOOL_DEADLINE_S = 10.0
_MIB = 2**20


def probe() -> Hardware:
    """What this machine is, as the `hardware` block of its FleetNode."""
    system = "darwin" if sys.platform == "darwin" else "linux"
    return Hardware(
        os=system,
        arch={"aarch64": "arm64", "x86_64": "amd64"}.get(platform.machine(), platform.machine()),
        cpu=Cpu(
            cores=psutil.cpu_count(logical=True),
            performance_cores=performance_cores(),
            avx512=_has_avx512(),
        ),
        memory=psutil.virtual_memory().total,
        devices=(_apple_devices() if system == "darwin" else _nvidia_devices()),
    )


def performance_cores() -> int:
    """Threads that a model should get: physical performance cores, at least 1.

    Two threads on one core, or a model's threads on efficiency cores, make llama.cpp slower.
    """
    if sys.platform == "darwin":
        text = _output("sysctl", "-n", "hw.perflevel0.physicalcpu")
        if text and text.strip().isdigit():
            return max(1, int(text))
    allowed = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else 0
    physical = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return max(1, min(physical, allowed or physical))


def _has_avx512() -> bool | None:
    try:
        return "avx512f" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return None


def _nvidia_devices() -> tuple[Device, ...]:
    """One Device a GPU, from nvidia-smi; none where there is no such tool.

    Parts that share the machine's memory (GB10) report no memory of their own: `unified`.
    """
    query = "name,memory.total,uuid,compute_cap"
    text = _output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits")
    devices = []
    for line in (text or "").splitlines():
        product, memory, uuid, capability = [part.strip() for part in line.split(",", 3)]
        try:
            devices.append(
                Device(
                    vendor="NVIDIA",
                    product=product,
                    arch="sm_" + capability.replace(".", ""),
                    memory=int(memory) * _MIB if memory.isdigit() else "unified",
                    uuid=uuid,
                )
            )
        except ValidationError:
            continue
    return tuple(devices)


def _apple_devices() -> tuple[Device, ...]:
    text = _output("system_profiler", "-json", "SPDisplaysDataType")
    try:
        displays = json.loads(text or "{}").get("SPDisplaysDataType", [])
    except json.JSONDecodeError:
        return ()
    return tuple(
        Device(vendor="Apple", product=item.get("sppci_model"), memory="unified")
        for item in displays
        if "Apple" in str(item.get("spdisplays_vendor", item.get("sppci_model", "")))
    )


def _output(program: str, *args: str) -> str | None:
    """What a tool prints, or None where it is missing, fails or hangs."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *args], capture_output=True, text=True, timeout=_TOOL_DEADLINE_S, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout
