"""What the reconciler answers over HTTP inside a cluster: health, metrics, forges' calls, a page.

Served in a thread beside the loop, from memory: a request touches no cluster, and can hold up
nothing. `/hook` wakes the loop; nothing that a caller sends is used for anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reconciler.console.value import Listen

HOOK_PATH = "/hook"


@dataclass(frozen=True, slots=True)
class Serves:
    """The server's options on the command line. `listen` None: nothing is served. Without a page
    token the page is for this machine alone."""

    listen: Listen | None = None
    secret_file: Path | None = None
    page_token_file: Path | None = None
