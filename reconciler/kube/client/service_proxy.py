"""Requests to a Service from outside its cluster, through the API server's own proxy.

The server takes our Authorization header for itself and passes none on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from reconciler.kube.client.answers import error_of, is_the_servers_own
from reconciler.kube.client.transport import ApiReply, ApiRequest, Stream

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef
    from reconciler.kube.client.api import ApiServer


@contextmanager
def posted(
    api: ApiServer,
    service: ObjectRef,
    port: int,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    silent_s: float,
) -> Iterator[tuple[int, Iterator[bytes]]]:
    """The status that a Service answers a POST with, and the lines of its answer as they come, each
    at most `silent_s` after the one before. Raises ClusterError, also while they are read."""
    where = f"/api/v1/namespaces/{quote(service.namespace, safe='')}/services"
    target = f"{where}/{quote(service.name, safe='')}:{port}/proxy{path}"
    request = ApiRequest("POST", target, headers, body, is_passed_on=True)
    answer = api.send(request, timeout_s=silent_s)
    if isinstance(answer, ApiReply):
        if is_the_servers_own(answer.body):
            what = f"ask Service {service.label}"
            raise error_of(
                answer.status, answer.body, answer.retry_after, what=what, cluster=api.name
            )
        yield answer.status, iter(answer.body.splitlines(keepends=True))
        return
    try:
        yield 200, _lines(answer, silent_s)
    finally:
        answer.release()


def _lines(stream: Stream, silent_s: float) -> Iterator[bytes]:
    while lines := stream.lines(silent_s):
        yield from (line + b"\n" for line in lines)
