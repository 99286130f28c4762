"""What the reconciler answers over HTTP inside a cluster: health, metrics, and forges' calls.

Served in a thread beside the loop, from memory: a request touches no cluster, and can hold up
nothing. `/hook` wakes the loop; nothing that a caller sends is used for anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reconciler.option import Listen

HOOK_PATH = "/hook"


@dataclass(frozen=True, slots=True)
class Serves:
    """What the command line says of it. `listen` None: nothing is served."""

    listen: Listen | None = None
    secret_file: Path | None = None


NOTHING = Serves()
