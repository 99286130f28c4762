"""A token reaches the server that it is for, and is written or printed nowhere."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from tests.support.reconciler import Fleet, Machine
from tests.support.repos import run_git

pytestmark = pytest.mark.e2e
TOKEN = "glpat-5up3rS3cr3tT0k3n"


class _Gate:
    """Lets in who has the token, while it is open."""

    def __init__(self) -> None:
        self.is_open = True
        self.accepted = 0

    def lets_in(self, header: str | None) -> bool:
        word = (header or "").partition(" ")[2]
        _, _, password = base64.b64decode(word).decode().partition(":")
        if not self.is_open or password != TOKEN:
            return False
        self.accepted += 1
        return True


class _Handler(SimpleHTTPRequestHandler):
    """git's oldest protocol over HTTP: the files of a bare repository, behind a login."""

    def __init__(self, *args: object, gate: _Gate, directory: str) -> None:
        self._gate = gate
        super().__init__(*args, directory=directory)  # type: ignore[arg-type]  # passed through

    def do_GET(self) -> None:
        if self._gate.lets_in(self.headers["Authorization"]):
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    gate: _Gate


@contextmanager
def _served(remote: Path) -> Iterator[Served]:
    run_git(remote, "update-server-info")
    gate = _Gate()
    handler = partial(_Handler, gate=gate, directory=str(remote.parent))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_port}/{remote.name}", gate)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_git_token_is_used_and_appears_nowhere(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    token_file = machine.root / "token"
    token_file.write_text(TOKEN + "\n")

    with _served(fleet.repo.remote) as served:
        running = machine.start(
            *("-C", served.url, "--local", "--git-token-file", str(token_file)),
            env={"FLEET_DEBUG": "1"},
        )
        chat = machine.wait_ready("chat")
        assert served.gate.accepted > 0
        environment = psutil.Process(chat.pid).environ()
        served.gate.is_open = False
        running.wait_said("unreachable since 20")
        done = machine.reconcile(
            *("-C", served.url, "--dry-run", "--local", "--git-token-file", str(token_file))
        )
        assert done.code == 1
    assert running.end() == 0

    said = machine.everything_said() + done.out + done.err + repr(environment)
    token_file.unlink()
    files = {p: p.read_bytes() for p in machine.root.rglob("*") if p.is_file()}
    assert any(path.is_relative_to(machine.state) for path in files)
    for form in _forms():
        assert form not in said
        assert [path for path, data in files.items() if form.encode() in data] == []


def _forms() -> tuple[str, ...]:
    """The token, and what becomes of it in a header."""
    return (
        TOKEN,
        *(base64.b64encode(f"{u}:{TOKEN}".encode()).decode() for u in ("x-access-token", "")),
    )


def test_a_password_in_an_address_is_refused_and_not_repeated(machine: Machine) -> None:
    done = machine.reconcile("-C", f"https://ada:{TOKEN}@git.example.com/fleet.git", "--dry-run")

    assert done.code == 1
    assert "--git-token-file" in done.err
    assert TOKEN not in done.out + done.err
