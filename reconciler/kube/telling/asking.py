"""The pods of services, asked for where they tell more than what made them: why one is not ready,
and whether one that was taken away is gone."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from reconciler.api.meta import ObjectRef
from reconciler.kube.apiserver.errors import ClusterError, Denied
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.objects import SERVICE_LABEL, Manifest, service_of

if TYPE_CHECKING:
    from reconciler.kube.apiserver.client import ApiServer

Pods = Mapping[ObjectRef, tuple[Manifest, ...]]

_MOST_NAMED = 50  # services in one selector; beyond, all pods of ours are listed
_MOST_SHOWN = 3
_ENDED = ("Succeeded", "Failed")

log = logging.getLogger(__name__)


class PodAsker:
    """One thread uses it. No call is made while every service is ready and none is leaving."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._leaving: frozenset[ObjectRef] = frozenset()
        self.found: Pods = {}  # of those that were asked for last
        self.left: Mapping[ObjectRef, str] = {}  # what is still there of those that leave, in words

    def leave(self, refs: Iterable[ObjectRef]) -> None:
        """Services whose pods are to go."""
        self._leaving |= frozenset(refs)

    def ask(self, troubled: Collection[ObjectRef], staying: Collection[ObjectRef]) -> None:
        """Look for the pods of services that are not ready, and of those that leave. `staying` are
        wanted there, perhaps again."""
        self._leaving -= frozenset(staying)
        self.found, self.left = {}, {}
        if not troubled and not self._leaving:
            return
        try:
            found = self._pods_of({*troubled, *self._leaving})
        except Denied as error:
            log.debug("why services are not ready is not known: %s", error)
            self._leaving = frozenset()  # no answer ever comes: nobody waits for one
            return
        except ClusterError as error:
            self.left = dict.fromkeys(self._leaving, f"perhaps still there: {error}")
            return
        self.found = {ref: pods for ref, pods in found.items() if ref in troubled}
        alive = {ref: _alive(found.get(ref, ())) for ref in self._leaving}
        self.left = {ref: _in_words(names) for ref, names in alive.items() if names}
        self._leaving = frozenset(self.left)

    def _pods_of(self, refs: Collection[ObjectRef]) -> Pods:
        names = sorted({ref.name for ref in refs})
        named = f"{SERVICE_LABEL} in ({','.join(names)})"
        selector = named if len(names) <= _MOST_NAMED else SERVICE_LABEL
        found: dict[ObjectRef, tuple[Manifest, ...]] = {}
        for pod in self._api.list(SERVED_KINDS["", "Pod"], selector=selector).items:
            ref = service_of(pod)
            if ref is not None and ref in refs:
                found[ref] = (*found.get(ref, ()), pod)
        return found


def _alive(pods: Iterable[Manifest]) -> list[str]:
    """One that ended holds nothing any more: a Job's stay for their logs."""
    running = (p for p in pods if (p.get("status") or {}).get("phase") not in _ENDED)
    return sorted(pod["metadata"]["name"] for pod in running)


def _in_words(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    what = "pod" if len(names) == 1 else "pods"
    return f"still there: {what} {', '.join(names[:_MOST_SHOWN])}{more}"
