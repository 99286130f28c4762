"""An entry of a service's `status.instances[]`, whoever writes it. Pure.

An agent writes one for its node, with all that a plan needs. The reconciler writes one for a pool,
which says how fast its pods write and nothing else: what runs in pods is read from the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.api.meta import API_VERSION, ObjectRef
from reconciler.kube.objects import Manifest

NODE, SPEED = "node", "tokensPerSecond"
SPEED_EVERY_S = 60.0  # for how long a speed that merely changed is not written again
_SPEED_STEP = 0.1  # relative change of a speed before it is written again
_OF_PODS = frozenset({NODE, SPEED})


def instances_status(ref: ObjectRef, entries: Iterable[Mapping[str, Any]]) -> Manifest:
    """For the status subresource; an entry that its writer leaves out is removed."""
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {"name": ref.name, "namespace": ref.namespace},
        "status": {"instances": [dict(entry) for entry in entries]},
    }


def pool_entry(pool: str, tokens_per_second: float) -> dict[str, Any]:
    """What the pods of a pool write."""
    return {NODE: pool, SPEED: tokens_per_second}


def is_of_pool(entry: Mapping[str, Any]) -> bool:
    """Whether no agent can have written it: it says nothing of how the service is."""
    return entry.keys() <= _OF_PODS


def is_other_speed(was: float | None, is_now: float | None, since_s: float) -> bool:
    """Whether a speed is worth a write; the last one was `since_s` ago. That nothing is written any
    more is said at once, and so is that it is known, or not: these last."""
    if was is None or is_now is None or is_now == 0:
        return was != is_now
    return since_s >= SPEED_EVERY_S and abs(is_now - was) > _SPEED_STEP * max(was, is_now)
