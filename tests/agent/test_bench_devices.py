"""Whose figures a measurement's are: the devices that a process really uses."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.bench.subject import used_devices
from agent.machine.machine import Machine
from agent.process.launch import Launch
from reconciler.api.benchmark import DeviceClass
from reconciler.api.meta import ObjectRef
from reconciler.fleet.command import Command

pytestmark = pytest.mark.skipif(os.uname().sysname != "Linux", reason="a Mac has no NVIDIA GPU")

US = os.getpid()


class Nvml:
    """NVIDIA's library on a machine with L4s; `users` are the processes on each. None: it does not
    tell, as in a container."""

    class NVMLError(Exception):
        pass

    NVMLError_NotSupported = NVMLError

    def __init__(self, *users: tuple[int, ...] | None) -> None:
        self._users = users

    def nvmlDeviceGetCount(self) -> int:
        return len(self._users)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA L4"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 8, 9

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=23_034 * 2**20, used=0)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        users = self._users[handle]
        if users is None:
            raise self.NVMLError
        return [SimpleNamespace(pid=pid, usedGpuMemory=2**30) for pid in users]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:
        return []


def launch(**settings: Any) -> Launch:
    ref = ObjectRef("InferenceService", "default", "chat")
    return Launch(ref, Command(("x",)), {"settings": settings}, "", "", "llama-server", 1)


def used(root: Path, nvml: Nvml | None, **settings: Any) -> DeviceClass:
    machine = Machine(root, lambda *_: None, lambda: nvml)
    found = used_devices(launch(**settings), US, machine)
    return DeviceClass.of(found, "Xeon", len(found.devices))


def test_the_class_is_of_the_devices_that_the_process_has_memory_on(tmp_path: Path) -> None:
    one = used(tmp_path, Nvml((1,), (US,)), devices=1)
    both = used(tmp_path, Nvml((US,), (US,)), devices=1)

    assert str(one) == "1 x NVIDIA sm_89, 22 GiB"
    assert both.count == 2, "llama.cpp takes all that it sees, whatever was asked for"


def test_an_engine_that_uses_no_gpu_of_its_machine_is_of_the_processors_class(
    tmp_path: Path,
) -> None:
    built_without_cuda = used(tmp_path, Nvml((), ()), devices=1)
    told_not_to = used(tmp_path, Nvml((US,)), gpuLayers=0)

    assert built_without_cuda.cpu == told_not_to.cpu == "Xeon"
    assert built_without_cuda.count == told_not_to.count == 0


def test_where_a_driver_does_not_tell_it_is_what_the_service_asks_for(tmp_path: Path) -> None:
    assert used(tmp_path, Nvml(None, None), devices=1).count == 1
    assert used(tmp_path, Nvml(None, None), devices=2).count == 2
    assert used(tmp_path, None, devices=1).count == 0
