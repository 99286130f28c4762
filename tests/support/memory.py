"""Processes that eat memory, and machines as their kernels and drivers were recorded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.machine.machine import Machine
from reconciler.api.fleetnode import FleetNode
from reconciler.api.meta import API_VERSION

MIB, GIB = 2**20, 2**30
_EATER = """
import subprocess, sys, time
own = bytearray(b"x") * (int(sys.argv[1]) << 20)
children = [subprocess.Popen([sys.executable, "-c", sys.argv[3], w, "", ""], stdout=subprocess.PIPE)
            for w in sys.argv[2].split()]
for child in children:
    child.stdout.readline()
print("ready", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def eater(mib: int, *children: int) -> Iterator[int]:
    """A process, first of its own session as services are, with so much memory written to, and
    children with as much as is said of each; its pid."""
    words = " ".join(str(size) for size in children)
    process = subprocess.Popen(
        [sys.executable, "-c", _EATER, str(mib), words, _EATER],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


# A Mac is asked by psutil, wherever a test says that its facts lie.
linux_says = pytest.mark.skipif(
    sys.platform != "linux", reason="of what Linux says of memory, recorded; Linux shows it"
)


def kernel(root: Path, total: int, in_use: int) -> Path:
    """What /proc/meminfo says of so much memory, in bytes."""
    if sys.platform != "linux":
        pytest.skip("reads a recorded /proc/meminfo; Linux shows it")
    path = root / "proc/meminfo"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"MemTotal:       {total // 1024} kB\n"
        f"MemFree:        {1024} kB\n"
        f"MemAvailable:   {(total - in_use) // 1024} kB\n"
        "HugePages_Total:       0\n"
    )
    return root


class NvmlError(Exception):
    pass


class Nvml:
    """NVIDIA's library as it answered: (uuid, total, used, {pid: bytes}); a process whose use it
    does not know has None, None for all of them is a refusal to say."""

    NVMLError = NvmlError

    def __init__(self, *gpus: tuple[str, int, int, Mapping[int, int | None] | None]) -> None:
        self._gpus = gpus

    def nvmlDeviceGetCount(self) -> int:
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return self._gpus[handle][0]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=self._gpus[handle][1], used=self._gpus[handle][2])

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        found = self._gpus[handle][3]
        if found is None:
            raise NvmlError
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in found.items()]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:
        return self.nvmlDeviceGetComputeRunningProcesses(handle)[:1]


def machine(root: Path, nvml: Nvml | None = None) -> Machine:
    return Machine(root, lambda *_: None, lambda: nvml)


def stated(memory: str | None = "32Gi", *devices: Any, **rules: Any) -> FleetNode:
    """A FleetNode with this memory; a device is its memory, or a dict."""
    hardware: dict[str, Any] = {"memory": memory} if memory else {}
    hardware["devices"] = [d if isinstance(d, dict) else {"memory": d} for d in devices]
    return FleetNode.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "FleetNode",
            "metadata": {"name": "here"},
            "spec": {"hardware": hardware, "memory": rules},
        }
    )
