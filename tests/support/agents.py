"""A node's agent as seen from the network, which answers as it is told and misbehaves on request.

    with FakeAgent("mac") as agent:
        agent.state = {...}                  # what GET /v1/state answers
        agent.behaves = drips                # or hangs, redirects, ...
        ... agent.url ...
        assert agent.wakes == 1

Real sockets, and TLS with a certificate of its own on request. tests/agents/test_contract.py holds
it against the real agent.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from reconciler.core.observation import Instance, RevisionState, TargetState
from reconciler.report.nodestate import node_state
from tests.support.serving import Serving

Behaviour = Callable[["FakeAgent", BaseHTTPRequestHandler], None]


def said_by(
    node: str,
    *instances: Instance,
    revision: RevisionState | None = None,
    at: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """What an agent of this node answers, as JSON values."""
    seen_at = time.time() if at is None else at
    state = TargetState(f"node/{node}", True, seen_at, revision=revision, **more.pop("state", {}))
    answer = node_state(state, instances, agent_version="0.4.0", **more)
    return dict(answer.model_dump(mode="json", by_alias=True, exclude_none=True))


class FakeAgent(Serving):
    """Answers on a free port of loopback; `certificate` (cert file, key file) makes it https."""

    def __init__(
        self, node: str, certificate: tuple[Path, Path] | None = None, port: int = 0
    ) -> None:
        self.state: dict[str, Any] = said_by(node)
        self.token: str | None = None  # demanded, where there is one
        self.behaves: Behaviour = answers
        self.on_wake: Callable[[], None] = lambda: None
        self.etag: str | None = None
        self.requests: list[tuple[str, str]] = []  # method, path
        self.tokens: list[str | None] = []
        self.unchanged = 0  # answers that said no more than "as before"
        self.ended = threading.Event()
        self._scheme = "https" if certificate else "http"
        super().__init__(ThreadingHTTPServer(("127.0.0.1", port), _handler(self)))
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def wakes(self) -> int:
        return self.requests.count(("POST", "/v1/wake"))

    def let_go(self) -> None:
        self.ended.set()


def answers(agent: FakeAgent, request: BaseHTTPRequestHandler) -> None:
    """As an agent should."""
    send_json(request, agent.state, agent.etag)


def hangs(agent: FakeAgent, request: BaseHTTPRequestHandler) -> None:
    """Takes the request and says nothing."""
    agent.ended.wait()


def drips(agent: FakeAgent, request: BaseHTTPRequestHandler) -> None:
    """A byte of the headers every now and then, for ever."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not agent.ended.wait(0.05):
        request.wfile.write(b"x")
        request.wfile.flush()


def drips_body(agent: FakeAgent, request: BaseHTTPRequestHandler) -> None:
    """Headers at once, and then a byte every now and then."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not agent.ended.wait(0.05):
        request.wfile.write(b" ")
        request.wfile.flush()


def sends(body: bytes, status: int = 200, length: int | None = None, **headers: str) -> Behaviour:
    """Answers with exactly these bytes; `length` is what it promises, where that is a lie."""

    def send(_: FakeAgent, request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body) if length is None else length))
        request.end_headers()
        request.wfile.write(body)

    return send


def floods(agent: FakeAgent, request: BaseHTTPRequestHandler) -> None:
    """A body without an end."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not agent.ended.is_set():
        request.wfile.write(b" " * (1 << 20))


def send_json(request: BaseHTTPRequestHandler, value: Any, etag: str | None = None) -> None:
    body = json.dumps(value).encode()
    request.send_response(200)
    request.send_header("Content-Type", "application/json")
    if etag is not None:
        request.send_header("ETag", etag)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


def _handler(agent: FakeAgent) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            agent.requests.append((self.command, self.path))
            authorization = self.headers["Authorization"]
            agent.tokens.append(authorization)
            # A client that has heard enough hangs up.
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                if agent.token is not None and authorization != f"Bearer {agent.token}":
                    sends(b"", 401)(agent, self)
                elif (self.command, self.path) == ("POST", "/v1/wake") and agent.behaves is answers:
                    agent.on_wake()
                    sends(b"", 202)(agent, self)
                elif self.path != "/v1/state" and agent.behaves is answers:
                    sends(b"", 405 if self.path == "/v1/wake" else 404)(agent, self)
                elif agent.etag is not None and self.headers["If-None-Match"] == agent.etag:
                    agent.unchanged += 1
                    self.send_response(304)
                    self.end_headers()
                else:
                    agent.behaves(agent, self)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler
