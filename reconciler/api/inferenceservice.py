"""Kind InferenceService: which models answer, with which settings, where. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from reconciler.api.field import (
    ELSEWHERE,
    LIFECYCLE,
    POD,
    PROCESS,
    SCALE,
    WORKLOAD,
    Purpose,
)
from reconciler.api.fleetnode import Fraction
from reconciler.api.meta import (
    Name,
    ObjectRef,
    Reference,
    Resource,
    Spec,
)
from reconciler.api.quantity import Bytes, Duration

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
ContextSize = Annotated[int, Field(ge=128, le=2**27)]
Slots = Annotated[int, Field(ge=1, le=1024)]
Batch = Annotated[int, Field(ge=1, le=65536)]
Port = Annotated[int, Field(ge=1, le=65535)]
Layers = Annotated[int, Field(ge=0, le=4096)]
Args = Annotated[tuple[str, ...], Field(max_length=64)]


def _whole(amount: float | str) -> int | float | str:
    """1e9 as an API server gives it back: a service is the same from there and from git."""
    return int(amount) if isinstance(amount, float) and amount.is_integer() else amount


Resources = dict[str, Annotated[int | float | str, AfterValidator(_whole)]]


class ModelSettings(Spec):
    """What can be said per service, and per model of a router. Unset: the service's, then ours."""

    context_size: Annotated[
        ContextSize | None,
        Purpose(PROCESS, default=8192),
        Field(description="Tokens, shared by the slots. Default 8192."),
    ] = None
    parallel_slots: Annotated[
        Slots | None, Purpose(PROCESS, default=1), Field(description="Default 1.")
    ] = None
    cache_type_k: Annotated[
        CacheType | None, Purpose(PROCESS, default="f16"), Field(description="Default f16.")
    ] = None
    cache_type_v: Annotated[
        CacheType | None, Purpose(PROCESS, default="f16"), Field(description="Default f16.")
    ] = None
    gpu_layers: Annotated[
        Layers | None,
        Purpose(PROCESS),
        Field(description="Layers on the device. Unset: all where there is one."),
    ] = None
    batch_size: Annotated[
        Batch | None, Purpose(PROCESS, default=2048), Field(description="Default 2048.")
    ] = None
    u_batch_size: Annotated[
        Batch | None, Purpose(PROCESS, default=512), Field(description="Default 512.")
    ] = None
    extra_args: Annotated[Args, Purpose(PROCESS)] = ()


class ModelEntry(ModelSettings):
    name: Annotated[Name, Purpose(WORKLOAD)]
    preload: Annotated[bool, Purpose(PROCESS, affects_speed=False)] = False


class Router(Spec):
    resident: Annotated[
        int,
        Purpose(PROCESS, affects_speed=False),
        Field(ge=1, le=64, description="Models in memory at once; 1 swaps."),
    ] = 1


class Placement(Spec):
    # Replicas run on distinct nodes, the first ones of the list: a name twice would be one too few.
    nodes: Annotated[tuple[Name, ...], Field(json_schema_extra={"uniqueItems": True})] = ()
    node_selector: dict[str, str] = Field(default_factory=dict)


class EnvVar(Spec):
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
    value: Annotated[str, Field(max_length=4096)] = ""


class ResourceRequirements(Spec):
    requests: Annotated[Resources, Purpose(POD)] = Field(default_factory=dict)
    limits: Annotated[Resources, Purpose(POD)] = Field(default_factory=dict)


class Endpoint(Spec):
    port: Annotated[
        Port | None,
        Purpose(WORKLOAD),
        Field(description="Unset on an agent node: follows from the names of node and service."),
    ] = None
    type: Annotated[Literal["ClusterIP", "NodePort", "LoadBalancer"], Purpose(SCALE)] = "ClusterIP"


class ServiceMemory(Spec):
    budget: Annotated[Bytes | None, Purpose(ELSEWHERE)] = None
    fraction: Annotated[Fraction | None, Purpose(ELSEWHERE)] = None
    mode: Annotated[
        Literal["enforce", "warn"],
        Purpose(LIFECYCLE),
        Field(description="warn: start it although it does not fit."),
    ] = "enforce"


class Metric(Spec):
    type: Literal["Pods", "Resource"] = "Pods"
    name: str
    target_average_value: int | str | None = None
    target_average_utilization: int | None = None


class Autoscaling(Spec):
    min_replicas: Annotated[int, Field(ge=1)] = 1
    max_replicas: Annotated[int, Field(ge=1)] = 1
    metrics: tuple[Metric, ...] = ()


_ONLY_STATED = Purpose(LIFECYCLE, noted_unstated=False)


class Benchmark(Spec):
    enabled: Annotated[
        bool | None,
        Purpose(ELSEWHERE),
        Field(
            description="Whether a cluster's pods are measured by a Job, once for each class of"
            " devices. Unset: where the pool states a GPU. Agents measure when they are asked."
        ),
    ] = None
    every_class: Annotated[
        bool,
        Purpose(ELSEWHERE),
        Field(
            description="Whether a Job also measures on classes of the pool's devices where no pod"
            " of the service runs: it fetches the model and starts the engine there."
        ),
    ] = True
    warmup_iterations: Annotated[int, _ONLY_STATED, Field(ge=0)] = 2
    iterations: Annotated[int, _ONLY_STATED, Field(ge=1)] = 5
    min_duration: Annotated[Duration, _ONLY_STATED] = 30.0


class Rollout(Spec):
    drain_timeout: Annotated[Duration, Purpose(LIFECYCLE)] = 60.0
    handover: Annotated[Duration, Purpose(LIFECYCLE)] = 1800.0
    on_upgrade: Annotated[Literal["defer", "restart"], Purpose(LIFECYCLE)] = "defer"


class SecretName(Spec):
    name: str


class InferenceServiceSpec(ModelSettings):
    runtime: Annotated[
        str | None,
        Purpose(WORKLOAD),
        Field(description="Unset: the node's default runtime, then llama-server."),
    ] = None
    model_ref: Annotated[Name | None, Purpose(WORKLOAD)] = None
    models: Annotated[
        tuple[ModelEntry, ...] | None, Purpose(WORKLOAD), Field(min_length=1, max_length=500)
    ] = None
    router: Router = Router.model_construct()
    replicas: Annotated[int, Purpose(SCALE), Field(ge=0, le=1000)] = 1
    suspend: Annotated[
        bool, Purpose(WORKLOAD), Field(description="Stop it and keep the files.")
    ] = False
    placement: Annotated[Placement, Purpose(ELSEWHERE)] = Placement.model_construct()
    flash_attention: Annotated[bool | Literal["auto"], Purpose(PROCESS)] = "auto"
    prompt_cache: Annotated[
        Bytes,
        Purpose(PROCESS, affects_speed=False),
        Field(description="Memory for the prompts of earlier requests. Default 256Mi."),
    ] = 2**28
    jinja: Annotated[bool, Purpose(PROCESS, affects_speed=False)] = True
    chat: Annotated[
        bool,
        _ONLY_STATED,
        Field(
            description="false: clients have text completed, and do not chat. Its model then needs"
            " no chat template, and status says completions only. Nothing is refused."
        ),
    ] = True
    sleep_idle: Annotated[Duration | None, Purpose(PROCESS, affects_speed=False)] = None
    env: Annotated[tuple[EnvVar, ...], Purpose(PROCESS), Field(max_length=64)] = ()
    devices: Annotated[int, Purpose(PROCESS), Field(ge=1, le=64)] = 1
    runtime_options: Annotated[dict[str, Any], Purpose(PROCESS)] = Field(default_factory=dict)
    resources: ResourceRequirements = ResourceRequirements.model_construct()
    endpoint: Endpoint = Endpoint.model_construct()
    memory: ServiceMemory = ServiceMemory.model_construct()
    autoscaling: Annotated[Autoscaling | None, Purpose(SCALE, pods_only=True)] = None
    benchmark: Benchmark = Benchmark.model_construct()
    rollout: Rollout = Rollout.model_construct()
    image: Annotated[str | None, Purpose(POD, pods_only=True)] = None
    image_pull_secrets: Annotated[tuple[SecretName, ...], Purpose(POD, pods_only=True)] = ()
    priority: Annotated[Literal["critical", "high", "normal", "low", "batch"], Purpose(POD)] = (
        "normal"
    )


class InferenceService(Resource):
    kind: Literal["InferenceService"]
    spec: InferenceServiceSpec

    @cached_property
    def model_names(self) -> tuple[str, ...]:
        """Names of the Models it serves, in the order of the document."""
        if self.spec.models is not None:
            return tuple(entry.name for entry in self.spec.models)
        return (self.spec.model_ref,) if self.spec.model_ref else ()

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        if self.spec.models is None:
            fields = [("spec.modelRef", name) for name in self.model_names]
        else:
            fields = [(f"spec.models[{i}].name", m.name) for i, m in enumerate(self.spec.models)]
        return tuple(Reference(field, self._near("Model", name)) for field, name in fields) + tuple(
            Reference(f"spec.placement.nodes[{i}]", ObjectRef("FleetNode", "", name))
            for i, name in enumerate(self.spec.placement.nodes)
        )
