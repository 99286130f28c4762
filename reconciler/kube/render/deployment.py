"""The Deployment: an engine as pods, and how one generation replaces another. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reconciler.api.digest import digest
from reconciler.fleet.workload import Workload
from reconciler.kube.json_text import to_json
from reconciler.kube.objects import (
    INPUTS_ANNOTATION,
    INPUTS_DIGEST_ANNOTATION,
    NEEDS_ANNOTATION,
    RENDER_DIGEST_ANNOTATION,
    Manifest,
)
from reconciler.kube.render.containers import companion, engine, every_pod
from reconciler.kube.render.fetching import models_first
from reconciler.kube.render.labels import SERVER, metadata, pod_labels, selector
from reconciler.kube.render.probes import grace_seconds, start_seconds
from reconciler.kube.render.scheduling import onto_pool, spread
from reconciler.kube.render.storage import volumes
from reconciler.kube.render.subject import Subject

_DOWNLOAD_S = 3600  # what a download may take before the rollout is reported as stuck
_OLD_GENERATIONS = 3


def deployment(subject: Subject) -> Manifest:
    """The pod template carries the digest of its inputs; the Deployment that of all inputs, and of
    the whole template as this version renders it."""
    workload, template = subject.placed.workload, _template(subject)
    annotations = {
        INPUTS_DIGEST_ANNOTATION: workload.inputs_digest,
        INPUTS_ANNOTATION: _json(workload.inputs),
        RENDER_DIGEST_ANNOTATION: digest(_unsized(subject, template)),
        **_needs(workload),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(subject.placed, subject.name, annotations),
        "spec": {
            **_replicas(subject),
            "selector": {"matchLabels": selector(subject.placed)},
            "strategy": _strategy(subject),
            "revisionHistoryLimit": _OLD_GENERATIONS,
            "progressDeadlineSeconds": start_seconds(subject) + _DOWNLOAD_S,
            "template": template,
        },
    }


def _unsized(subject: Subject, template: dict[str, Any]) -> dict[str, Any]:
    """The template without the memory that only the header of a remote model says."""
    workload = subject.placed.workload
    if not (workload.has_remote_models and workload.needs):
        return template
    placed = replace(subject.placed, workload=replace(workload, needs=()))
    unsized = engine(replace(subject, placed=placed))
    return {**template, "spec": {**template["spec"], "containers": [unsized]}}


def _needs(workload: Workload) -> dict[str, str]:
    """Bytes a pod takes of each pool and the pool's budget; empty if unknown."""
    by_pool = {need.pool: [need.bytes, need.budget_bytes] for need in workload.needs}
    return {NEEDS_ANNOTATION: _json(by_pool)} if by_pool else {}


def _json(value: object) -> str:
    """The value of an annotation."""
    return to_json(value, sort=True).decode()


def _replicas(subject: Subject) -> dict[str, int]:
    """Absent if an autoscaler decides. At 0 an autoscaler leaves the Deployment alone."""
    spec = subject.placed.service.spec
    if subject.placed.workload.suspended:
        return {"replicas": 0}
    return {"replicas": spec.replicas} if spec.autoscaling is None else {}


def _strategy(subject: Subject) -> dict[str, Any]:
    """The old pod goes first if it holds what the new one needs: a device, the memory of its node,
    or a claim that only one node can mount."""
    holds_claim = subject.claim is not None and not subject.fetches_by_job
    if subject.placed.workload.is_recreated or holds_claim:
        return {"type": "Recreate"}
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}


def _template(subject: Subject) -> dict[str, Any]:
    placed = subject.placed
    spec = placed.service.spec
    made: dict[str, Any] = {
        "terminationGracePeriodSeconds": grace_seconds(subject),
        **every_pod(subject),
        **onto_pool(subject),
        **spread(subject),
        "initContainers": [*models_first(subject), companion(subject)],
        "containers": [engine(subject)],
        "volumes": volumes(subject),
    }
    if spec.resource_claims:
        made["resourceClaims"] = [*spec.resource_claims]
    if spec.priority_class_name:
        made["priorityClassName"] = spec.priority_class_name
    elif spec.priority != "normal":
        made["priorityClassName"] = f"fleet-{spec.priority}"
    annotations = {INPUTS_DIGEST_ANNOTATION: placed.workload.process_digest}
    return {
        "metadata": {
            "labels": {**spec.pod_labels, **pod_labels(placed, SERVER)},
            "annotations": {**spec.pod_annotations, **annotations},
        },
        "spec": made,
    }
