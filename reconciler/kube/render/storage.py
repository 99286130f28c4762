"""The claim for a service's models, where the pool wants one, and the volumes of a pod. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.kube.objects import Manifest
from reconciler.kube.render.cache import mounted_by
from reconciler.kube.render.config import config_name
from reconciler.kube.render.labels import metadata
from reconciler.kube.render.quantity import canonical
from reconciler.kube.render.subject import Subject

_ACCESS_MODES = {"RWO": "ReadWriteOnce", "RWX": "ReadWriteMany"}


def claims(subject: Subject) -> tuple[Manifest, ...]:
    """One where the pool's cache is `pvc:SIZE`."""
    cache, name = subject.cache, subject.claim
    if cache.size is None or name is None:
        return ()
    spec: dict[str, Any] = {
        "accessModes": [_ACCESS_MODES[cache.mode]],
        "resources": {"requests": {"storage": canonical(cache.size)}},
    }
    if cache.storage_class:
        spec["storageClassName"] = cache.storage_class
    return (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata(subject.placed, name),
            "spec": spec,
        },
    )


def models_volume(subject: Subject) -> dict[str, Any]:
    if subject.cache.host is not None:
        # Not DirectoryOrCreate: the kubelet makes it as root, and our containers are not root.
        return {"name": "models", "hostPath": {"path": subject.cache.host, "type": "Directory"}}
    if subject.claim is None:
        return {"name": "models", "emptyDir": {}}
    return {"name": "models", "persistentVolumeClaim": {"claimName": subject.claim}}


def volumes(subject: Subject) -> list[dict[str, Any]]:
    """The volumes of a serving pod. Its root file systems are read-only: these are all it can write
    to."""
    mounted = [
        models_volume(subject),
        {"name": "workload", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        *(
            {"name": place.volume, **place.source}
            for place in mounted_by(subject.placed.workload.model_files)
        ),
    ]
    if name := config_name(subject):
        mounted.append({"name": "files", "configMap": {"name": name}})
    if subject.placed.workload.devices > 1:
        # Processes of several devices talk through it, and a container has 64 MiB of it else.
        mounted.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    stated = subject.placed.service.spec.extra_volumes
    names = {each["name"] for each in stated}
    return [*(each for each in mounted if each["name"] not in names), *stated]
