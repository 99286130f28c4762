"""What only some platforms can show: markers with a reason that a run ends with."""

from __future__ import annotations

import sys

import pytest

IS_LINUX = sys.platform == "linux"

sees_upgrades = pytest.mark.skipif(
    not IS_LINUX, reason="only Linux says which file a process runs, and so that it was replaced"
)

has_all_of_loopback = pytest.mark.skipif(
    not IS_LINUX, reason="only Linux is reached at every address of 127.0.0.0/8: it shows this"
)


def needs_preload(what: str) -> None:
    """In a test that puts a library before libc's."""
    if not IS_LINUX:
        pytest.skip(f"{what} by LD_PRELOAD, which only Linux has: it shows this")
