"""What this machine offers to the workloads that the fleet wants on it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from agent.engines.engine import EngineFound
from agent.engines.render import CommandRenderer
from agent.node.admission import Obstacles
from agent.process.holders import taken_ports
from reconciler.api.errors import ApplyError, EngineError
from reconciler.api.isolated import INTERNAL, Crash, attempt
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import ObservedDisk, ObservedPool, Obstacle, TargetState
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import Workload


def wanted_models(node: str, workloads: Iterable[Workload]) -> list[ModelFile]:
    """What is to be on the node's disk for the workloads that are to run there."""
    return [m for w in workloads if w.node == node and not w.suspended for m in w.model_files]


def target_state(
    node: str,
    renderer: CommandRenderer,
    workloads: Iterable[Workload],
    seen_at: float | None,
    own_ports: Collection[int],
    pools: tuple[ObservedPool, ...] = (),
    disk: ObservedDisk | None = None,
) -> TargetState:
    """What this machine offers to the workloads: engines, models, memory, ports, and how each would
    be started. `own_ports` are those of its own processes."""
    mine = [workload for workload in workloads if workload.node == node]
    ports = renderer.ports.follow({w.ref: w.port for w in mine if not w.suspended})
    listens = [(w.listen.host, ports[w.ref]) for w in mine if w.ref in ports]
    engines: dict[
        str, EngineFound
    ] = {}  # once a look: for each of 50 services it was a third of it
    missing: dict[str, str] = {}
    renders: dict[ObjectRef, str] = {}
    cached: set[str] = set()
    obstacles: dict[ObjectRef, Obstacle] = {}
    looked = Obstacles(renderer)
    for workload in mine:
        stored = [m for m in workload.model_files if renderer.store.lookup(m)]
        cached |= {known for model in stored for known in model.identities}
        if workload.suspended:
            continue
        port, is_here = ports.get(workload.ref), len(stored) == len(workload.model_files)
        if (obstacle := looked.of(workload, port=port, is_here=is_here)) is not None:
            obstacles[workload.ref] = obstacle
        if port is None:
            continue
        try:
            if workload.runtime not in missing:
                if workload.runtime not in engines:
                    engines[workload.runtime] = renderer.engine(workload.runtime)
                engine = engines[workload.runtime]
                rendered = attempt(
                    partial(renderer.render, workload, keep_port=False, engine=engine)
                )
                if isinstance(rendered, Crash):
                    obstacles[workload.ref] = Obstacle(INTERNAL, rendered.message)
                elif rendered:
                    renders[workload.ref] = rendered.digest
        except EngineError as error:
            missing[workload.runtime] = str(error)
        except ApplyError as error:
            obstacles[workload.ref] = Obstacle("NotRendered", error.message)
    return TargetState(
        f"node/{node}",
        True,
        seen_at,
        missing=missing,
        renders=renders,
        cached=frozenset(cached),
        pools=pools,
        disk=disk,
        runtimes=renderer.runtimes(),
        ports=ports,
        ports_taken=taken_ports(renderer.state, listens, own_ports),
        obstacles=obstacles,
    )
