"""A git server over http on loopback: the real `git http-backend` behind a small CGI server.

with git_server(repo.remote.parent) as server:
    url = server.url("fleet.git")
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.ports import own_port
from tests.support.repos import git_env


@dataclass
class GitServer:
    """Serves the bare repositories in a folder, and counts who asked for their refs."""

    root: Path
    port: int = field(default_factory=own_port)
    asked: list[str] = field(default_factory=list)  # paths, as they came
    _server: ThreadingHTTPServer | None = None

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Begin, or begin again on the same port."""
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.owner = self
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """The network is gone: the port refuses."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@contextmanager
def git_server(root: Path) -> Iterator[GitServer]:
    server = GitServer(root)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: GitServer


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _serve(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        self.server.owner.asked.append(parts.path)
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            check=True,
            env=git_env()
            | {
                "GIT_PROJECT_ROOT": str(self.server.owner.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH": os.environ["PATH"],
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REMOTE_ADDR": "127.0.0.1",
            },
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((value for name, value in fields if name == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass
