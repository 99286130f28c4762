"""Which sockets a port has, asked of the kernel in two ways."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack

import pytest

from agent.process.sockets import connections, listener, socket_of
from tests.support.ports import own_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has two ways")

if sys.platform == "linux":
    from agent.process.sock_diag import ESTABLISHED, LISTENS, inodes
    from agent.process.sockets import listed_inodes


def test_the_kernels_answer_is_what_its_lists_say() -> None:
    port, other = own_port(), own_port()
    with ExitStack() as held:
        server = held.enter_context(socket.create_server(("127.0.0.1", port)))
        held.enter_context(socket.create_server(("::1", port), family=socket.AF_INET6))
        held.enter_context(socket.create_server(("127.0.0.1", other)))
        for _ in range(3):
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
            held.enter_context(server.accept()[0])
        held.enter_context(socket.create_connection(("::1", port)))

        asked = {state: sorted(inodes(port, state)) for state in (LISTENS, ESTABLISHED)}
        listed = {state: sorted(listed_inodes(port, state)) for state in (LISTENS, ESTABLISHED)}

        assert asked == listed
        assert [len(found) for found in asked.values()] == [2, 4]
        assert connections(port) == 4


def test_a_port_has_another_name_when_somebody_else_listens() -> None:
    port = own_port()
    names = [socket_of(port)]
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)):
            names.append(socket_of(port))
            assert listener(port)

    assert names[0] == ""
    assert len(set(names)) == 3
    assert (socket_of(port), listener(port)) == ("", None)
