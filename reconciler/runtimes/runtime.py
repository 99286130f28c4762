"""What a runtime module provides, and which fields of a service it renders from. Pure.

A runtime is data and functions, not a base class. Adding one: `docs/runtimes.md`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from reconciler.api.inferenceservice import InferenceService, InferenceServiceSpec, ModelSettings
from reconciler.api.problem import Finding
from reconciler.fleet.command import Command, ServedModel
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import Workload
from reconciler.memory import MemorySettings
from reconciler.runtimes.many import ManyModels
from reconciler.runtimes.timing import EngineTimings

# Every field of InferenceServiceSpec is in exactly one of these (a test holds that): what the
# process is rendered from, what only the target acts on, what Workload carries in a field of its
# own, and what decides where or whether to run, or acts on Kubernetes only.
MODEL_FIELDS = (
    "contextSize",
    "parallelSlots",
    "cacheTypeK",
    "cacheTypeV",
    "gpuLayers",
    "batchSize",
    "uBatchSize",
    "extraArgs",
)
SERVICE_FIELDS = (
    "flashAttention",
    "promptCache",
    "jinja",
    "sleepIdle",
    "env",
    "devices",
    "runtimeOptions",
    "router",
)
LIFECYCLE_FIELDS = (
    "rollout.drainTimeout",
    "rollout.handover",
    "rollout.onUpgrade",
    "memory.mode",
)
# These only say how to measure it, and are left out where they are not stated.
BENCHMARK_FIELDS = (
    "benchmark.warmupIterations",
    "benchmark.iterations",
    "benchmark.minDuration",
)
CARRIED_FIELDS = ("runtime", "modelRef", "models", "suspend", "endpoint.port")
ELSEWHERE_FIELDS = (
    "replicas",
    "placement",
    "memory.budget",
    "memory.fraction",
    "endpoint.type",
    "resources",
    "autoscaling",
    "image",
    "imagePullSecrets",
    "priority",
    "benchmark.enabled",
)
# In a cluster these count as well, by the names that plans show: what pods are made from beside
# what their processes are, and what changes without a new pod.
POD_FIELDS = ("resources.requests", "resources.limits", "imagePullSecrets", "priority")
SCALE_FIELDS = ("replicas", "endpoint.type", "autoscaling")
PROCESS_FIELDS = frozenset(MODEL_FIELDS + SERVICE_FIELDS)

_MODEL_DEFAULTS: Mapping[str, Any] = {
    "contextSize": 8192,
    "parallelSlots": 1,
    "cacheTypeK": "f16",
    "cacheTypeV": "f16",
    "gpuLayers": None,  # all where there is a device
    "batchSize": 2048,
    "uBatchSize": 512,
}


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What rendering needs to know of a node. The defaults are placeholders for a plan."""

    # the program, with leading arguments such as `python -m`
    binary: tuple[str, ...] = ("{binary}",)
    port: str = "{port}"
    host: str = "127.0.0.1"
    threads: str = "{threads}"
    directory: str = "{dir}"  # of this workload: presets, caches
    model_paths: Mapping[str, str] | None = (
        None  # Model name -> absolute path; None: `{store}/NAME`
    )

    def model_path(self, model: ModelFile) -> str:
        if self.model_paths is None:
            return f"{{store}}/{model.sha256 or model.name}"
        return self.model_paths[model.name]


@dataclass(frozen=True, slots=True)
class EngineProgram:
    """How a node finds the program: names on PATH, and what to tell a person who lacks it.

    Its version is that of `package`, a Python distribution, or what it prints for --version.
    """

    programs: tuple[str, ...]
    install_hint: str
    embedded: bool = False  # the embedded engine can stand in for it
    package: str | None = None
    tells_version: bool = True


@dataclass(frozen=True, slots=True)
class PodImages:
    """The default images of a runtime; a Fleet may name others. `program` is its path or name
    within each of them, `by_accelerator` an image for each kind of device, or `cpu`."""

    program: str
    by_accelerator: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ServingState:
    """A process's list of models, judged. `reason` is empty if the list is the expected one; else a
    CamelCase reason why it is not ready, with a message."""

    models: tuple[ServedModel, ...] = ()
    reason: str = ""
    message: str = ""


def lists_all(document: object, names: tuple[str, ...]) -> ServingState:
    """An OpenAI list of models (`{data: [{id, aliases}]}`) is right when it has every name."""
    found = {name for entry in listed(document) for name in names_in(entry)}
    if absent := [name for name in names if name not in found]:
        shown = ", ".join(sorted(found)) or "nothing"
        return ServingState((), "WrongModel", f"serves {shown} instead of {', '.join(absent)}")
    return ServingState(tuple(ServedModel(name, "loaded") for name in names))


def listed(document: object) -> tuple[Mapping[str, object], ...]:
    """The entries of an OpenAI list of models; none where the answer is anything else."""
    data = document.get("data") if isinstance(document, dict) else None
    return tuple(e for e in (data if isinstance(data, list) else ()) if isinstance(e, dict))


def names_in(entry: Mapping[str, object]) -> tuple[str, ...]:
    """The names under which clients may ask for a listed model: its id, then its aliases."""
    aliases = entry.get("aliases")
    words = (entry.get("id"), *(aliases if isinstance(aliases, list) else ()))
    return tuple(word for word in words if isinstance(word, str))


@dataclass(frozen=True, slots=True)
class Effective:
    """Settings of a live process that differ from the declared ones, a sentence each. `differs` is
    given a function that GETs a path as parsed JSON, and the settings of Workload.inputs."""

    differs: Callable[[Callable[[str], object], Mapping[str, Any]], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Runtime:
    """One row of the table.

    `serves_many` decides the exclusion rule: a runtime that serves many requires `models[]` and
    forbids `modelRef`; every other requires `modelRef` and forbids `models[]`.

    `fields` are the spec fields it renders from; a change of any other never restarts its process.
    `command` renders a Workload on a node; nothing in it may depend on another service.
    `memory_settings` are the settings for the estimate, one per model; None if unknown.

    `check_args` returns why extra arguments are refused, as (index, reason) pairs; `check_env` does
    it for one variable. `check` finds what no schema can express, such as more preloads than
    places.

    `serving` identifies a process: it compares the parsed JSON of its probe's `models_path` with
    the public names that it should serve. `key_variable` is the variable with the API key that it
    requires of clients; None: it cannot require one.

    `metrics_path` has its metrics in the Prometheus format, and `tokens_metric` is the counter of
    generated tokens; a runtime that serves many returns them for one model at a time,
    `?model=NAME`. None: no metrics. `requests_metric` is the number of requests in flight per pod,
    the default metric for autoscaling. None: CPU, the default of Kubernetes.

    `images` are for pods. None: it runs in pods only if the fleet names an image.
    `takes_projector`: a model may have spec.mmproj.

    `timings` is for an engine that times its own answers; a benchmark of any other is timed from
    outside.

    `asleep` returns whether a process has put its model to sleep, given a function that GETs a path
    as parsed JSON, without waking it. None: unknown, or `serving` tells it.
    """

    name: str
    formats: frozenset[str]
    serves_many: bool
    options: type[BaseModel]
    engine: EngineProgram
    command: Callable[[Workload, NodeFacts], Command]
    memory_settings: Callable[[Workload, ModelFile], MemorySettings] | None = None
    check_args: Callable[[tuple[str, ...]], tuple[tuple[int, str], ...]] = lambda _: ()
    check_env: Callable[[str], str | None] = lambda _: None
    check: Callable[[InferenceService], tuple[Finding, ...]] = lambda _: ()
    serving: Callable[[object, tuple[str, ...]], ServingState] = lists_all
    many: ManyModels | None = None
    effective: Effective | None = None
    asleep: Callable[[Callable[[str], object]], bool] | None = None
    metrics_path: str | None = None
    tokens_metric: str | None = None
    requests_metric: str | None = None
    images: PodImages | None = None
    key_variable: str | None = None
    timings: EngineTimings | None = None
    takes_projector: bool = False
    aliases: tuple[str, ...] = ()
    fields: frozenset[str] = PROCESS_FIELDS - {"router"}


def settings(service: InferenceService, runtime: Runtime) -> dict[str, Any]:
    """The effective values that the runtime renders from, flat, by their path below `spec`.

    One model: `contextSize`, `cacheTypeK`, ... A runtime that serves many has them per model, by
    name: `models[phi4-mini].contextSize` (the entry's value, else the service's, else the default),
    and `models[NAME].preload` (without any, the first). `env.NAME` and `runtimeOptions.KEY` are
    flat too. Bytes are integers, durations seconds; None is "unset". `spec.runtimeOptions` must
    have passed validation: pydantic.ValidationError otherwise.
    """
    spec = service.spec
    if spec.models is None:
        values = _of_model(spec, spec, runtime)
    else:
        values = {}
        preloads = any(entry.preload for entry in spec.models)
        for position, entry in enumerate(spec.models):
            values[f"models[{entry.name}].preload"] = entry.preload if preloads else position == 0
            for name, value in _of_model(entry, spec, runtime).items():
                values[f"models[{entry.name}].{name}"] = value
    values.update(_of_service(spec, runtime))
    return values


def lifecycle(service: InferenceService, runtime: Runtime) -> dict[str, Any]:
    """The values that only the target acts on, by path; a change of one restarts nothing.

    What the runtime does render from (a router's `rollout.drainTimeout`) is in `settings` instead.
    """
    values = _read(service.spec, (f for f in LIFECYCLE_FIELDS if f not in runtime.fields))
    measured = _read(service.spec, BENCHMARK_FIELDS)
    return values | {path: v for path, v in measured.items() if v != _BENCHMARK_DEFAULTS[path]}


def pod_settings(service: InferenceService) -> dict[str, Any]:
    """The values that only pods are made from, by path. `devices` is not among them: it is one of
    `settings` where the runtime knows it."""
    values = _read(service.spec, POD_FIELDS) | {"image": service.spec.image}
    values["imagePullSecrets"] = [secret.name for secret in service.spec.image_pull_secrets]
    return values


def scale(service: InferenceService) -> dict[str, Any]:
    """The number of pods and their Service's settings, by path: a change replaces no pod."""
    values = _read(service.spec, SCALE_FIELDS)
    scaling = service.spec.autoscaling
    values["autoscaling"] = scaling.model_dump(mode="json", by_alias=True) if scaling else None
    return values


def ignored_fields(service: InferenceService, runtime: Runtime) -> tuple[str, ...]:
    """Fields that the document sets and that have no effect under this runtime, by path."""
    given = service.spec.model_fields_set
    names = _attributes(InferenceServiceSpec)
    unused = PROCESS_FIELDS - runtime.fields
    return tuple(f"spec.{name}" for name in sorted(unused) if names[name] in given)


def _of_model(entry: ModelSettings, spec: InferenceServiceSpec, runtime: Runtime) -> dict[str, Any]:
    names = [name for name in _MODEL_DEFAULTS if name in runtime.fields]
    stated = _read(spec, names)
    if entry is not spec:
        stated |= {name: own for name, own in _read(entry, names).items() if own is not None}
    values = {n: _MODEL_DEFAULTS[n] if value is None else value for n, value in stated.items()}
    if "extraArgs" in runtime.fields:
        own = () if entry is spec else entry.extra_args
        values["extraArgs"] = [*spec.extra_args, *own]
    return values


def _of_service(spec: InferenceServiceSpec, runtime: Runtime) -> dict[str, Any]:
    simple = ("flashAttention", "promptCache", "jinja", "sleepIdle", "devices")
    values = _read(spec, (f for f in (*simple, *LIFECYCLE_FIELDS) if f in runtime.fields))
    if "router" in runtime.fields:
        values["router.resident"] = spec.router.resident
    if "env" in runtime.fields:
        values |= {f"env.{variable.name}": variable.value for variable in spec.env}
    if "runtimeOptions" in runtime.fields:
        given = spec.runtime_options
        values |= _options(runtime.options, given) if given else _no_options(runtime.options)
    return values


def _options(kind: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    dumped = kind.model_validate(given).model_dump(mode="json", by_alias=True)
    return {f"runtimeOptions.{name}": value for name, value in dumped.items()}


@functools.cache
def _no_options(kind: type[BaseModel]) -> dict[str, Any]:
    """What most services have. Never changed by those who read it."""
    return _options(kind, {})


def _read(part: BaseModel, paths: Iterable[str]) -> dict[str, Any]:
    """The values of fields by their camelCase paths."""
    return {path: read(part) for path, read in _readers(type(part), tuple(paths))}


@functools.cache
def _readers(
    part: type[BaseModel], paths: tuple[str, ...]
) -> tuple[tuple[str, Callable[[BaseModel], object]], ...]:
    """Each path with what reads it off such a part. Kept, as `_attributes` is."""
    return tuple((path, _reader(part, path)) for path in paths)


def _reader(part: type[BaseModel], path: str) -> Callable[[BaseModel], object]:
    attributes = []
    for name in path.split("."):
        attributes.append(_attributes(part)[name])
        inner = part.model_fields[attributes[-1]].annotation
        part = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else part
    return operator.attrgetter(".".join(attributes))


@functools.cache
def _attributes(part: type[BaseModel]) -> Mapping[str, str]:
    """camelCase name -> attribute. Kept: building it was most of the time of a large plan."""
    return {field.alias or key: key for key, field in part.model_fields.items()}


_BENCHMARK_DEFAULTS = _read(InferenceServiceSpec.model_construct(), BENCHMARK_FIELDS)
