"""Wait for the world, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], bool], what: str = "", *, timeout_s: float = 30.0) -> None:
    """Return as soon as the condition holds. AssertionError with `what`: it did not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what or condition}"
        time.sleep(0.005)
