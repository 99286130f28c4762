"""What is measured: a process that runs here, and the key that its figures will count for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from agent.engines.capability import version_of
from agent.engines.engine import EMBEDDED_PACKAGE, EngineFound
from agent.machine.machine import Machine
from agent.machine.memory_devices import device_memory
from agent.machine.probe import probe
from agent.machine.processor import processor
from agent.models.store import ModelStore
from agent.process import health
from agent.process.identity import is_ours
from agent.process.launch import Child, Launch
from agent.process.rebuilt import models_of
from agent.process.records import ProcessRecord
from reconciler.api.benchmark import BenchmarkKey, DeviceClass
from reconciler.api.benchmark_settings import settings_digest, writes_nothing
from reconciler.api.errors import BenchmarkError
from reconciler.api.fleetnode import Hardware
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import Runtime

_EMBEDDED = "agent.embedded"


@dataclass(frozen=True, slots=True)
class BenchmarkSubject:
    """One model of one process."""

    launch: Launch
    child: Child
    row: Runtime
    model: str
    key: BenchmarkKey
    device_bytes: int | None

    @property
    def label(self) -> str:
        name = self.launch.ref.label
        return f"{name} ({self.model})" if self.row.serves_many else name


def subjects(
    record: ProcessRecord, store: ModelStore, machine: Machine | None = None
) -> tuple[BenchmarkSubject, ...]:
    """The models of a service that can be measured now: of a router, those that are loaded, as
    measuring another would put one of them out. Raises BenchmarkError with what is in the way."""
    launch, child, row = record.launch, record.child, RUNTIMES.get(record.launch.runtime)
    label = launch.ref.label
    if row is None:
        raise BenchmarkError(f"{label}: this version knows no runtime {launch.runtime}")
    names = _ready_models(record)
    settings: Mapping[str, Any] = launch.inputs.get("settings", {})
    if why := next(filter(None, (writes_nothing(settings, name) for name in names)), None):
        raise BenchmarkError(f"{label} {why}")
    assert child is not None  # or it would not be ready
    machine = machine or Machine()
    build = _build(launch, child, row)
    used = used_devices(launch, child.identity.pid, machine)
    device = DeviceClass.of(used, processor(machine), len(used.devices))
    sizes = [d.memory for d in used.devices if d.memory != "unified"]
    digests = {
        file.name: stored.digest
        for file in models_of(launch)
        if (stored := store.lookup(file)) is not None
    }
    if gone := [name for name in names if name not in digests]:
        raise BenchmarkError(
            f"{label}: the store has {', '.join(gone)} no more, so nobody knows which bytes it"
            f" serves; restart it: fleet-agent restart {label}"
        )
    return tuple(
        BenchmarkSubject(
            launch=launch,
            child=child,
            row=row,
            model=name,
            key=BenchmarkKey(
                model=digests[name],
                runtime=row.name,
                build=build,
                settings=settings_digest(settings, name),
                device=device,
            ),
            device_bytes=min(sizes) if sizes else None,
        )
        for name in names
    )


def used_devices(launch: Launch, pid: int, machine: Machine) -> Hardware:
    """This machine with those of its devices alone that the process has memory on. Where drivers
    do not tell: with as many as the service asks for, the first ones."""
    hardware = probe(machine)
    settings = launch.inputs.get("settings", {})
    layers = [v for k, v in settings.items() if k.rpartition(".")[2] == "gpuLayers"]
    if not hardware.devices or (layers and all(value == 0 for value in layers)):
        return hardware.model_copy(update={"devices": ()})
    asked = int(settings.get("devices") or 1)
    measured = device_memory(machine)
    own = [device for device in hardware.devices if device.memory != "unified"]
    by_pid = [m.by_pid for m in measured]
    if len(measured) == len(own) == len(hardware.devices) and None not in by_pid:
        pids = _with_children(pid)
        used = tuple(d for d, users in zip(own, by_pid, strict=True) if pids & set(users or ()))
    else:
        used = hardware.devices[:asked]
    return hardware.model_copy(update={"devices": used})


def _ready_models(record: ProcessRecord) -> tuple[str, ...]:
    launch, child = record.launch, record.child
    label = launch.ref.label
    if child is None or not is_ours(child):
        raise BenchmarkError(f"{label} does not run here; start it: fleet-agent restart {label}")
    verdict = health.check(
        child.identity.pid,
        launch.host,
        launch.port,
        launch.command.probe,
        health.recogniser(launch.runtime, launch.models),
        was_ready=record.was_ready,
        key=health.key_of(launch),
    )
    if not verdict.ready:
        why = f"{verdict.reason}: {verdict.message}".rstrip(": ")
        raise BenchmarkError(f"{label} is not ready ({why}); see fleet-agent status")
    if not RUNTIMES[launch.runtime].serves_many:
        return launch.models[:1]
    loaded = tuple(model.name for model in verdict.served if model.state == "loaded")
    if not loaded:
        raise BenchmarkError(f"{label}: no model is loaded; ask one of them something first")
    return loaded


def _build(launch: Launch, child: Child, row: Runtime) -> str:
    """The version of the program that runs; not of one that was put in its place since."""
    label = launch.ref.label
    argv = launch.command.argv
    if _EMBEDDED in argv:
        spec = find_spec(EMBEDDED_PACKAGE)
        path = (spec.origin if spec else None) or argv[0]
        engine = EngineFound(argv[:1], path, "embedded", "")
    else:
        engine = EngineFound(argv[:1], argv[0], "binary", "")
    try:
        replaced = Path(engine.path).stat().st_ctime > child.spawned_at
    except OSError:
        replaced = True
    if replaced:
        raise BenchmarkError(
            f"{label}: its engine was replaced since it started ({engine.path}); restart it first:"
            f" fleet-agent restart {label}"
        )
    version = version_of(row.engine, engine)
    if version is None:
        raise BenchmarkError(
            f"{label}: {engine.path} does not tell its version, and figures of one build are not"
            " those of another"
        )
    return version


def _with_children(pid: int) -> set[int]:
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return {pid}
    return {pid, *(child.pid for child in below)}
