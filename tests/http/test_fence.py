"""Clients that disconnect, at every web server of the programs."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reconciler.console.value import Listen
from reconciler.http.fence import Fence
from reconciler.http.thread import ServerThread
from reconciler.kube.extender.app import make_app
from reconciler.kube.extender.tally import Sources, Tally
from reconciler.kube.server import HOOK_PATH, Serves
from reconciler.kube.server.board import Board, Role
from reconciler.kube.server.thread import OperatorServer
from reconciler.loop import Wake
from tests.support.fleets import service
from tests.support.served_node import ServedNode
from tests.support.wait import PATIENCE_S, wait_for

BUG = "a bug in this program"


@contextmanager
def _agent(folder: Path) -> Iterator[int]:
    with ServedNode.open(folder, {"chat.yaml": service("chat", "tiny")}) as node:
        node.wait_ready()
        yield urlsplit(node.url).port or 0


@contextmanager
def _reconciler(folder: Path) -> Iterator[int]:
    secret = folder / "secret"
    secret.write_text("hunter2")
    board = Board(lambda: Role(True, ""))
    server = OperatorServer(
        board, lambda: None, Serves(Listen("127.0.0.1", 0), secret, None), Wake().fetch
    )
    server.start()
    try:
        yield server.wait(PATIENCE_S) or 0
    finally:
        server.close()


@contextmanager
def _extender(_: Path) -> Iterator[int]:
    with ServerThread(
        make_app(Sources(lambda: None, dict, lambda: ()), Tally()), "127.0.0.1", 0
    ) as server:
        yield server.port


# A server, and its paths that read a body from a client without a token.
SERVERS = {
    "agent": (_agent, ("/v1/wake", "/services/default/chat/ask")),
    "reconciler": (_reconciler, (HOOK_PATH,)),
    "extender": (_extender, ("/filter", "/prioritize")),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_client_that_disconnects_within_its_body_is_no_bug(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "reconciler.http.fence")
    opened: Callable[[Path], contextlib.AbstractContextManager[int]]
    opened, paths = SERVERS[name]
    with opened(tmp_path) as port:
        for path in paths:
            with socket.create_connection(("127.0.0.1", port)) as client:
                head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n"
                kind = "Content-Type: application/x-www-form-urlencoded\r\n"
                client.sendall(f"{head}{kind}\r\ntex".encode())

            left = f"POST {path}: the client has disconnected"
            wait_for(lambda left=left: left in caplog.text, left)

    assert BUG not in caplog.text
    loud = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert [text for text in loud if "POST" in text] == []


def test_a_bug_is_logged_a_few_times_however_often_a_client_meets_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: Request) -> Response:
        raise KeyError("planted")

    now = 0.0
    app = Fence(Starlette(routes=[Route("/", broken)]), lambda: now)
    with ServerThread(app, "127.0.0.1", 0) as server:

        def ask(times: int) -> int:
            before = caplog.text.count(BUG)
            for _ in range(times):
                with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as client:
                    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    while client.recv(4096):
                        pass
            return caplog.text.count(BUG) - before

        assert ask(50) == 10
        now = 90.0
        assert ask(50) == 1
    assert "planted" in caplog.text
