"""A process's launch as the workload it was rendered from. Pure."""

from __future__ import annotations

from agent.process.launch import Launch
from reconciler.fleet.fleet import Origin
from reconciler.fleet.model_file import ModelFile, read_inputs
from reconciler.fleet.workload import LOOPBACK, Exposure, Workload


def models_of(launch: Launch) -> tuple[ModelFile, ...]:
    """The models of a launch."""
    return tuple(map(read_inputs, launch.inputs["models"]))


def workload_of(launch: Launch, node: str) -> Workload:
    """The workload with the same inputs, to render it again without the fleet."""
    inputs, source = launch.inputs, launch.source
    return Workload(
        ref=launch.ref,
        node=node,
        runtime=launch.runtime,
        models=models_of(launch),
        settings=inputs["settings"],
        lifecycle=inputs["lifecycle"],
        origin=Origin(source.file, source.line) if source else Origin("", 1),
        port=inputs["port"],
        drain_timeout_s=launch.drain_timeout_s,
        suspended=inputs["suspended"],
        needs=launch.needs,
        listen=Exposure(**inputs["listen"]) if "listen" in inputs else LOOPBACK,
    )
