"""The companion over HTTP: `/readyz`, `/healthz` and `/drain` for a kubelet, `/metrics`.

The standard library's server: it runs in every pod, and others take twice its memory. Every
response except that of a drain is immediate.
"""

from __future__ import annotations

import io
import logging
import socket
import sys
import threading
import time
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from agent.pod.companion import Companion
from agent.server.sampler import Sampler
from reconciler import __version__
from reconciler.api.errors import UsageError, error_text
from reconciler.http.places import ConnectionSlots

_Request = socket.socket | tuple[bytes, socket.socket]  # as socketserver has it
_log = logging.getLogger(__name__)

_MOST_AT_ONCE = 32
_REQUEST_IN_S = 5.0  # a client whose request is not whole by then is sent away
_TAKEN_IN_S = 5.0  # and one that does not read its response
_MOST_DRAINS = 24  # of those; the rest stays free for readiness


class PodServer(ThreadingHTTPServer):
    """Bound at once, to every address of the pod if no host is given; `serve_forever` responds.
    UsageError if it cannot listen there."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self, listen: tuple[str, int], companion: Companion, sampler: Sampler, node: str
    ) -> None:
        self.companion, self.sampler, self.node = companion, sampler, node
        self.drains = threading.BoundedSemaphore(_MOST_DRAINS)
        self.places = ConnectionSlots(_MOST_AT_ONCE)
        host, port = listen
        self._is_everywhere = not host and socket.has_dualstack_ipv6()
        if self._is_everywhere or ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            where = f"{host}:{port}" if host else str(port)
            raise UsageError(
                f"--listen {where}: cannot be listened on: {error_text(error)}"
            ) from error

    def server_bind(self) -> None:
        if self._is_everywhere:  # a kubelet asks by the address that the pod has
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)  # HTTPServer's own asks the DNS for our name

    def verify_request(self, request: _Request, client_address: tuple[object, ...]) -> bool:
        """Refuse clients beyond a limit, first those that send nothing."""
        assert isinstance(request, socket.socket)
        return self.places.take(request, client_address)

    def handle_error(self, request: _Request, client_address: object) -> None:
        """A client that went away is not an error."""
        if not isinstance(sys.exception(), OSError):
            _log.exception("bug in an answer")


class _Handler(BaseHTTPRequestHandler):
    server: PodServer
    server_version, sys_version = f"fleet-agent/{__version__}", ""

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Hurried(self.connection, _REQUEST_IN_S))

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        self.connection.settimeout(_TAKEN_IN_S)
        self.server.places.answering(self.client_address)
        return is_whole

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/readyz":
                readiness = self.server.companion.readiness()
                text = "ready" if readiness.ready else f"{readiness.reason}: {readiness.message}"
                self._answer(HTTPStatus.OK if readiness.ready else _UNAVAILABLE, text)
            case "/healthz":
                alive = self.server.companion.is_alive
                self._answer(HTTPStatus.OK if alive else _UNAVAILABLE, "ok" if alive else "stopped")
            case "/drain":
                self._drain()
            case "/metrics":
                self._metrics()
            case _:
                there = "there is /readyz, /healthz, /drain and /metrics"
                self._answer(HTTPStatus.NOT_FOUND, there)

    def do_POST(self) -> None:
        if self.path.partition("?")[0] == "/drain":
            self._drain()
        else:
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "only /drain takes a POST")

    def _drain(self) -> None:
        """A kubelet's preStop hook is a GET."""
        if not self.server.drains.acquire(blocking=False):
            self._answer(HTTPStatus.TOO_MANY_REQUESTS, "too many wait for the same drain")
            return
        try:
            text = self.server.companion.drain()
        finally:
            self.server.drains.release()
        self._answer(HTTPStatus.OK, text)

    def _metrics(self) -> None:
        from agent.pod.metrics import collect  # 1.3 MiB, if anybody scrapes
        from reconciler.metrics.exposition import exposition

        own = self.server
        collected = partial(collect, own.node, own.companion, own.sampler)
        body, content_type = exposition(collected, self.headers.get("Accept", ""))
        self._send(HTTPStatus.OK, body, content_type)

    def _answer(self, status: HTTPStatus, text: str) -> None:
        self._send(status, f"{text}\n".encode(errors="replace"), "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A kubelet probes every few seconds: changes are logged elsewhere."""


class _Hurried(io.RawIOBase):
    """The input of a connection, with one deadline for all of it."""

    def __init__(self, connection: socket.socket, within_s: float) -> None:
        self._connection, self._deadline = connection, time.monotonic() + within_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # all it is given
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


_UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE
