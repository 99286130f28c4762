"""The engine beside us in the pod, probed as an agent probes its processes: by its runtime's
row."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.process import health, many
from agent.process.health import HealthVerdict
from agent.process.launch import Launch
from agent.process.sockets import socket_of
from reconciler.api.errors import UsageError
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import API_VERSION
from reconciler.fleet.command import Command, KeyPlace, Probe
from reconciler.fleet.fleet import Origin
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import Workload
from reconciler.runtimes import RUNTIMES, resolve
from reconciler.runtimes.many import ManyModels
from reconciler.runtimes.runtime import NodeFacts, Runtime
from reconciler.runtimes.settings import settings

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine of a pod: on loopback, which its containers share, or at the pod's address. Every
    call blocks for a bounded time. `many` handles its single models; None if it serves one."""

    launch: Launch
    many: ManyModels | None

    @classmethod
    def beside(
        cls,
        runtime: str,
        port: int,
        names: tuple[str, ...],
        key_file: str | None,
        host: str = _LOOPBACK,
        probe_path: str | None = None,
    ) -> Engine:
        """The engine of a runtime, which should serve these names. Raises UsageError."""
        row = resolve(runtime)
        if row is None:
            raise UsageError(f"--runtime {runtime}: it is one of {', '.join(sorted(RUNTIMES))}")
        if row.needs_model and not names:
            raise UsageError(f"--name: {row.name} serves a model")
        service = _service(row, names)
        probe = _probe(row, service, names)
        key = KeyPlace(row.key_variable or "", key_file) if key_file else None
        launch = Launch(
            ref=service.ref,
            command=Command(
                (), probe=replace(probe, path=probe_path) if probe_path else probe, key=key
            ),
            inputs={},
            inputs_digest="",
            render_digest="",
            runtime=row.name,
            port=port,
            models=names,
            host=host,
        )
        return cls(launch, row.many)

    def identity(self) -> str:
        """Another one after every start of it; empty while it does not listen."""
        return socket_of(self.launch.port)

    def probe(self, *, proven: bool) -> HealthVerdict:
        """Whether it is ready and serves what it should. `proven`: this process was ready
        before."""
        return health.check_alone(self.launch, proven=proven)

    @property
    def counts_requests(self) -> bool:
        return self.launch.command.probe.counts_requests

    def requests_in_flight(self) -> int | None:
        """Requests in flight; None (not 0) if they cannot be read."""
        if self.many is not None:
            return many.requests_in_flight(self.launch, self.many, None)
        return health.requests_in_flight(self.launch)

    def load(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Have a router load these; those that it agreed to."""
        return many.load(self.launch, self.many, names) if self.many else ()


def _service(row: Runtime, names: tuple[str, ...]) -> InferenceService:
    """A service of that runtime with nothing but defaults: enough to know how to probe it."""
    many = [{"name": n} for n in names]
    served = {"models": many} if row.serves_many else {"modelRef": next(iter(names), None)}
    return InferenceService.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "InferenceService",
            "metadata": {"name": "engine"},
            "spec": {"runtime": row.name, **served},
        }
    )


def _probe(row: Runtime, service: InferenceService, names: tuple[str, ...]) -> Probe:
    """No runtime's probe depends on more than the models' names, and on a path that is told."""
    form = min(row.formats)
    workload = Workload(
        ref=service.ref,
        node="",
        runtime=row.name,
        models=tuple(ModelFile(name, name, form) for name in names),
        settings=settings(service, row),
        lifecycle={},
        origin=Origin("", 0),
    )
    return row.command(workload, NodeFacts()).probe
