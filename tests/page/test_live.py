"""What keeps a page as it is now, and what many that look at it cost."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import psutil
import pytest

from reconciler.console.value import Listen
from reconciler.http.server import MOST_CONNECTIONS
from reconciler.kube.server import Serves
from reconciler.kube.server.board import Board, Role
from reconciler.kube.server.thread import OperatorServer
from tests.page.test_page import fleet_of
from tests.support.served_node import events, request
from tests.support.wait import PATIENCE_S, wait_for

_VIEWERS = 200
_ASKS = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def board() -> Board:
    return Board(lambda: Role(leads=True))


@pytest.fixture
def port(board: Board) -> Iterator[int]:
    """Where a page of 3,000 services is served."""
    large = fleet_of(nodes=300, services=3000)
    serves = Serves(Listen("127.0.0.1", 0))
    server = OperatorServer(board, lambda: large, serves, lambda: None)
    server.start()
    found = server.wait(PATIENCE_S)
    assert found is not None
    yield found
    server.close()


def test_whoever_looks_hears_of_each_pass(board: Board, port: int) -> None:
    with events(f"http://127.0.0.1:{port}") as heard:
        assert next(heard).kind == ""
        board.on_ended(0.5)

        assert next(heard).kind == "pass"


def test_viewers_of_which_half_never_read_keep_nobody_out(port: int) -> None:
    with contextlib.ExitStack() as opened:
        viewers = [
            opened.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            for _ in range(_VIEWERS)
        ]
        for viewer in viewers:
            with contextlib.suppress(OSError):  # another took its place already
                viewer.sendall(_ASKS)
        for viewer in viewers[::2]:
            with contextlib.suppress(OSError):
                viewer.recv(1 << 16)

        assert _open_at(port) <= MOST_CONNECTIONS + 1  # who was accepted before another went
        wait_for(lambda: _is_answered(port), "an answer for one more")


def _open_at(port: int) -> int:
    connections = psutil.Process().net_connections("tcp4")
    return sum(c.laddr.port == port and c.status == psutil.CONN_ESTABLISHED for c in connections)


def _is_answered(port: int) -> bool:
    try:
        return request(f"http://127.0.0.1:{port}", "GET", "/").status == 200
    except OSError:  # all places were being answered at that moment
        return False
