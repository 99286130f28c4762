"""The Jobs that fetch models into a claim, one per model, while the pods wait for them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.api.digest import digest
from reconciler.fleet.model_file import ModelFile
from reconciler.kube.objects import INPUTS_DIGEST_ANNOTATION, RENDER_DIGEST_ANNOTATION, Manifest
from reconciler.kube.render.containers import every_pod
from reconciler.kube.render.fetching import distinct_models, fetch
from reconciler.kube.render.labels import FETCH, metadata, pod_labels
from reconciler.kube.render.scheduling import onto_pool
from reconciler.kube.render.storage import models_volume
from reconciler.kube.render.subject import Subject
from reconciler.placement.images import POD_PROGRAMS
from reconciler.placement.names import with_suffix

_DIGITS = 10  # of the hash of its inputs
# The program itself retries and resumes; this many containers, with at most five minutes between
# two, are days. A Job that gave up would not be retried.
_RESTARTS = 1000


def jobs(subject: Subject) -> tuple[Manifest, ...]:
    """None if the pods fetch for themselves. A finished Job stays, so that it is not created again:
    there is no `ttlSecondsAfterFinished`."""
    if not subject.fetches_by_job:
        return ()
    return tuple(_job(subject, model) for model in distinct_models(subject))


def _job(subject: Subject, model: ModelFile) -> Manifest:
    """A Job is immutable: its name has the hash of its inputs. If only our rendering of it changed,
    there is nothing to do again."""
    container = fetch(subject, model)
    template = {
        "metadata": {"labels": pod_labels(subject.placed, FETCH)},
        "spec": {
            "restartPolicy": "OnFailure",
            **every_pod(subject),
            **onto_pool(subject),
            "containers": [container],
            "volumes": [models_volume(subject), {"name": "tmp", "emptyDir": {}}],
        },
    }
    inputs = digest(_inputs(subject, container))
    annotations = {INPUTS_DIGEST_ANNOTATION: inputs, RENDER_DIGEST_ANNOTATION: digest(template)}
    name = with_suffix(subject.name, f"fetch-{inputs[:_DIGITS]}")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(subject.placed, name, annotations),
        "spec": {"backoffLimit": _RESTARTS, "template": template},
    }


def _inputs(subject: Subject, container: Mapping[str, Any]) -> dict[str, Any]:
    """Which model from where into which claim, on which nodes, and with which account."""
    placed = subject.placed
    pool = placed.workload.pool
    return {
        "args": container["args"],
        "secrets": container.get("envFrom"),
        "claim": subject.claim,
        "pool": pool.inputs if pool else None,
        "images": dict(placed.policy.images.get(POD_PROGRAMS, {})),
        "pullSecrets": placed.workload.settings.get("imagePullSecrets"),
    }
