"""Kind InferenceService: which models answer, with which settings, where. Pure."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from reconciler.api.field import ELSEWHERE, ONLY_STATED, POD, PROCESS, SCALE, WORKLOAD, Purpose
from reconciler.api.meta import Name, ObjectRef, Reference, Resource, Spec
from reconciler.api.model_settings import ModelEntry, ModelSettings
from reconciler.api.pod_parts import PodFields
from reconciler.api.quantity import Bytes, Duration
from reconciler.api.service_parts import (
    Autoscaling,
    Benchmark,
    Endpoint,
    EnvVar,
    Placement,
    ResourceRequirements,
    Rollout,
    SecretName,
    ServiceCache,
    ServiceMemory,
)
from reconciler.api.speculative import loads_a_model, ways_of


class Router(Spec):
    resident: Annotated[
        int,
        Purpose(PROCESS, affects_speed=False),
        Field(
            ge=1,
            le=64,
            description="Models in memory at the same time. With 1, a request for another model"
            " swaps them.",
        ),
    ] = 1


class InferenceServiceSpec(PodFields, ModelSettings):
    runtime: Annotated[
        str | None,
        Purpose(WORKLOAD),
        Field(
            description="What serves it: an engine, or a router of many models. Unset: the node's"
            " default runtime, then llama-server."
        ),
    ] = None
    model_ref: Annotated[
        Name | None,
        Purpose(WORKLOAD),
        Field(
            description="Name of its Model, in the same namespace. For runtimes that serve one"
            " model."
        ),
    ] = None
    models: Annotated[
        tuple[ModelEntry, ...] | None,
        Purpose(WORKLOAD),
        Field(
            min_length=1,
            max_length=500,
            description="Its models, behind one address. For runtimes that serve many.",
        ),
    ] = None
    router: Annotated[
        Router, Field(description="How a runtime that serves many models keeps them in memory.")
    ] = Router.model_construct()
    replicas: Annotated[
        int,
        Purpose(SCALE),
        Field(
            ge=0,
            le=1000,
            description="How many of it run: one on each of so many machines, or pods of a pool. 0"
            " stops it, as suspend does.",
        ),
    ] = 1
    suspend: Annotated[
        bool, Purpose(WORKLOAD), Field(description="Stop it and keep the files.")
    ] = False
    placement: Annotated[Placement, Purpose(ELSEWHERE), Field(description="Where it may run.")] = (
        Placement.model_construct()
    )
    flash_attention: Annotated[
        bool | Literal["auto"],
        Purpose(PROCESS),
        Field(
            description="Whether attention is computed in one fused step, which is faster and takes"
            " less memory. auto: where the engine can."
        ),
    ] = "auto"
    prompt_cache: Annotated[
        Bytes,
        Purpose(PROCESS, affects_speed=False),
        Field(
            description="The machine's memory for the prompts of earlier requests: a size such as"
            " 512Mi; 0: none."
        ),
    ] = 2**28
    jinja: Annotated[
        bool,
        Purpose(PROCESS, affects_speed=False),
        Field(
            description="Whether the model's own chat template is used, which tool calls need."
            " false: a built-in one of the engine."
        ),
    ] = True
    chat: Annotated[
        bool,
        ONLY_STATED,
        Field(
            description="false: clients have text completed, and do not chat. Its model then needs"
            " no chat template, and status says completions only. Nothing is refused."
        ),
    ] = True
    sleep_idle: Annotated[
        Duration | None,
        Purpose(PROCESS, affects_speed=False),
        Field(
            description="A duration such as 10m without a request, after which the model leaves"
            " memory until the next one. Unset: it stays."
        ),
    ] = None
    env: Annotated[
        tuple[EnvVar, ...],
        Purpose(PROCESS),
        Field(max_length=64, description="Environment variables of the engine."),
    ] = ()
    args: Annotated[
        tuple[str, ...],
        Purpose(PROCESS),
        Field(
            max_length=64,
            description="Arguments of the container, where the runtime is any program of an image."
            " Unset: the image's own, unless command is stated.",
        ),
    ] = ()
    container_port: Annotated[
        Annotated[int, Field(ge=1, le=65535)] | None,
        Purpose(PROCESS),
        Field(description="Port that such a program listens on. Unset: the one of endpoint.port."),
    ] = None
    devices: Annotated[
        int, Purpose(PROCESS), Field(ge=1, le=64, description="Devices (GPUs) that one of it uses.")
    ] = 1
    split_mode: Annotated[
        Literal["none", "layer", "row", "tensor"] | None,
        Purpose(PROCESS, noted_unstated=False),
        Field(
            description="How the model is split over several devices: layer by layer; row, each"
            " tensor, with the context on the main one; tensor, each tensor and the context; none,"
            " all of it on the main one. Unset: layer."
        ),
    ] = None
    tensor_split: Annotated[
        tuple[Annotated[float, Field(ge=0)], ...],
        Purpose(PROCESS, noted_unstated=False),
        Field(
            max_length=64,
            description="Shares of the model, one for each device, such as [3, 1]. Unset: by the"
            " memory that is free on each.",
        ),
    ] = ()
    main_gpu: Annotated[
        int,
        Purpose(PROCESS, noted_unstated=False),
        Field(
            alias="mainGPU",
            ge=0,
            le=63,
            description="Number of the device, from 0, that has all of the model where splitMode is"
            " none, and the context where it is row.",
        ),
    ] = 0
    runtime_options: Annotated[
        dict[str, Any], Purpose(PROCESS), Field(description="Options that only its runtime has.")
    ] = Field(default_factory=dict)
    resources: Annotated[
        ResourceRequirements, Field(description="Resources of each pod, as Kubernetes has them.")
    ] = ResourceRequirements.model_construct()
    model_cache: Annotated[ServiceCache, Field(description="Where its pods keep models.")] = (
        ServiceCache.model_construct()
    )
    endpoint: Annotated[Endpoint, Field(description="Where clients reach it.")] = (
        Endpoint.model_construct()
    )
    memory: Annotated[
        ServiceMemory,
        Field(
            description="What its memory is held against, and what follows where it does not fit."
        ),
    ] = ServiceMemory.model_construct()
    autoscaling: Annotated[
        Autoscaling | None,
        Purpose(SCALE, pods_only=True),
        Field(description="Lets the cluster decide how many pods there are, in place of replicas."),
    ] = None
    benchmark: Annotated[Benchmark, Field(description="How its speed is measured.")] = (
        Benchmark.model_construct()
    )
    rollout: Annotated[Rollout, Field(description="How what runs is replaced and stopped.")] = (
        Rollout.model_construct()
    )
    image: Annotated[
        str | None,
        Purpose(POD, pods_only=True),
        Field(
            description="Container image of its pods. Unset: the Fleet's for the runtime, then the"
            " runtime's own."
        ),
    ] = None
    image_pull_secrets: Annotated[
        tuple[SecretName, ...],
        Purpose(POD, pods_only=True),
        Field(description="Secrets with which the image is pulled."),
    ] = ()
    priority: Annotated[
        Literal["critical", "high", "normal", "low", "batch"],
        Purpose(POD),
        Field(
            description="Who comes first where memory or a port does not do for all. In a cluster"
            " it is the pods' PriorityClass, too; normal has none."
        ),
    ] = "normal"


class InferenceService(Resource):
    kind: Annotated[
        Literal["InferenceService"],
        Field(description="Which models answer, with which settings, where."),
    ]
    spec: Annotated[InferenceServiceSpec, Field(description="What serves which models, where.")]

    @cached_property
    def model_names(self) -> tuple[str, ...]:
        """Names of the Models it serves, in the order of the document."""
        if self.spec.models is not None:
            return tuple(entry.name for entry in self.spec.models)
        return (self.spec.model_ref,) if self.spec.model_ref else ()

    @cached_property
    def draft_names(self) -> Mapping[str, str]:
        """For each model that it serves the name of the Model that guesses for it, if one does."""
        entries = {e.name: e.speculative_decoding for e in self.spec.models or ()}
        ours = self.spec.speculative_decoding
        named = {}
        for name in self.model_names:
            own = entries.get(name, ours)
            draft = own.draft_of(name, ours)
            if draft is not None and loads_a_model(ways_of(own.type or ours.type)):
                named[name] = draft
        return named

    @cached_property
    def needed_names(self) -> tuple[str, ...]:
        """Names of all Models of which it needs the files."""
        return (*self.model_names, *self.draft_names.values())

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        if self.spec.models is None:
            fields = [("spec.modelRef", name) for name in self.model_names]
        else:
            fields = [(f"spec.models[{i}].name", m.name) for i, m in enumerate(self.spec.models)]
        stated = (
            ("spec", self.spec),
            *((f"spec.models[{i}]", e) for i, e in enumerate(self.spec.models or ())),
        )
        fields += [
            (f"{at}.speculativeDecoding.draftModelRef", draft)
            for at, part in stated
            if (draft := part.speculative_decoding.draft_model_ref) is not None
        ]
        return tuple(Reference(field, self._near("Model", name)) for field, name in fields) + tuple(
            Reference(f"spec.placement.nodes[{i}]", ObjectRef("FleetNode", "", name))
            for i, name in enumerate(self.spec.placement.nodes)
        )
