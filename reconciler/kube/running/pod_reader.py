"""Reads the pods of services where they add information: why a service is not ready, and whether a
removed one is gone."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.api.meta import ObjectRef
from reconciler.kube.client.errors import ClusterError, Denied
from reconciler.kube.objects import Manifest
from reconciler.kube.running.pod_source import Pods, PodSource

_MOST_SHOWN = 3
_ENDED = ("Succeeded", "Failed")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PodsFound:
    """`troubled` are the pods of services that are not ready; `left` is what is still there of
    services that leave, as text."""

    troubled: Pods = field(default_factory=dict)
    left: Mapping[ObjectRef, str] = field(default_factory=dict)


NO_PODS = PodsFound()


class PodReader:
    """One thread uses it. It remembers which services are leaving, and asks for nothing while there
    are none and every service is ready."""

    def __init__(self, source: PodSource) -> None:
        self._source = source
        self._leaving: frozenset[ObjectRef] = frozenset()

    def leave(self, refs: Iterable[ObjectRef]) -> None:
        """Register services whose pods are being removed."""
        self._leaving |= frozenset(refs)

    def find(
        self, fleet: str, troubled: Collection[ObjectRef], staying: Collection[ObjectRef]
    ) -> PodsFound:
        """The pods of services that are not ready, and of those that leave. `staying` are wanted
        there, perhaps again."""
        self._leaving -= frozenset(staying)
        if not troubled and not self._leaving:
            return NO_PODS
        try:
            by_service = self._source(fleet, {*troubled, *self._leaving})
        except Denied as error:
            log.debug("why services are not ready is not known: %s", error)
            self._leaving = frozenset()  # no answer will come: none is awaited
            return NO_PODS
        except ClusterError as error:
            return PodsFound(left=dict.fromkeys(self._leaving, f"perhaps still there: {error}"))
        alive = {ref: _alive(by_service.get(ref, ())) for ref in self._leaving}
        left = {ref: _names_text(names) for ref, names in alive.items() if names}
        self._leaving = frozenset(left)
        return PodsFound({ref: pods for ref, pods in by_service.items() if ref in troubled}, left)


def _alive(pods: Iterable[Manifest]) -> list[str]:
    """Pods that hold resources: finished ones, such as a Job's, only stay for their logs."""
    running = (p for p in pods if (p.get("status") or {}).get("phase") not in _ENDED)
    return sorted(pod["metadata"]["name"] for pod in running)


def _names_text(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    what = "pod" if len(names) == 1 else "pods"
    return f"still there: {what} {', '.join(names[:_MOST_SHOWN])}{more}"
