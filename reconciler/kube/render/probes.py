"""When an engine's container has started, lives and is ready, and how it ends. Pure.

Started and alive is what the engine itself says. Ready is what the companion beside it says: an
engine that answers may still serve nothing, as a router without a loaded model does.
"""

from __future__ import annotations

import math
from typing import Any

from reconciler.kube.render.service import PORT_NAME
from reconciler.kube.render.subject import Subject

COMPANION_PORT = 9091
GRACE_S = 15  # beyond the drain: for the engine to end, and for the Service to forget the pod

_PERIOD_S = 5
_LEAST_START_S = 600
_UNKNOWN_START_S = 1800  # a model of unknown size: as long as the slowest that we reckon with
_READ_BYTES_PER_S = 64 * 2**20  # a slow network disk: 64 MiB/s


def probes(subject: Subject) -> dict[str, Any]:
    """Of the engine's container."""
    alive = {"path": subject.command.probe.path, "port": PORT_NAME}
    return {
        "startupProbe": {
            "httpGet": alive,
            "periodSeconds": _PERIOD_S,
            "timeoutSeconds": 5,
            "failureThreshold": math.ceil(start_seconds(subject) / _PERIOD_S),
        },
        # Two minutes: an engine at work on a long prompt answers late, and a restart costs it all.
        "livenessProbe": {
            "httpGet": alive,
            "periodSeconds": 15,
            "timeoutSeconds": 10,
            "failureThreshold": 8,
        },
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": COMPANION_PORT},
            "periodSeconds": _PERIOD_S,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "lifecycle": {"preStop": {"httpGet": {"path": "/drain", "port": COMPANION_PORT}}},
    }


def start_seconds(subject: Subject) -> int:
    """How long the engine may take from its start until it answers: what reading its weights from a
    slow disk takes, and ten minutes at least."""
    memory = subject.placed.workload.memory
    sizes = [model.size_bytes for model in subject.placed.workload.models]
    known = [size for size in sizes if size is not None]
    if memory is not None:
        known.append(memory.weights_bytes)
    if not known:
        return _UNKNOWN_START_S
    return max(_LEAST_START_S, math.ceil(2 * max(known) / _READ_BYTES_PER_S))


def grace_seconds(subject: Subject) -> int:
    return math.ceil(subject.placed.workload.drain_timeout_s) + GRACE_S
