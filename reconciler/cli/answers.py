"""Requests to a service by OpenAI's API, and what it answers, as it comes."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from reconciler.api.errors import AgentError, error_text
from reconciler.api.plain_json import parse_json

_MOST_LINE = 1 << 20  # bytes of one event of a stream
_MOST_ANSWER = 64 << 20
_MOST_ERROR = 4096
_SILENT_S = 600.0  # a long prompt on a slow machine
_FAULTS = (OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """`key` is sent with each request. Its methods raise AgentError where no answer comes, or none
    that can be used."""

    endpoint: str  # http://host:port
    key: str | None = None

    def ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer as JSON."""
        with self._answered(path, body) as response:
            answer = parse_json(response.read(_MOST_ANSWER))
            if not isinstance(answer, dict):
                raise ValueError("the answer is not a JSON object")
            return answer

    def stream(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of the answer, each as soon as it is here."""
        with self._answered(path, {**body, "stream": True}) as response:
            while line := response.readline(_MOST_LINE):
                text = line.strip()
                if not text.startswith(b"data:") or text.endswith(b"[DONE]"):
                    continue
                event = parse_json(text.removeprefix(b"data:"))
                if not isinstance(event, dict):
                    continue
                if error := event.get("error"):
                    raise ValueError(_message(error))
                yield event

    @contextmanager
    def _answered(self, path: str, body: Mapping[str, Any]) -> Iterator[http.client.HTTPResponse]:
        where = f"{self.endpoint}{path}"
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        url = urlsplit(self.endpoint)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=_SILENT_S)
        try:
            connection.request("POST", path, json.dumps(body).encode(), headers)
            response = connection.getresponse()
            if response.status in (401, 403):
                raise AgentError(
                    f"{where} answers {response.status}: it wants the key of its node; give the"
                    " file that holds it with --api-key-file"
                )
            if response.status != 200:
                raise AgentError(
                    f"{where} answers {response.status}: {_refusal(response.read(_MOST_ERROR))}"
                )
            yield response
        except _FAULTS as error:
            raise AgentError(f"{where}: {error_text(error)}") from error
        finally:
            connection.close()


def _refusal(body: bytes) -> str:
    """What an error of OpenAI's API says, or the beginning of any other."""
    try:
        answer = parse_json(body)
    except ValueError:
        answer = None
    error = answer.get("error") if isinstance(answer, dict) else None
    return _message(error) if error else " ".join(body.decode(errors="replace").split())


def _message(error: object) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)
