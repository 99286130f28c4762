"""When an engine's container counts as started, alive and ready, and how it ends. Pure.

Started and alive is probed on the engine itself, readiness on the companion beside it: an engine
that responds may still serve nothing, such as a router without a loaded model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reconciler.kube.render.service import PORT_NAME
from reconciler.kube.render.subject import Subject

COMPANION_PORT = 9091
GRACE_S = 15  # after the drain: for the engine to end, and for the Service to drop the pod

_PERIOD_S = 5
_LEAST_START_S = 600
_UNKNOWN_START_S = 1800  # a model of unknown size: as long as the slowest that we expect
_READ_BYTES_PER_S = 64 * 2**20  # a slow network disk: 64 MiB/s


def probes(subject: Subject) -> dict[str, Any]:
    """The probes of the engine's container."""
    alive = {"path": subject.command.probe.path, "port": PORT_NAME}
    ready = {"path": "/readyz", "port": COMPANION_PORT}
    startup = {
        "httpGet": alive,
        "periodSeconds": _PERIOD_S,
        "timeoutSeconds": 5,
        "failureThreshold": math.ceil(start_seconds(subject) / _PERIOD_S),
    }
    # Two minutes: an engine responds late during a long prompt, and a restart would lose it.
    liveness = {"httpGet": alive, "periodSeconds": 15, "timeoutSeconds": 10, "failureThreshold": 8}
    readiness = {
        "httpGet": ready,
        "periodSeconds": _PERIOD_S,
        "timeoutSeconds": 5,
        "failureThreshold": 3,
    }
    stated = subject.placed.service.spec.probe_overrides
    return {
        "startupProbe": _overridden(startup, stated.startup or {}),
        "livenessProbe": _overridden(liveness, stated.liveness or {}),
        "readinessProbe": _overridden(readiness, _timing(stated.readiness or {})),
        "lifecycle": {"preStop": {"httpGet": {"path": "/drain", "port": COMPANION_PORT}}},
    }


def _timing(stated: Mapping[str, Any]) -> dict[str, Any]:
    """A probe without what it asks."""
    return {name: value for name, value in stated.items() if name not in _HANDLERS}


_HANDLERS = frozenset({"exec", "grpc", "httpGet", "tcpSocket"})


def _overridden(ours: dict[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """A probe asks in one way."""
    handlers = _HANDLERS if _HANDLERS & stated.keys() else ()
    return {**{name: value for name, value in ours.items() if name not in handlers}, **stated}


def start_seconds(subject: Subject) -> int:
    """How long the engine may take to start: the time to read its weights from a slow disk, and at
    least ten minutes."""
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
