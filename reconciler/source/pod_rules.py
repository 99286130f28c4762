"""Rules about the pods of a service beside those of the API server: where its volumes may be, and
one number of a disruption budget. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, Any

from reconciler.api.claim_source import on_claim
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.model import Model
from reconciler.api.pod_parts import OWN_VOLUMES
from reconciler.api.problem import Finding

if TYPE_CHECKING:
    from reconciler.api.meta import Resource
    from reconciler.source.declared import DeclaredObjects


def claims_of_models(declared: DeclaredObjects) -> Iterator[Finding]:
    """Each volume with which a service's pods could write into a claim that has models."""
    mounting = [s for s in declared.services if any(map(_claim_of, s.spec.extra_volumes))]
    with_models = _claims_with_models(declared) if mounting else {}
    for service in mounting:
        for i, volume in enumerate(service.spec.extra_volumes):
            name = _claim_of(volume)
            whose = with_models.get((service.metadata.namespace, name))
            if whose is None or _is_read_only(service, volume):
                continue
            where = f"spec.extraVolumes[{i}].persistentVolumeClaim.claimName"
            message = (
                f"claim {name} has the models of {whose}, and these pods could write there;"
                " write `readOnly: true` beside claimName, or use another claim"
            )
            yield Finding("VolumeRefused", service.ref, where, message)


def _claims_with_models(declared: DeclaredObjects) -> Mapping[tuple[str, str], str]:
    """(namespace, claim) -> whose models are there."""
    whose: dict[tuple[str, str], str] = {}
    for thing in declared.objects.values():
        for part, _, _ in thing.parts if type(thing) is Model else ():
            if place := on_claim(part.spec.source):
                whose.setdefault((thing.metadata.namespace, place.claim), thing.ref.label)
    for service in declared.services:
        if name := service.spec.model_cache.claim_name:
            whose[service.metadata.namespace, name] = service.ref.label
    return whose


def _claim_of(volume: Mapping[str, Any]) -> str:
    """The claim that a volume is; empty: it is none."""
    claim = volume.get("persistentVolumeClaim")
    return str(claim.get("claimName") or "") if isinstance(claim, dict) else ""


def _is_read_only(service: InferenceService, volume: Mapping[str, Any]) -> bool:
    mounts = [m for m in service.spec.extra_volume_mounts if m["name"] == volume["name"]]
    return bool(volume["persistentVolumeClaim"].get("readOnly")) or all(
        mount.get("readOnly") for mount in mounts
    )


def one_cache(thing: Resource) -> Iterator[Finding]:
    """One names a claim to use, the other declines any."""
    if type(thing) is InferenceService:
        cache = thing.spec.model_cache
        if cache.claim_name and cache.persistence == "Ephemeral":
            message = "persistence Ephemeral keeps no models; remove it, or claimName"
            yield Finding("Schema", thing.ref, "spec.modelCache.persistence", message)


def volumes_in_place(thing: Resource) -> Iterator[Finding]:
    """Names and paths that are taken, and mounts of volumes that are not there."""
    if type(thing) is not InferenceService:
        return
    names: set[str] = set()
    for i, volume in enumerate(thing.spec.extra_volumes):
        name, where = volume["name"], f"spec.extraVolumes[{i}].name"
        if name in OWN_VOLUMES or name in names:
            whose = "one of every pod" if name in OWN_VOLUMES else "listed twice"
            yield Finding("VolumeRefused", thing.ref, where, f'"{name}" is {whose}; rename it')
        names.add(name)
    for i, mount in enumerate(thing.spec.extra_volume_mounts):
        where = f"spec.extraVolumeMounts[{i}]"
        if mount["name"] not in names:
            message = f'no volume "{mount["name"]}" in spec.extraVolumes; add it'
            yield Finding("VolumeRefused", thing.ref, f"{where}.name", message)
        if message := _in_the_way(mount["mountPath"]):
            yield Finding("VolumeRefused", thing.ref, f"{where}.mountPath", message)


def one_budget(thing: Resource) -> Iterator[Finding]:
    """Kubernetes takes one of the two numbers."""
    if type(thing) is InferenceService and len(thing.spec.pod_disruption_budget) > 1:
        message = "maxUnavailable or minAvailable, and not both; remove one of them"
        yield Finding("Schema", thing.ref, "spec.podDisruptionBudget", message)


def _in_the_way(path: str) -> str:
    """Why a volume cannot be mounted there; empty: it can."""
    asked = PurePosixPath(normpath(path))
    if not asked.is_absolute():
        return "not a path from the root; write one, such as /data"
    for own in map(PurePosixPath, OWN_VOLUMES.values()):
        if asked.is_relative_to(own) or own.is_relative_to(asked):
            return f"{own} is a volume of every pod; mount it elsewhere"
    return ""
