"""What stands between tests and a cluster keeps nothing of what fails."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from urllib.request import urlopen

from reconciler.kube.client.credentials import Grant
from tests.support.fault_proxy import FaultProxy

_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: close is a reset


def test_a_server_that_resets_before_tls_begins_leaves_no_socket_open() -> None:
    """The warning of a socket that nobody closed fails the test that is running: this one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        resets = threading.Thread(target=_reset_all, args=(server,), daemon=True)
        resets.start()
        with FaultProxy(Grant(f"https://127.0.0.1:{server.getsockname()[1]}")) as proxy:
            for _ in range(30):
                with contextlib.suppress(OSError), urlopen(f"{proxy.url}/version"):
                    raise AssertionError("the proxy answered for a server that is not there")
            assert proxy.count("GET") == 30
        server.shutdown(socket.SHUT_RDWR)
        resets.join()


def _reset_all(server: socket.socket) -> None:
    while True:
        try:
            came, _ = server.accept()
        except OSError:  # it was shut down
            return
        came.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        came.close()
