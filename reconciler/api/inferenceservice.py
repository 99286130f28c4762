"""Kind InferenceService: which models answer, with which settings, where. Pure."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

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
        ContextSize | None, Field(description="Tokens, shared by the slots. Default 8192.")
    ] = None
    parallel_slots: Annotated[Slots | None, Field(description="Default 1.")] = None
    cache_type_k: Annotated[CacheType | None, Field(description="Default f16.")] = None
    cache_type_v: Annotated[CacheType | None, Field(description="Default f16.")] = None
    gpu_layers: Annotated[
        Layers | None, Field(description="Layers on the device. Unset: all where there is one.")
    ] = None
    batch_size: Annotated[Batch | None, Field(description="Default 2048.")] = None
    u_batch_size: Annotated[Batch | None, Field(description="Default 512.")] = None
    extra_args: Args = ()


class ModelEntry(ModelSettings):
    name: Name
    preload: bool = False


class Router(Spec):
    resident: Annotated[
        int, Field(ge=1, le=64, description="Models in memory at once; 1 swaps.")
    ] = 1


class Placement(Spec):
    # Replicas run on distinct nodes, the first ones of the list: a name twice would be one too few.
    nodes: Annotated[tuple[Name, ...], Field(json_schema_extra={"uniqueItems": True})] = ()
    node_selector: dict[str, str] = Field(default_factory=dict)


class EnvVar(Spec):
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
    value: Annotated[str, Field(max_length=4096)] = ""


class ResourceRequirements(Spec):
    requests: Resources = Field(default_factory=dict)
    limits: Resources = Field(default_factory=dict)


class Endpoint(Spec):
    port: Annotated[
        Port | None,
        Field(description="Unset on an agent node: follows from the names of node and service."),
    ] = None
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"


class ServiceMemory(Spec):
    budget: Bytes | None = None
    fraction: Fraction | None = None
    mode: Annotated[
        Literal["enforce", "warn"], Field(description="warn: start it although it does not fit.")
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


class Benchmark(Spec):
    enabled: Annotated[
        bool | None,
        Field(
            description="Whether a cluster's pods are measured by a Job, once for each class of"
            " devices. Unset: where the pool states a GPU. Agents measure when they are asked."
        ),
    ] = None
    every_class: Annotated[
        bool,
        Field(
            description="Whether a Job also measures on classes of the pool's devices where no pod"
            " of the service runs: it fetches the model and starts the engine there."
        ),
    ] = True
    warmup_iterations: Annotated[int, Field(ge=0)] = 2
    iterations: Annotated[int, Field(ge=1)] = 5
    min_duration: Duration = 30.0


class Rollout(Spec):
    drain_timeout: Duration = 60.0
    handover: Duration = 1800.0
    on_upgrade: Literal["defer", "restart"] = "defer"


class SecretName(Spec):
    name: str


class InferenceServiceSpec(ModelSettings):
    runtime: Annotated[
        str | None, Field(description="Unset: the node's default runtime, then llama-server.")
    ] = None
    model_ref: Name | None = None
    models: Annotated[tuple[ModelEntry, ...] | None, Field(min_length=1, max_length=500)] = None
    router: Router = Router.model_construct()
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    suspend: Annotated[bool, Field(description="Stop it and keep the files.")] = False
    placement: Placement = Placement.model_construct()
    flash_attention: bool | Literal["auto"] = "auto"
    prompt_cache: Annotated[
        Bytes, Field(description="Memory for the prompts of earlier requests. Default 256Mi.")
    ] = 2**28
    jinja: bool = True
    chat: Annotated[
        bool,
        Field(
            description="false: clients have text completed, and do not chat. Its model then needs"
            " no chat template, and status says completions only. Nothing is refused."
        ),
    ] = True
    sleep_idle: Duration | None = None
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64)] = ()
    devices: Annotated[int, Field(ge=1, le=64)] = 1
    runtime_options: dict[str, Any] = Field(default_factory=dict)
    resources: ResourceRequirements = ResourceRequirements.model_construct()
    endpoint: Endpoint = Endpoint.model_construct()
    memory: ServiceMemory = ServiceMemory.model_construct()
    autoscaling: Autoscaling | None = None
    benchmark: Benchmark = Benchmark.model_construct()
    rollout: Rollout = Rollout.model_construct()
    image: str | None = None
    image_pull_secrets: tuple[SecretName, ...] = ()
    priority: Literal["critical", "high", "normal", "low", "batch"] = "normal"


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
