"""What the objects of one service have in common, worked out once. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reconciler.fleet.command import Command
from reconciler.kube.render.cache import ready_path
from reconciler.kube.render.placed import PlacedService
from reconciler.kube.render.quantity import cores
from reconciler.placement.images import built_for, image_for, own_image, program_of
from reconciler.placement.modelcache import ModelCache, cache_for, is_shared
from reconciler.placement.names import object_name, with_suffix
from reconciler.placement.pods import DEFAULT_PORT
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts

WORKLOAD = "/workload"  # the process' own directory
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - of its pod, which only the Service leads to
_ALL_CORES = "-1"  # llama.cpp counts them itself


@dataclass(frozen=True, slots=True)
class Subject:
    """One service on its way to objects. `port` is the one of Service and endpoint."""

    placed: PlacedService
    name: str
    port: int
    command: Command
    image: str
    accelerator: str
    own_image: str
    cache: ModelCache

    @classmethod
    def of(cls, placed: PlacedService) -> Subject:
        """Placement has held whatever has no image or no usable name."""
        workload = placed.workload
        models = [placed.models[m.name] for m in workload.models if m.name in placed.models]
        stated = workload.settings.get("image")
        accelerator = workload.pool.accelerator if workload.pool else None
        image = image_for(workload.runtime, stated, accelerator, models)
        assert image is not None, "placement holds a service without an image"
        port = workload.port or DEFAULT_PORT
        return cls(
            placed=placed,
            name=object_name(workload.ref),
            port=port,
            command=_command(placed, port),
            image=image,
            accelerator=built_for(accelerator, models),
            own_image=own_image(placed.policy),
            cache=cache_for(placed.service, placed.node),
        )

    @property
    def container_port(self) -> int:
        return self.command.port or self.port

    @property
    def claim(self) -> str | None:
        """The claim that its pods mount; None: they have another volume."""
        if not self.cache.has_claim:
            return None
        return self.cache.claim or with_suffix(self.name, "models")

    @property
    def fetches_by_job(self) -> bool:
        """Whether a Job can fill the cache while the pods wait for it. Where only one node at a
        time can mount it, the pod that has it must fetch: a Job elsewhere would wait for ever."""
        return self.claim is not None and is_shared(self.cache, self.placed.node)


def _command(placed: PlacedService, port: int) -> Command:
    workload = placed.workload
    runtime = RUNTIMES[workload.runtime]
    facts = NodeFacts(
        binary=(program_of(runtime),),
        port=str(port),
        host=_ANY_ADDRESS,
        threads=_threads(placed),
        directory=WORKLOAD,
        model_paths={file.name: ready_path(file) for file in workload.model_files},
    )
    return runtime.command(workload, facts)


def _threads(placed: PlacedService) -> str:
    """One thread for each core that the pod was promised, else as the node states."""
    resources = placed.service.spec.resources
    for stated in (resources.limits.get("cpu"), resources.requests.get("cpu")):
        if stated is not None:
            return str(max(1, math.ceil(cores(stated))))
    cpu = placed.node.spec.hardware.cpu
    return str(cpu.performance_cores or cpu.cores or _ALL_CORES)
