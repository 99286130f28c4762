"""What is read of a pod, and why it is not ready, from its own status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.api.plain_json import parse_json
from reconciler.api.reasons import api_reason
from reconciler.kube.objects import SERVICE_LABEL, Manifest
from reconciler.kube.render.labels import COMPONENT_LABEL

_WAITS_ANYHOW = frozenset({"PodInitializing", "ContainerCreating"})  # not a problem yet
_OURS = {"OOMKilled": "OutOfMemory"}  # the reason that an agent uses for the same
_MOST_READ = 4096  # bytes of a termination message, which Kubernetes cuts there too


@dataclass(frozen=True, slots=True)
class PodTrouble:
    """A CamelCase word and a line for people. A higher `weight` tells more."""

    weight: int
    reason: str
    message: str


def essentials(pod: Manifest) -> Manifest:
    """A copy with what is read of a pod, one of thousands that are kept: whose it is, and how it
    is. What it is made from (its spec, its labels for others, who wrote what) is most of it, and a
    pod that is ready has no reasons."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    conditions = _list(status.get("conditions"))[:_MOST_LISTED]
    shown = [_only(c, _CONDITION) for c in conditions if _is_news(c)]
    kept = _only(metadata, ("name", "namespace", "deletionTimestamp"))
    labels = _only(metadata.get("labels") or {}, (SERVICE_LABEL, COMPONENT_LABEL))
    owners = _list(metadata.get("ownerReferences"))[:_MOST_LISTED]
    return {
        "apiVersion": pod.get("apiVersion", "v1"),
        "kind": pod.get("kind", "Pod"),
        "metadata": kept
        | {"labels": labels, "ownerReferences": [_only(o, _OWNER) for o in owners]},
        "status": {
            **_only(status, ("phase", "reason", "message")),
            "conditions": shown,
            **({} if _is_ready(shown) else _containers(status)),
        },
    }


_CONDITION, _OWNER = ("type", "status", "reason", "message"), ("kind",)
_CONTAINERS = ("initContainerStatuses", "containerStatuses")
_MOST_LISTED = 100  # containers, conditions and owners that are looked at
_END = ("exitCode", "reason", "message")


def _is_news(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == "Ready" or condition.get("reason") == "Unschedulable"


def _is_ready(conditions: Iterable[Mapping[str, Any]]) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _containers(status: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [
            {"name": container.get("name", "")}
            | {state: _state(container.get(state)) for state in ("state", "lastState")}
            for container in _list(status.get(name))[:_MOST_LISTED]
        ]
        for name in _CONTAINERS
    }


def _state(state: Any) -> dict[str, Any]:  # noqa: ANN401 - what an API server sent
    """How a container ended, or why it waits."""
    kinds = (("terminated", _END), ("waiting", ("reason", "message")))
    return {kind: _only(state[kind], names) for kind, names in kinds if (state or {}).get(kind)}


def _only(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: _short(given[name]) for name in names if given.get(name) is not None}


def _short(value: Any) -> Any:  # noqa: ANN401 - a value of JSON
    return value[:_MOST_READ] if isinstance(value, str) else value


def _list(value: Any) -> list[Any]:  # noqa: ANN401 - a value of JSON
    return value or []


def trouble(pods: Iterable[Manifest]) -> PodTrouble | None:
    """The one thing that tells most of what is wrong with some pods; None: nothing is known."""
    troubles = sorted(
        ((t.weight, _name(pod), t) for pod in pods for t in _of_pod(pod)),
        key=lambda f: (-f[0], f[1]),
    )
    return troubles[0][2] if troubles else None


def _of_pod(pod: Manifest) -> Iterator[PodTrouble]:
    status = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("reason") == "Unschedulable":
            yield PodTrouble(3, "Unschedulable", str(condition.get("message", "")))
    if status.get("phase") == "Failed" and status.get("reason"):  # evicted, for instance
        yield PodTrouble(2, api_reason(str(status["reason"])), str(status.get("message", "")))
    for name in _CONTAINERS:
        for container in status.get(name) or ():
            yield from _of_container(container)


def _of_container(container: Mapping[str, Any]) -> Iterator[PodTrouble]:
    """What its last end said tells more than that it waits to be started again."""
    name = container.get("name", "")
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        ended = state.get("terminated")
        if ended and ended.get("exitCode") != 0:
            yield _of_end(name, ended)
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason", ""))
    if reason and reason not in _WAITS_ANYHOW:
        yield PodTrouble(
            1, api_reason(reason), f"container {name}: {waiting.get('message') or reason}"
        )


def _of_end(name: str, ended: Mapping[str, Any]) -> PodTrouble:
    reason = str(ended.get("reason", "Error"))
    last_words = _last_words(str(ended.get("message", ""))[:_MOST_READ])
    if last_words is not None:
        return PodTrouble(5, *last_words)
    why = f"container {name} ended with exit code {ended.get('exitCode')}"
    if message := ended.get("message"):
        return PodTrouble(4, api_reason(_OURS.get(reason, reason)), f"{why}: {message}")
    return PodTrouble(2, api_reason(_OURS.get(reason, reason)), why)


def _last_words(message: str) -> tuple[str, str] | None:
    """What one of our programs leaves behind: `{"reason": ..., "message": ...}`, or
    `Reason: message`."""
    text = message.strip()
    if text.startswith("{"):
        try:
            content = parse_json(text)
        except ValueError:
            return None
        reason, line = content.get("reason"), content.get("message")
        return (api_reason(reason), str(line or "")) if isinstance(reason, str) and reason else None
    reason, colon, line = text.partition(": ")
    return (reason, line) if colon and api_reason(reason) == reason else None


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])
