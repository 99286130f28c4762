"""A git server over http on loopback: the real `git http-backend` behind a small CGI server.

with git_server(repo.remote.parent) as server:
    url = server.url("fleet.git")

    python -m tests.support.git_http FOLDER --address 172.18.0.1

serves a folder over https there until it is ended. It prints the URL; clients must trust
FOLDER/tls/cert.pem.
"""

from __future__ import annotations

import argparse
import base64
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.certificates import self_signed
from tests.support.ports import own_port
from tests.support.repos import git_env


@dataclass
class GitServer:
    """Serves the bare repositories in a folder, and counts who asked for their refs, and the bytes
    of HTTP. `certificate`: over https, with the files of a certificate and of its key. `token`: who
    has no token is asked for one, and who has another is refused (`no-rights`: 403)."""

    root: Path
    port: int = field(default_factory=own_port)
    address: str = "127.0.0.1"
    certificate: tuple[Path, Path] | None = None
    token: str | None = None
    asked: list[str] = field(default_factory=list)  # paths, as they came
    received_bytes: int = 0
    sent_bytes: int = 0
    _server: ThreadingHTTPServer | None = None

    def url(self, name: str) -> str:
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{self.address}:{self.port}/{name}"

    def start(self) -> None:
        """Begin, or begin again on the same port."""
        self._server = _Server((self.address, self.port), _Handler)
        self._server.owner = self
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
            # a client that hangs in its handshake must not keep the others from being accepted
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
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
    raw_requestline: bytes

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _serve(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        owner = self.server.owner
        owner.asked.append(parts.path)
        if refused := self._refusal():
            self.send_response(refused)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        owner.received_bytes += len(self.raw_requestline) + len(self.headers.as_bytes()) + len(body)
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            check=True,
            env=git_env()
            | {
                "GIT_PROJECT_ROOT": str(owner.root),
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
        # over TLS, where the connection ends is no proof that the answer does
        shown = [*fields, ["Content-Length", str(len(content))]]
        names = [f"{name}: {value}\r\n" for name, value in shown if name != "Status"]
        answer = f"HTTP/1.0 {status}\r\n{''.join(names)}\r\n".encode() + content
        owner.sent_bytes += len(answer)
        self.wfile.write(answer)

    def _refusal(self) -> int | None:
        login = self.headers.get("Authorization", "").partition(" ")[2]
        given = base64.b64decode(login).decode().partition(":")[2]
        if self.server.owner.token in (None, given):
            return None
        return 403 if given == "no-rights" else 401

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.git_http")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--address", default="127.0.0.1")
    args = parser.parse_args()
    certificate = self_signed(args.folder / "tls", args.address)
    server = GitServer(args.folder, address=args.address, certificate=certificate)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server.start()
    print(server.url(""), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
