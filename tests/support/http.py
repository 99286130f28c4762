"""A web server on loopback that serves one file (or several), and misbehaves on request.

    with FileServer(data) as server:
        server.cut_after = 1000           # the next answers end early
        ... server.url ...
        assert server.ranges == [None, "bytes=1000-"]

Switches may be turned while it runs.
"""

from __future__ import annotations

import os
import re
import socket
import socketserver
import ssl
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.serving import Serving

_CHUNK = 1 << 16


class FileServer(Serving):
    """Answers every path below /files/ with `data`, or with what `files` holds for the path, and
    others with 404."""

    def __init__(
        self, data: bytes, *, host: str = "127.0.0.1", tls: tuple[Path, Path] | None = None
    ) -> None:
        self.data = data
        self.files: dict[str, bytes] = {}  # by path, /files/... ; others are `data`
        self.cut_paths: dict[str, int] = {}  # as cut_after, for one path each
        self.etag: str | None = '"v1"'
        self.last_modified: str | None = None
        self.honours_ranges = True
        self.part_status = 206  # of a range; ModelScope's servers answer 200
        self.states_length = True  # Content-Length; without it the end of the connection is the end
        self.cut_after: int | None = None  # bytes of a body, then the connection is closed
        self.resets = False  # a cut is a reset of the connection
        self.redirect_to: str | None = None
        self.status: int | None = None
        self.told: dict[str, str] = {}  # headers in the place of the true ones
        self.extra_length = 0  # Content-Length promises that much more
        self.go_on = threading.Event()  # cleared: a body stops after its first chunk
        self.go_on.set()
        self.stop_after = 0  # bytes of a body that come before that all the same
        self.stop_paths: dict[str, int] = {}  # as stop_after, for one path each
        self.pace_s = 0.0  # pause after each chunk of 64 KiB
        self.requests: list[str] = []  # paths
        self.ranges: list[str | None] = []
        self.headers: list[dict[str, str]] = []
        super().__init__(ThreadingHTTPServer((host, 0), _handler(self)))
        self._scheme = "http" if tls is None else "https"
        if tls is not None:  # a certificate and its key
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/files/model.gguf"

    def let_go(self) -> None:
        self.go_on.set()


class OneLineServer(socketserver.ThreadingTCPServer):
    """Answers whatever it is asked with one line, which need not be one of HTTP."""

    daemon_threads = True

    def __init__(self, line: str) -> None:
        self.line = line
        super().__init__(("127.0.0.1", 0), _OneLine)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/files/model.gguf"

    def server_close(self) -> None:
        self.shutdown()
        super().server_close()


class _OneLine(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, OneLineServer)
        self.rfile.readline()
        self.wfile.write(f"{self.server.line}\r\n\r\n".encode())


def _handler(server: FileServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.requests.append(self.path)
            server.ranges.append(self.headers["Range"])
            server.headers.append(dict(self.headers.items()))
            if server.redirect_to is not None:
                self._head(302, {"Location": server.redirect_to, "Content-Length": "0"})
            elif server.status is not None:
                self._head(server.status, {"Content-Length": "0"})
            elif not self.path.startswith("/files/"):
                self._head(404, {"Content-Length": "0"})
            else:
                self._file()

        def _file(self) -> None:
            path = self.path.partition("?")[0]
            data = server.files.get(path, server.data)
            total = len(data)
            start, end = self._range(total)
            headers = {"ETag": server.etag, "Last-Modified": server.last_modified}
            if start is not None and start >= total:
                self._head(416, headers | {"Content-Range": f"bytes */{total}"})
                return
            body = data[start or 0 : end]
            if server.states_length:
                headers["Content-Length"] = str(len(body) + server.extra_length)
            if start is not None:
                headers["Content-Range"] = f"bytes {start}-{end - 1}/{total}"
            self._head(200 if start is None else server.part_status, headers | server.told)
            cut_after = server.cut_paths.get(path, server.cut_after)
            self._body(body[:cut_after], server.stop_paths.get(path, server.stop_after))
            if server.resets and cut_after is not None:
                self._reset()

        def _range(self, total: int) -> tuple[int | None, int]:
            """The first byte that is asked for, None for all of them, and the end."""
            match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")
            known = self.headers["If-Range"]
            if not match or not server.honours_ranges:
                return None, total
            if known and known not in (server.etag, server.last_modified):
                return None, total
            return int(match[1]), min(int(match[2]) + 1, total) if match[2] else total

        def _head(self, status: int, headers: dict[str, str | None]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()

        def _body(self, body: bytes, stop_after: int) -> None:
            try:
                for at in range(0, len(body), _CHUNK):
                    sent = self.wfile.write(body[at : at + _CHUNK])
                    if at + sent >= stop_after:
                        server.go_on.wait()
                    time.sleep(server.pace_s)
            except ConnectionError:  # the client has seen enough
                self.close_connection = True

        def _reset(self) -> None:
            """Closed with nothing to wait for, a socket sends RST instead of FIN."""
            at_once = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            self.close_connection = True
            os.close(self.connection.detach())  # before the server's shutdown says FIN

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler
