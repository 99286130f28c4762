"""A pod that measures where no pod of a service runs: the models and the engine of a serving pod,
as those are rendered, and what asks it. It ends with the measurement. Pure.

It has the lowest priority, and evicts nobody. It is not selected by the Service, so that no client
reaches it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reconciler.api.quantity import show_bytes
from reconciler.kube.benchmarks.unserved import UnservedClass
from reconciler.kube.render.containers import engine_alone, every_pod
from reconciler.kube.render.fetching import distinct_models, models_first
from reconciler.kube.render.placed import PlacedService
from reconciler.kube.render.probes import start_seconds
from reconciler.kube.render.scheduling import onto_pool
from reconciler.kube.render.storage import volumes
from reconciler.kube.render.subject import Subject
from reconciler.placement.modelcache import ModelCache

LONGEST_S = 3600  # an image that cannot be pulled, a service that is never idle
_FETCH_S = 6 * 3600  # after which a container that fetches gives up
_PRIORITY = "fleet-batch"


def starting_pod(
    subject: Subject, unserved: UnservedClass, asking: dict[str, Any]
) -> tuple[dict[str, Any], int]:
    """Its spec, and how many seconds it may take."""
    own = _with_models(subject)
    chosen = onto_pool(own)
    labels = {**chosen.get("nodeSelector", {}), **dict(unserved.labels)}
    pod = {
        **every_pod(own),
        **chosen,
        "nodeSelector": dict(sorted(labels.items())),
        "priorityClassName": _PRIORITY,
        "initContainers": [*models_first(own), engine_alone(own)],
        "containers": [asking],
        "volumes": volumes(own),
    }
    return pod, _FETCH_S + start_seconds(own) + LONGEST_S


def brought(placed: PlacedService) -> str:
    """What such a pod fetches, for people."""
    subject = Subject.of(placed)
    files = distinct_models(subject)
    sizes = [file.size_bytes for file in files if file.size_bytes is not None]
    memory = placed.workload.memory
    if len(sizes) == len(files):
        size = f"{show_bytes(sum(sizes))}"
    else:
        size = f"about {show_bytes(memory.weights_bytes)}" if memory else "the model"
    is_kept = subject.cache.host is not None or subject.fetches_by_job
    return f"{size} unless its cache has it" if is_kept else size


def _with_models(subject: Subject) -> Subject:
    """A claim that one node at a time can mount is with the pods that serve: it fetches for
    itself."""
    if subject.claim is None or subject.fetches_by_job:
        return subject
    return replace(subject, cache=ModelCache())
