"""Client libraries in processes of their own, and what the other side may do to them."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reconciler.models.child import ask


class Endless(BaseHTTPRequestHandler):
    """Lists files for ever."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        entries = b'{"rfilename": "a"},' * 50_000
        with contextlib.suppress(OSError):
            self.wfile.write(b'{"id": "a/b", "siblings": [')
            while True:
                self.wfile.write(entries)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.mark.e2e
def test_an_answer_without_an_end_does_not_take_the_machines_memory() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,)).start()
    mirror = f"http://127.0.0.1:{server.server_port}"
    question = {"repo": "a/b", "revision": "main", "mirror": mirror, "tokenFile": None}

    answer = ask("reconciler.models.hf_hub", question, threading.Event())
    server.shutdown()
    server.server_close()

    assert answer["error"] == "unreachable"
    assert "its answer is too long" in answer["message"]
