"""What the engines of a service's pods write, as their API server hands it on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from reconciler.kube.client.errors import Unreachable
from reconciler.kube.kinds import SERVED_KINDS
from reconciler.kube.objects import SERVICE_LABEL
from reconciler.kube.render.containers import ENGINE
from reconciler.kube.render.labels import is_benchmark

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.client.transport import Stream
    from reconciler.kube.objects import Manifest

_POD = SERVED_KINDS["", "Pod"]
_SILENT_S = 24 * 3600.0  # an engine that nobody asks writes nothing
_OF_THE_END = ("tailLines", "sinceSeconds")


class EngineLogs:
    """The logs of a service's pods in one cluster. `query` is of Kubernetes' own GET .../log."""

    def __init__(self, api: ApiServer, ref: ObjectRef, query: Mapping[str, str]) -> None:
        self._api, self._ref, self._query = api, ref, query
        self._seen: set[str] = set()  # containers; one that starts again is another

    def logs(self) -> Mapping[str, PodLog]:
        """By the names of the pods that are there. Raises ClusterError."""
        return {name: self._log(name, self._query) for name, _ in self._containers()}

    def begun(self) -> Mapping[str, PodLog]:
        """Those whose engine has begun since the last call: the first call takes them from their
        ends, any other whole. Raises ClusterError."""
        query = self._query
        if self._seen:
            query = {key: value for key, value in query.items() if key not in _OF_THE_END}
        new = {n: c for n, c in self._containers() if c is not None and c not in self._seen}
        self._seen.update(new.values())
        return {name: self._log(name, query) for name in new}

    def _containers(self) -> list[tuple[str, str | None]]:
        """Each pod's name, and the id of its engine's container; None: it has not begun."""
        selector = f"{SERVICE_LABEL}={self._ref.name}"
        pods = self._api.list(_POD, selector=selector, namespace=self._ref.namespace).items
        return sorted(
            (pod["metadata"]["name"], _engine_of(pod)) for pod in pods if not is_benchmark(pod)
        )

    def _log(self, name: str, query: Mapping[str, str]) -> PodLog:
        return PodLog(self._api, self._ref.namespace, name, query)


def _engine_of(pod: Manifest) -> str | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ids = (each.get("containerID") for each in statuses if each.get("name") == ENGINE)
    return next(ids, None) or None


class PodLog:
    """The log of one pod's engine."""

    def __init__(self, api: ApiServer, namespace: str, name: str, query: Mapping[str, str]) -> None:
        self._api = api
        self._path = f"{_POD.path(quote(namespace, safe=''), quote(name, safe=''))}/log"
        self._what = f"read the log of pod {namespace}/{name}"
        self._query = {"container": ENGINE, **query}
        self._stream: Stream | None = None

    def parts(self, ended: threading.Event) -> Iterator[list[bytes]]:
        """Lines as they come, until the log ends, or `close` ends it. Raises ClusterError."""
        self._stream = stream = self._api.stream(self._path, self._query, what=self._what)
        try:
            while not ended.is_set() and (lines := stream.lines(_SILENT_S)):
                yield lines
            if stream.rest:
                yield [stream.rest]
        except Unreachable:
            if not ended.is_set():
                raise
        finally:
            stream.release()

    def close(self) -> None:
        """Any thread."""
        if self._stream is not None:
            self._stream.cut()
