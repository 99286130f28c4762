"""What a process was started from, as the workload that it was. Pure."""

from __future__ import annotations

from agent.process.launch import Launch
from reconciler.fleet import Origin
from reconciler.workload import LOOPBACK, Listen, ModelFile, Workload


def models_of(launch: Launch) -> tuple[ModelFile, ...]:
    """The models that a process was started from."""
    return tuple(
        ModelFile(m["name"], m["source"], m["format"], m["sha256"], files=tuple(m.get("files", ())))
        for m in launch.inputs["models"]
    )


def workload_of(launch: Launch, node: str) -> Workload:
    """The workload with the same inputs, to be rendered anew without the fleet at hand."""
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
        listen=Listen(**inputs["listen"]) if "listen" in inputs else LOOPBACK,
    )
