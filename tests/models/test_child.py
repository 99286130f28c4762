"""Client libraries in processes of their own, and what the other side may do to them."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from reconciler.models.child import ask, keeping
from tests.support.hub import Hub


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

    assert answer["error"] == "failed"
    assert "its answer is too long" in answer["message"]


@pytest.mark.e2e
def test_one_child_answers_all_questions_of_a_thread_that_has_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    files = {"config.json": b"{}"}
    with Hub({"org/a": files, "org/b": files}) as hub, keeping():
        others, children = set(psutil.Process().children()), []
        for repo, found in (
            ("org/a", ["config.json"]),
            ("org/absent", []),
            ("org/b", ["config.json"]),
        ):
            question = {"repo": repo, "revision": "main", "mirror": hub.url, "tokenFile": None}
            answer = ask("reconciler.models.hf_hub", question, threading.Event())
            assert [file["path"] for file in answer.get("files", ())] == found
            children.append(set(psutil.Process().children()) - others)

    assert children[0] == children[1] == children[2] != set()
    assert not children[0] & set(psutil.Process().children())
