"""Why a pod is not what it should be, from its own status. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.kube.objects import Manifest
from reconciler.kube.telling.conditions import word

_WAITS_ANYHOW = frozenset({"PodInitializing", "ContainerCreating"})  # nothing is wrong yet
_OURS = {"OOMKilled": "OutOfMemory"}  # the word that an agent has for the same
_MOST_READ = 4096  # bytes of a termination message, which Kubernetes cuts there too


@dataclass(frozen=True, slots=True)
class Trouble:
    """A CamelCase word and a line for people. A higher `weight` tells more."""

    weight: int
    reason: str
    message: str


def trouble(pods: Iterable[Manifest]) -> Trouble | None:
    """The one thing that tells most of what is wrong with some pods; None: nothing is known."""
    found = sorted(
        ((t.weight, _name(pod), t) for pod in pods for t in _of_pod(pod)),
        key=lambda f: (-f[0], f[1]),
    )
    return found[0][2] if found else None


def _of_pod(pod: Manifest) -> Iterator[Trouble]:
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("reason") == "Unschedulable":
            yield Trouble(3, "Unschedulable", str(condition.get("message", "")))
    if status.get("phase") == "Failed" and status.get("reason"):  # evicted, for instance
        yield Trouble(2, word(str(status["reason"])), str(status.get("message", "")))
    for name in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(name) or ():
            yield from _of_container(container)


def _of_container(container: Mapping[str, Any]) -> Iterator[Trouble]:
    """What its last end said tells more than that it waits to be started again."""
    name = container.get("name", "")
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        ended = state.get("terminated")
        if ended and ended.get("exitCode") != 0:
            yield _of_end(name, ended)
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason", ""))
    if reason and reason not in _WAITS_ANYHOW:
        yield Trouble(1, word(reason), f"container {name}: {waiting.get('message') or reason}")


def _of_end(name: str, ended: Mapping[str, Any]) -> Trouble:
    reason = str(ended.get("reason", "Error"))
    said = _said(str(ended.get("message", ""))[:_MOST_READ])
    if said is not None:
        return Trouble(5, *said)
    why = f"container {name} ended with exit code {ended.get('exitCode')}"
    if message := ended.get("message"):
        return Trouble(4, word(_OURS.get(reason, reason)), f"{why}: {message}")
    return Trouble(2, word(_OURS.get(reason, reason)), why)


def _said(message: str) -> tuple[str, str] | None:
    """What a program of ours leaves behind: `{"reason": ..., "message": ...}`, or
    `Reason: message`."""
    text = message.strip()
    if text.startswith("{"):
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            return None
        reason, line = told.get("reason"), told.get("message")
        return (word(reason), str(line or "")) if isinstance(reason, str) and reason else None
    reason, colon, line = text.partition(": ")
    return (reason, line) if colon and word(reason) == reason else None


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])
