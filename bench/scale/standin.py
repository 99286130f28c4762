"""Agents that only answer, many in one process: `python -m bench.scale.standin STATES [CERT KEY]`.

STATES is a JSON file, node -> what its agent says. Each answers at /NODE/v1/state. Line by line on
stdin comes how long each answer takes, in seconds, or @FILE with other states; on stdout goes the
port, and an empty line once that is done.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_TAG = 'W/"as-it-was"'


class StandIns(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, states: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.read(states)
        self.delay_s = 0.0
        self.seen = {"asked": 0, "woken": 0, "sent": 0, "last_at": 0.0}
        self._lock = threading.Lock()

    def read(self, file: str) -> None:
        states = json.loads(Path(file).read_text())
        self.states = {node: json.dumps(state).encode() for node, state in states.items()}

    def note(self, what: str, sent: int) -> None:
        with self._lock:
            self.seen[what] += 1
            self.seen["sent"] += sent
            self.seen["last_at"] = time.monotonic()


class _Handler(BaseHTTPRequestHandler):
    server: StandIns

    def do_GET(self) -> None:
        if self.path == "/seen":
            self._answer("200 OK", json.dumps(self.server.seen).encode())
            return
        time.sleep(self.server.delay_s)
        if self.headers["If-None-Match"] == _TAG:
            sent = self._answer("304 Not Modified", b"")
        else:
            sent = self._answer("200 OK", self.server.states[self.path.split("/")[1]])
        self.server.note("asked", sent)

    def do_POST(self) -> None:
        self.server.note("woken", self._answer("202 Accepted", b""))

    def _answer(self, status: str, body: bytes) -> int:
        head = f"HTTP/1.0 {status}\r\nETag: {_TAG}\r\nContent-Length: {len(body)}\r\n\r\n"
        answer = head.encode() + body
        self.wfile.write(answer)
        return len(answer)

    def log_message(self, format: str, *args: object) -> None:
        return


def main() -> None:
    server = StandIns(sys.argv[1])
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*sys.argv[2:])
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True).start()
    print(server.server_port, flush=True)
    for line in sys.stdin:
        if line.startswith("@"):
            server.read(line[1:].strip())
        else:
            server.delay_s = float(line)
        print(flush=True)


if __name__ == "__main__":
    main()
