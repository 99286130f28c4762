"""The state of a service in a cluster, and why it is not ready: the only place that decides it.
Pure.

A plan, `status`, the end of `--once` and the document's own condition all use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from reconciler.core.observation import SCALED_TO_ZERO
from reconciler.kube.objects import Manifest
from reconciler.kube.running.acceptance import starts_none
from reconciler.kube.running.pods import PodTrouble, trouble
from reconciler.kube.running.readiness import Progress, Readiness, conditions_of, readiness


@dataclass(frozen=True, slots=True)
class Outlook:
    """`reason` and `message` explain why nothing answers, both empty if something does: what was
    scaled to zero is ready all the same where something starts it again. `failed`: it will
    not become ready without a change. `models`: whether its files are there; None if unknown."""

    is_ready: bool
    reason: str = ""
    message: str = ""
    failed: bool = False
    models: Readiness | None = None


def outlook(
    deployment: Manifest,
    jobs: Iterable[Manifest],
    pods: Iterable[Manifest],
    inputs: Mapping[str, Any] = MappingProxyType({}),
    scaled_object: Manifest | None = None,
) -> Outlook:
    """From the service's objects. `pods` may be empty if they were not read; `inputs` are what it
    was rendered from; `scaled_object` is its own of KEDA's, None: there is none."""
    if wants_none(deployment):
        return replace(at_zero(inputs, scaled_object), models=models_of(jobs, ()))
    now = readiness(deployment)
    if now.is_current:
        # A ready service has its models: a Job that is gone, or that failed later, does not matter.
        return Outlook(is_ready=True, models=Readiness(Progress.CURRENT))
    pods = tuple(pod for pod in pods if _is_on_its_way(pod))
    models = models_of(jobs, pods)
    why: Readiness | PodTrouble = now
    if models is not None and models.progress is Progress.FAILED:
        why = models
    elif now.reason in _OTHERS_TELL_MORE:
        why = trouble(pods) or now
        if why is now and models is not None and not models.is_current:
            # Pods without a problem wait for their models, possibly past their deadline.
            return Outlook(False, "ModelsPending", models.message, models=models)
    failed = Progress.FAILED in (now.progress, models.progress if models else None)
    return Outlook(False, why.reason, why.message, failed, models)


def wants_none(deployment: Manifest) -> bool:
    """Whether it is to have no pods. What is left of them does not matter: Kubernetes counts none
    that end."""
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    return bool(wanted == 0) and not deployment["metadata"].get("deletionTimestamp")


def at_zero(inputs: Mapping[str, Any], scaled_object: Manifest | None) -> Outlook:
    """A service that is to have no pods. As Knative has it, it is ready if a trigger starts it
    again."""
    lifecycle = inputs.get("lifecycle")  # of an annotation, in which people can write anything
    scaling = lifecycle.get("autoscaling") if isinstance(lifecycle, Mapping) else None
    if not isinstance(scaling, Mapping) or not scaling.get("keda"):
        return Outlook(False, SCALED_TO_ZERO, f"{_BY_HAND}; {_START_IT}")
    if why := starts_none(scaled_object):
        return Outlook(
            False, SCALED_TO_ZERO, f"no pod runs, and KEDA starts none: {why}; {_START_IT}"
        )
    return Outlook(True, SCALED_TO_ZERO, _BY_TRIGGER)


_BY_TRIGGER = "no pod runs, and nothing answers, until a trigger of KEDA's asks for one"
_BY_HAND = "no pod runs: its Deployment was scaled to zero, where every autoscaler leaves it"
_START_IT = "`kubectl scale --replicas=1` starts it again"

_OTHERS_TELL_MORE = frozenset(
    {"ReplicasNotReady", "ProgressDeadlineExceeded", "NotAvailable", "OldReplicas"}
)


def _is_on_its_way(pod: Manifest) -> bool:
    """Excludes a pod that is ready, whatever its past, and an old one that is being deleted."""
    ready = conditions_of(pod.get("status") or {}).get("Ready", {})
    return ready.get("status") != "True" and not pod["metadata"].get("deletionTimestamp")


def models_of(jobs: Iterable[Manifest], pods: Iterable[Manifest]) -> Readiness | None:
    """The state of the download Jobs; None if there are none."""
    states = [readiness(job) for job in jobs]
    if not states:
        return None
    worst = min(states, key=lambda r: _WORST_FIRST.index(r.progress))
    if worst.progress is not Progress.FAILED and worst.reason != "JobRunning":
        return worst
    failure = trouble(p for p in pods if _is_of_job(p))
    return Readiness(worst.progress, failure.reason, failure.message) if failure else worst


_WORST_FIRST = (Progress.FAILED, Progress.IN_PROGRESS, Progress.TERMINATING, Progress.CURRENT)


def _is_of_job(pod: Manifest) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") == "Job" for owner in owners)
