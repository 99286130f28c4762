"""Wait for the world, with a deadline."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

# Of every deadline whose point is not to be short: ten times what the longest step of any test
# takes on a machine that does nothing else, so that a busy one breaks none.
PATIENCE_S = 120.0
CLOSE_FILE = "close.jsonl"  # in the folder of a whole run: what came close to a deadline
RUN_FOLDER = "FLEET_TESTS_RUN"  # the variable that names this folder
_SHORTEST_S, _LONGEST_S = 0.01, 0.5  # between two questions


def wait_for(
    condition: Callable[[], bool], what: object = "", *, timeout_s: float = PATIENCE_S
) -> None:
    """Return as soon as the condition holds. AssertionError with `what` as it is then: it did not
    in time."""
    began = asked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now - began < timeout_s, f"not within {timeout_s:g} s: {what or condition}"
        # Others want to run, too: what costs much to ask, such as a whole process, is asked seldom,
        # and what takes long is seen a twentieth of that later.
        pause_s = max(_SHORTEST_S, 5 * (now - asked), (now - began) / 20)
        time.sleep(min(pause_s, _LONGEST_S))
        asked = time.monotonic()
    _note(time.monotonic() - began, timeout_s, str(what))


def _note(took_s: float, timeout_s: float, what: str) -> None:
    """A whole run says at its end what came close to a deadline."""
    folder = os.environ.get(RUN_FOLDER)
    if folder and timeout_s >= PATIENCE_S and took_s * 10 > timeout_s:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        row = {"test": test, "what": what, "took_s": took_s, "timeout_s": timeout_s}
        with Path(folder, CLOSE_FILE).open("a") as file:
            file.write(json.dumps(row) + "\n")
