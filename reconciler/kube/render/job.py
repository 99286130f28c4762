"""The Jobs that bring models into a claim, one a model, while the pods wait for them. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.kube.objects import Manifest
from reconciler.kube.render.containers import every_pod
from reconciler.kube.render.fetching import distinct_models, fetch
from reconciler.kube.render.labels import FETCH, metadata, pod_labels
from reconciler.kube.render.scheduling import onto_pool
from reconciler.kube.render.storage import models_volume
from reconciler.kube.render.subject import Subject
from reconciler.placement.names import with_suffix
from reconciler.workload import ModelFile, digest

_DIGITS = 10  # of the hash of what it does
# The program itself tries again and goes on where it was; this many containers, with at most five
# minutes between two, are days. A Job that gave up would be tried by nobody.
_RESTARTS = 1000


def jobs(subject: Subject) -> tuple[Manifest, ...]:
    """None where the pods fetch for themselves. A finished one stays, so that nothing makes it
    again: there is no `ttlSecondsAfterFinished`."""
    if not subject.fetches_by_job:
        return ()
    return tuple(_job(subject, model) for model in distinct_models(subject))


def _job(subject: Subject, model: ModelFile) -> Manifest:
    """A Job cannot be changed: its name has the hash of everything that is in it."""
    spec: dict[str, Any] = {
        "backoffLimit": _RESTARTS,
        "template": {
            "metadata": {"labels": pod_labels(subject.placed, FETCH)},
            "spec": {
                "restartPolicy": "OnFailure",
                **every_pod(subject),
                **onto_pool(subject),
                "containers": [fetch(subject, model)],
                "volumes": [models_volume(subject), {"name": "tmp", "emptyDir": {}}],
            },
        },
    }
    name = with_suffix(subject.name, f"fetch-{digest(spec)[:_DIGITS]}")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(subject.placed, name),
        "spec": spec,
    }
