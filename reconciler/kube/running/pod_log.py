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

_POD = SERVED_KINDS["", "Pod"]
_SILENT_S = 24 * 3600.0  # an engine that nobody asks writes nothing


def pod_logs(
    api: ApiServer, ref: ObjectRef, query: Mapping[str, str]
) -> tuple[tuple[str, PodLog], ...]:
    """The pods of a service by their names, each with its log. `query` is of Kubernetes' own
    GET .../log. Raises ClusterError."""
    pods = api.list(_POD, selector=f"{SERVICE_LABEL}={ref.name}", namespace=ref.namespace)
    names = sorted(pod["metadata"]["name"] for pod in pods.items if not is_benchmark(pod))
    return tuple((name, PodLog(api, ref.namespace, name, query)) for name in names)


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
