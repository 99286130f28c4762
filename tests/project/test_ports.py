"""Ports that tests find belong to one of them."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cache import cache_folder
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


def test_the_locks_lie_where_other_tests_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cache_folder()

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    assert cache_folder() == before
