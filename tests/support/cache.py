"""Where the tests keep what is built or downloaded once a machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

# A test may have a home and a cache of its own; locks and builds stay where other tests find them.
_AT_START = {**os.environ, "HOME": str(Path.home())}


def cache_folder(environment: Mapping[str, str] = _AT_START) -> Path:
    """`fleet-reconciler` in the user's cache folder; it need not exist."""
    stated = environment.get("XDG_CACHE_HOME", "")
    if Path(stated).is_absolute():
        return Path(stated) / "fleet-reconciler"
    mac = sys.platform == "darwin"
    home = Path(environment.get("HOME") or _AT_START["HOME"])
    return home / ("Library/Caches" if mac else ".cache") / "fleet-reconciler"
