"""Ports that tests find belong to one of them."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.support.ports import own_port, take

_HOLD = "from tests.support.ports import own_port; print(own_port(), flush=True); input()"


def test_a_port_of_another_run_of_tests_is_ours_only_after_it() -> None:
    command = [sys.executable, "-c", _HOLD]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())

        assert not take(port)
        other.communicate("\n")

    assert take(port)


def test_a_port_where_somebody_listens_is_passed_over() -> None:
    port = own_port()

    with socket.create_server(("127.0.0.1", port)):
        assert not take(port)
    assert not take(port)  # ours already
