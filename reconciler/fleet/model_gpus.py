"""What a Model says of devices, put into the services that leave it open. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from reconciler.api.inferenceservice import InferenceService, InferenceServiceSpec
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model import Model, ModelGpu, ModelSharding
from reconciler.memo import Memo, Same

_SPLIT_MODES: Mapping[str, str] = MappingProxyType({"tensor": "row", "pipeline": "layer"})

FilledServices = Memo[ObjectRef, InferenceService]


def with_model_gpus(
    objects: Mapping[ObjectRef, Resource], made: FilledServices
) -> dict[ObjectRef, Resource]:
    """The objects, each service with `devices` and `gpuLayers` of its Models where it states none.
    `made` is what came out before: of the same objects the same comes out again."""
    filled = dict(objects)
    speaking = {
        ref: thing.spec.hardware.gpu
        for ref, thing in objects.items()
        if type(thing) is Model and thing.spec.hardware.gpu.model_fields_set
    }
    for ref, thing in objects.items() if speaking else ():
        if type(thing) is InferenceService:
            gpus = tuple(speaking[named.ref] for named in thing.references if named.ref in speaking)
            if gpus:
                filled[ref] = made.find(ref, (Same(thing), gpus), partial(_filled, thing, gpus))
    made.keep(filled)
    return filled


def _filled(service: InferenceService, gpus: tuple[ModelGpu, ...]) -> InferenceService:
    update = _update(service.spec, gpus)
    return service.model_copy(update={"spec": service.spec.model_copy(update=update)})


def _update(spec: InferenceServiceSpec, gpus: tuple[ModelGpu, ...]) -> dict[str, Any]:
    """The most devices that one of its Models wants; layers only where there is one Model."""
    counts: list[int] = [gpu.count for gpu in gpus if gpu.count is not None]
    most = max(counts, default=None)
    layers = gpus[0].layers if len(gpus) == 1 and spec.models is None else None
    is_open = "devices" not in spec.model_fields_set
    update: dict[str, Any] = {}
    if most and is_open:
        update["devices"] = most
    if spec.gpu_layers is None and most == 0 and is_open:
        update["gpu_layers"] = 0
    elif spec.gpu_layers is None and layers is not None and layers >= 0:
        update["gpu_layers"] = layers
    wanted = most if most is not None and is_open else spec.devices
    devices = update.get("devices", spec.devices)
    if len(gpus) == 1 and spec.models is None and devices > 1:
        update |= _sharded(spec, gpus[0].sharding, devices)
    return update | _of_pods(spec, gpus, update.get("devices", wanted))


def _sharded(spec: InferenceServiceSpec, stated: ModelSharding, devices: int) -> dict[str, Any]:
    """How its devices share it. Shares for another number of devices are for another service."""
    update: dict[str, Any] = {}
    if spec.split_mode is None and stated.strategy is not None:
        update["split_mode"] = _SPLIT_MODES.get(stated.strategy, stated.strategy)
    if not spec.tensor_split and len(stated.shares) == devices:
        update["tensor_split"] = stated.shares
    return update


def _of_pods(
    spec: InferenceServiceSpec, gpus: tuple[ModelGpu, ...], devices: int
) -> dict[str, Any]:
    """By what name its pods ask for them, and what they tolerate."""
    update: dict[str, Any] = {}
    name = next((gpu.resource_name for gpu in gpus if gpu.resource_name), None)
    stated = spec.resources
    if name and devices and name not in {*stated.limits, *stated.requests}:
        limits = {**stated.limits, name: devices}
        update["resources"] = stated.model_copy(update={"limits": limits})
    keys = sorted({gpu.toleration_key for gpu in gpus if gpu.toleration_key})
    if keys:
        more = ({"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys)
        update["tolerations"] = (*spec.tolerations, *more)
    claims = [claim for gpu in gpus for claim in gpu.resource_claims]
    if claims and not spec.resource_claims:
        update["resource_claims"] = tuple(claims)
    return update
