"""Reads the pods of services where they add information: why a service is not ready, and whether a
removed one is gone."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.api.meta import ObjectRef
from reconciler.kube.client.errors import ClusterError, Denied
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.objects import SERVICE_LABEL, Manifest, service_of
from reconciler.kube.render.labels import is_benchmark

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer

Pods = Mapping[ObjectRef, tuple[Manifest, ...]]

_MOST_NAMED = 50  # services in one selector; beyond, all our pods are listed
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
    """One thread uses it. It remembers which services are leaving, and makes no call while there
    are none and every service is ready."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._leaving: frozenset[ObjectRef] = frozenset()

    def leave(self, refs: Iterable[ObjectRef]) -> None:
        """Register services whose pods are being removed."""
        self._leaving |= frozenset(refs)

    def find(self, troubled: Collection[ObjectRef], staying: Collection[ObjectRef]) -> PodsFound:
        """The pods of services that are not ready, and of those that leave. `staying` are wanted
        there, perhaps again."""
        self._leaving -= frozenset(staying)
        if not troubled and not self._leaving:
            return NO_PODS
        try:
            found = self._pods_of({*troubled, *self._leaving})
        except Denied as error:
            log.debug("why services are not ready is not known: %s", error)
            self._leaving = frozenset()  # no answer will come: none is awaited
            return NO_PODS
        except ClusterError as error:
            return PodsFound(left=dict.fromkeys(self._leaving, f"perhaps still there: {error}"))
        alive = {ref: _alive(found.get(ref, ())) for ref in self._leaving}
        left = {ref: _in_words(names) for ref, names in alive.items() if names}
        self._leaving = frozenset(left)
        return PodsFound({ref: pods for ref, pods in found.items() if ref in troubled}, left)

    def _pods_of(self, refs: Collection[ObjectRef]) -> Pods:
        names = sorted({ref.name for ref in refs})
        named = f"{SERVICE_LABEL} in ({','.join(names)})"
        selector = named if len(names) <= _MOST_NAMED else SERVICE_LABEL
        found: dict[ObjectRef, tuple[Manifest, ...]] = {}
        for pod in self._api.list(SERVED_KINDS["", "Pod"], selector=selector).items:
            ref = service_of(pod)
            if ref is not None and ref in refs and not is_benchmark(pod):
                found[ref] = (*found.get(ref, ()), pod)
        return found


def _alive(pods: Iterable[Manifest]) -> list[str]:
    """Pods that hold resources: finished ones, such as a Job's, only stay for their logs."""
    running = (p for p in pods if (p.get("status") or {}).get("phase") not in _ENDED)
    return sorted(pod["metadata"]["name"] for pod in running)


def _in_words(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    what = "pod" if len(names) == 1 else "pods"
    return f"still there: {what} {', '.join(names[:_MOST_SHOWN])}{more}"
