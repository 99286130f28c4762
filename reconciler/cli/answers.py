"""Requests to a service by OpenAI's API, and what it answers, as it comes."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from reconciler.api.errors import AgentError, error_text
from reconciler.api.plain_json import parse_json
from reconciler.http.exchange import HttpPolicy, HttpRequest, open_lines
from reconciler.runtimes.streamed import events, refusal

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef
    from reconciler.kube.client.api import ApiServer

_MOST_LINE = 1 << 20  # bytes of one event of a stream
_MOST_ANSWER = 64 << 20
_MOST_ERROR = 4096
_SILENT_S = 600.0  # a long prompt on a slow machine
_FAULTS = (OSError, http.client.HTTPException, ValueError)


class Answer(NamedTuple):
    status: int
    lines: Iterator[bytes]  # with their ends, each as it comes


Post = Callable[[str, Mapping[str, str], bytes], AbstractContextManager[Answer]]
"""Sends a body to a path of a service. Raises one of `_FAULTS`, also while the answer is read."""


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """`key` is sent with each request. Its methods raise AgentError where no answer comes, or none
    that can be used."""

    where: str  # for messages
    post: Post
    key: str | None = None

    def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer as JSON."""
        with self._answered(path, body) as lines:
            answer = parse_json(_joined(lines, _MOST_ANSWER))
            if not isinstance(answer, dict):
                raise ValueError("the answer is not a JSON object")
            return answer

    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of the answer, each as soon as it is here."""
        with self._answered(path, {**body, "stream": True}) as lines:
            yield from events(lines)

    @contextmanager
    def _answered(self, path: str, body: Mapping[str, Any]) -> Iterator[Iterator[bytes]]:
        where = f"{self.where}{path}"
        headers = {"Content-Type": "application/json", **_key_headers(self.key)}
        try:
            with self.post(path, headers, json.dumps(body).encode()) as answer:
                if answer.status in (401, 403):
                    raise AgentError(
                        f"{where} answers {answer.status}: it wants a key; give the file that holds"
                        " it with --api-key-file"
                    )
                if answer.status != 200:
                    why = refusal(_joined(answer.lines, _MOST_ERROR))
                    raise AgentError(f"{where} answers {answer.status}: {why}")
                yield answer.lines
        except _FAULTS as error:
            raise AgentError(f"{where}: {error_text(error)}") from error


def post_to(endpoint: str, silent_s: float = _SILENT_S) -> Post:
    """To what has an address from here, `http://host:port`."""

    @contextmanager
    def post(path: str, headers: Mapping[str, str], body: bytes) -> Iterator[Answer]:
        request = HttpRequest("POST", urlsplit(f"{endpoint}{path}"), headers, body)
        with open_lines(request, HttpPolicy(_MOST_LINE), idle_s=silent_s) as answer:
            yield Answer(*answer)

    return post


def post_through(api: ApiServer, service: ObjectRef, port: int) -> Post:
    """To a Service in a cluster."""
    from reconciler.kube.client.service_proxy import posted

    @contextmanager
    def post(path: str, headers: Mapping[str, str], body: bytes) -> Iterator[Answer]:
        with posted(api, service, port, path, headers, body, silent_s=_SILENT_S) as answer:
            yield Answer(*answer)

    return post


def _key_headers(key: str | None) -> dict[str, str]:
    """In both places where an engine looks: an API server between us keeps the first for itself."""
    return {"Authorization": f"Bearer {key}", "X-Api-Key": key} if key else {}


def _joined(lines: Iterator[bytes], most: int) -> bytes:
    """All of an answer, or its beginning."""
    joined = bytearray()
    for line in lines:
        joined += line
        if len(joined) >= most:
            break
    return bytes(joined[:most])
