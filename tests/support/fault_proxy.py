"""A proxy before an API server that misbehaves on request. Plain HTTP on loopback in, the cluster's
own TLS out, so that it can answer for the server.

    with FaultProxy(api.grant()) as proxy:
        api = proxy.api("test")           # or proxy.write_kubeconfig(path)
        proxy.throttle(3, retry_after_s=1)    # the next three requests get 429
        proxy.cut()                       # every open connection is reset, now
        proxy.swallows = True             # half-open: bytes are taken, none come back

Switches may be turned while it runs, and hold for connections that are open too.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.connection import context_of
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from tests.support.serving import Serving

_DROPPED = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})


class FaultProxy(Serving):
    """Answers as the cluster of `grant` does, until told otherwise."""

    def __init__(self, grant: Grant) -> None:
        self.latency_s = 0.0  # before each request is passed on
        self.swallows = False  # take requests, and let nothing back, watches included
        self.refuses = False  # no new connections: they are reset
        self.gone_watches = 0  # that many watches more are answered with 410
        self.page = 0  # objects in a page of a list, where it is not what was asked for
        self.gone_pages = 0  # that many pages more but the first are answered with 410
        self.forgets: set[str] = set()  # plurals: the next watch of each is answered with 410
        self.ends_watches = False  # a watch ends as soon as it has begun
        self.not_served: set[str] = set()  # plurals that are answered with 404, as without the kind
        self.lose_answers = 0  # that many writes more are passed on, and their answer is lost
        self.before: Callable[[str, str], None] | None = None  # (method, path): to act just then
        self.requests: list[tuple[str, str]] = []  # (method, path with query)
        self.resets: set[str] = set()  # plurals: who asks for them gets a reset, and no answer
        self.watches = 0  # that have begun: their head was passed on
        self.opened = 0  # connections that came, ever
        self.refused = 0  # and those that were not let in
        self._throttled = 0
        self._retry_after_s = 1.0
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._grant = grant
        super().__init__(_Server(self, grant))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def api(self, name: str = "test") -> ApiServer:
        """A client that knows the cluster by this address."""
        return ApiServer.of(name, ClusterCredentials(self.grant))

    def grant(self) -> Grant:
        return replace(self._grant, server=self.url, ca=None, certificate=None, key=None)

    def write_kubeconfig(self, path: Path, authorization: str | None = None) -> Path:
        """One context, `test`; another account by its `authorization`. kubectl sends no token by
        plain HTTP; we do, on loopback."""
        token = (authorization or self._grant.authorization or "").removeprefix("Bearer ")
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config))
        return path

    def throttle(self, requests: int, retry_after_s: float = 1.0) -> None:
        """The next requests are answered with 429."""
        with self._lock:
            self._throttled, self._retry_after_s = requests, retry_after_s

    def cut(self) -> None:
        """Reset every open connection."""
        with self._lock:
            connections = tuple(self._connections)
        for sock in connections:
            _reset(sock)

    def hang_up(self) -> None:
        """End every open connection: what was sent before arrives, which a reset may destroy."""
        with self._lock:
            connections = tuple(self._connections)
        for sock in connections:
            with contextlib.suppress(OSError):  # it has ended already
                sock.shutdown(socket.SHUT_WR)

    def count(self, method: str, part: str = "") -> int:
        """How many requests of a method came whose path has `part` in it."""
        return sum(m == method and part in path for m, path in tuple(self.requests))

    def take(self, name: str) -> bool:
        """One off a counter of faults; False: there are none left."""
        with self._lock:
            left = getattr(self, name)
            setattr(self, name, max(left - 1, 0))
            return bool(left)

    def let_go(self) -> None:
        self.refuses, self.swallows = True, False
        self.cut()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: FaultProxy, grant: Grant) -> None:
        self.proxy = proxy
        self.upstream = urlsplit(grant.server)
        self.context = context_of(grant)
        self.server_name = grant.tls_server_name
        super().__init__(("127.0.0.1", 0), _Handler)

    def verify_request(self, request: object, client_address: object) -> bool:
        assert isinstance(request, socket.socket)
        if self.proxy.refuses:
            self.proxy.refused += 1
            _reset(request)
            return False
        return True

    def handle_error(self, request: object, client_address: object) -> None:
        """Broken connections are what it is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a head and its body would come 40 ms apart
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.upstream: http.client.HTTPConnection | None = None
        with self.server.proxy._lock:
            self.server.proxy._connections.add(self.connection)
            self.server.proxy.opened += 1

    def finish(self) -> None:
        with self.server.proxy._lock:
            self.server.proxy._connections.discard(self.connection)
        if self.upstream is not None:
            self.upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        proxy.requests.append((self.command, self.path))
        if proxy.before is not None:
            proxy.before(self.command, self.path)
        time.sleep(proxy.latency_s)
        while proxy.swallows:
            time.sleep(0.01)
        is_watch = "watch=1" in self.path
        plural = self.path.partition("?")[0].rpartition("/")[2]
        if proxy.page:
            self.path = re.sub(r"limit=\d+", f"limit={proxy.page}", self.path)
        if plural in proxy.resets:
            _reset(self.connection)
            self.close_connection = True
        elif proxy.take("_throttled"):
            self._status(429, "TooManyRequests", retry_after_s=proxy._retry_after_s)
        elif is_watch and (proxy.take("gone_watches") or plural in proxy.forgets):
            proxy.forgets.discard(plural)
            self._status(410, "Expired")
        elif "continue=" in self.path and proxy.take("gone_pages"):
            self._status(410, "Expired")
        elif plural in proxy.not_served:
            self._send(404, {"Content-Type": "text/plain"}, b"404 page not found\n")
        else:
            self._pass_on(body, is_watch=is_watch)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _pass_on(self, body: bytes, *, is_watch: bool) -> None:
        with self._asked(body) as response:  # it may hold the connection alone
            if self.command != "GET" and self.server.proxy.take("lose_answers"):
                response.read()
                _reset(self.connection)
                self.close_connection = True
            else:
                self._answer(response, is_watch=is_watch)

    def _answer(self, response: http.client.HTTPResponse, *, is_watch: bool) -> None:
        proxy = self.server.proxy
        headers = {k: v for k, v in response.getheaders() if k.lower() not in _DROPPED}
        if not response.chunked:
            self._send(response.status, headers, response.read())
            return
        self._head(response.status, headers | {"Transfer-Encoding": "chunked"})
        with proxy._lock:
            proxy.watches += is_watch
        if not (is_watch and proxy.ends_watches):
            while data := response.read1(1 << 16):
                while proxy.swallows:
                    time.sleep(0.01)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def _asked(self, body: bytes) -> http.client.HTTPResponse:
        """By a connection for each of the client's, as anything in the middle would."""
        server = self.server
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _DROPPED}
        if self.upstream is None:
            host, port = server.upstream.hostname, server.upstream.port
            assert host is not None
            if server.context is None:
                self.upstream = http.client.HTTPConnection(host, port)
            else:
                self.upstream = _Upstream(host, port, context=server.context)
        try:
            self.upstream.request(self.command, self.path, body or None, headers)
            return self.upstream.getresponse()
        except OSError:  # the server behind it is away
            _reset(self.connection)
            raise

    def _status(self, code: int, reason: str, retry_after_s: float | None = None) -> None:
        said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        headers = {"Content-Type": "application/json"}
        if retry_after_s is not None:
            headers["Retry-After"] = f"{retry_after_s:g}"
        self._send(code, headers, json.dumps(said | {"reason": reason, "message": reason}).encode())

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._head(status, headers | {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


class _Upstream(http.client.HTTPSConnection):
    """One whose socket is known before it is connected: `wrap_socket` takes a connected one over,
    and leaves it open where it is reset before TLS begins."""

    def connect(self) -> None:
        context: ssl.SSLContext = self._context  # type: ignore[attr-defined]  # not in its stub
        self.sock = context.wrap_socket(socket.socket(), server_hostname=self.host)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as http.client does
        self.sock.connect((self.host, self.port))


def _reset(sock: socket.socket) -> None:
    """RST, from any thread: a connect to nowhere disconnects a TCP socket and wakes its reader,
    where close would not wake it and shutdown says FIN."""
    nowhere = struct.pack("H14x", socket.AF_UNSPEC)
    if ctypes.CDLL(None).connect(sock.fileno(), nowhere, len(nowhere)) != 0:
        with contextlib.suppress(OSError):  # a system that knows no such connect, or closed already
            sock.shutdown(socket.SHUT_RDWR)
