"""A service's fields as flat values by their paths: what its runtime renders from, and what only a
target acts on. Pure."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from reconciler.api.inferenceservice import InferenceService, InferenceServiceSpec
from reconciler.api.model_settings import ModelSettings
from reconciler.api.service_parts import Autoscaling
from reconciler.runtimes.fields import (
    DEFAULTS,
    ENTRY_FIELDS,
    FIELDS,
    LIFECYCLE_FIELDS,
    OVERRIDDEN_FIELDS,
    POD_FIELDS,
    PROCESS_FIELDS,
    SCALE_FIELDS,
    SERVICE_FIELDS,
    STATED_FIELDS,
    STATED_LIFECYCLE_FIELDS,
)
from reconciler.runtimes.runtime import Runtime


def settings(service: InferenceService, runtime: Runtime) -> dict[str, Any]:
    """The effective values that the runtime renders from, flat, by their path below `spec`.

    One model: `contextSize`, `cacheTypeK`, ... A runtime that serves many has them per model, by
    name: `models[phi4-mini].contextSize` (the entry's value, else the service's, else the default),
    and `models[NAME].preload` (without any, the first). `env.NAME` and `runtimeOptions.KEY` are
    flat too. Bytes are integers, durations seconds; None is "unset". A field that came later
    (`noted_unstated`) is left out while it has its default: who reads it uses `get`.
    `spec.runtimeOptions` must have passed validation: pydantic.ValidationError otherwise.
    """
    spec = service.spec
    if spec.models is None:
        values = _of_model(spec, spec, runtime)
    else:
        values = {}
        preloads = any(entry.preload for entry in spec.models)
        for position, entry in enumerate(spec.models):
            own = _read(entry, ENTRY_FIELDS)
            if not preloads:
                own["preload"] = position == 0
            for name, value in (own | _of_model(entry, spec, runtime)).items():
                values[f"models[{entry.name}].{name}"] = value
    values.update(_of_service(spec, runtime))
    return values


def lifecycle(service: InferenceService, runtime: Runtime) -> dict[str, Any]:
    """The values that only the target acts on, by path; a change of one restarts nothing.

    What the runtime does render from (a router's `rollout.drainTimeout`) is in `settings` instead.
    """
    values = _read(service.spec, _others(LIFECYCLE_FIELDS, runtime.fields))
    return values | _stated(_read(service.spec, STATED_LIFECYCLE_FIELDS))


def pod_settings(service: InferenceService) -> dict[str, Any]:
    """The values that only pods are made from, by path. `devices` is not among them: it is one of
    `settings` where the runtime knows it."""
    return _stated(_plain(service.spec, POD_FIELDS))


def scale(service: InferenceService) -> dict[str, Any]:
    """The number of pods and their Service's settings, by path: a change replaces no pod."""
    return _stated(_plain(service.spec, SCALE_FIELDS))


def ignored_fields(service: InferenceService, runtime: Runtime) -> tuple[str, ...]:
    """Fields that the document sets and that have no effect under this runtime, by path."""
    return _given(service, _unused(runtime.fields))


def ignored_by_agents(service: InferenceService) -> tuple[str, ...]:
    """Fields that the document sets and that have no effect on a node with an agent, by path."""
    return _given(service, _POD_ONLY)


def _stated(values: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that came later and are not stated."""
    return {path: v for path, v in values.items() if path not in _LEFT_OUT or v != _LEFT_OUT[path]}


def _given(service: InferenceService, fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    given = service.spec.model_fields_set
    return tuple([path for path, attribute in fields if attribute in given])


def _of_model(entry: ModelSettings, spec: InferenceServiceSpec, runtime: Runtime) -> dict[str, Any]:
    names = _used(OVERRIDDEN_FIELDS, runtime.fields)
    stated = _read(spec, names)
    if entry is not spec:
        stated |= {name: own for name, own in _read(entry, names).items() if own is not None}
    values = {name: DEFAULTS[name] if value is None else value for name, value in stated.items()}
    values = {
        name: [*v] if isinstance(v, tuple) else v
        for name, v in values.items()
        if name not in _LATER or v != _LATER[name]
    }
    if "extraArgs" in runtime.fields:
        own = () if entry is spec else entry.extra_args
        values["extraArgs"] = [*spec.extra_args, *own]
    return values


def _of_service(spec: InferenceServiceSpec, runtime: Runtime) -> dict[str, Any]:
    values = _stated(_plain(spec, _used(_RENDERED, runtime.fields)))
    if "runtimeOptions" in runtime.fields:
        given = spec.runtime_options
        values |= _options(runtime.options, given) if given else _no_options(runtime.options)
    return values


_RENDERED = (
    *(name for name in SERVICE_FIELDS if name != "runtimeOptions"),  # known to the runtime alone
    *LIFECYCLE_FIELDS,
)
# What a field with parts of its own becomes; any other is one plain value.
_PARTS: Mapping[str, Callable[[InferenceServiceSpec], dict[str, Any]]] = {
    "env": lambda spec: {f"env.{variable.name}": variable.value for variable in spec.env},
    "imagePullSecrets": lambda spec: {
        "imagePullSecrets": [secret.name for secret in spec.image_pull_secrets]
    },
    "autoscaling": lambda spec: {"autoscaling": spec.autoscaling and _scaling(spec.autoscaling)},
    "httpRoute": lambda spec: {"httpRoute": spec.http_route and _dumped(spec.http_route)},
    "inferencePool": lambda spec: {
        "inferencePool": spec.inference_pool and _dumped(spec.inference_pool)
    },
    "probeOverrides": lambda spec: {
        "probeOverrides": spec.probe_overrides.model_dump(mode="json", exclude_none=True)
    },
}
_WITH_PARTS = frozenset(_PARTS)


def _dumped(part: BaseModel) -> dict[str, Any]:
    return part.model_dump(mode="json", by_alias=True)


def _scaling(part: Autoscaling) -> dict[str, Any]:
    """Without what came later and is not stated, as `_stated` has it for whole fields."""
    dumped = _dumped(part)
    return dumped if part.keda else {k: v for k, v in dumped.items() if k != "keda"}


def _plain(spec: InferenceServiceSpec, paths: tuple[str, ...]) -> dict[str, Any]:
    """The values of fields as plain data."""
    read = _read(spec, _others(paths, _WITH_PARTS)).items()
    values = {path: [*v] if isinstance(v, tuple) else v for path, v in read}
    for path in _used(paths, _WITH_PARTS):
        values |= _PARTS[path](spec)
    return values


# Which fields a runtime knows is the same for every service, so that it is found once.


@functools.cache
def _used(names: tuple[str, ...], fields: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in fields)


@functools.cache
def _others(names: tuple[str, ...], fields: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in fields)


@functools.cache
def _unused(fields: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Paths of fields that a runtime with these does not know, with their attributes."""
    return _with_attributes(sorted(PROCESS_FIELDS - fields))


def _with_attributes(paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The fields of a service that these are in, each with its attribute."""
    attributes = _attributes(InferenceServiceSpec)
    names = dict.fromkeys(path.partition(".")[0] for path in paths)
    return tuple((f"spec.{name}", attributes[name]) for name in names)


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


_POD_ONLY = _with_attributes(field.path for field in FIELDS if field.purpose.pods_only)
_LATER = {name: DEFAULTS[name] for name in OVERRIDDEN_FIELDS if name in STATED_FIELDS}
_LEFT_OUT = _plain(InferenceServiceSpec.model_construct(), STATED_FIELDS)
