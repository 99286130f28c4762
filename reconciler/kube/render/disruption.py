"""The PodDisruptionBudget: how many pods of a service an eviction leaves. Pure."""

from __future__ import annotations

from reconciler.kube.objects import Manifest
from reconciler.kube.render.labels import metadata, selector
from reconciler.kube.render.subject import Subject


def disruption_budgets(subject: Subject) -> tuple[Manifest, ...]:
    """None where the service states none, or is suspended: it would hold a node for no pod."""
    stated = subject.placed.service.spec.pod_disruption_budget
    if not stated or subject.placed.workload.suspended:
        return ()
    return (
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(subject.placed, subject.name),
            "spec": {**stated, "selector": {"matchLabels": selector(subject.placed)}},
        },
    )
