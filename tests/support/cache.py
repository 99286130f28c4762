"""Where the tests keep what is built or downloaded once a machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """`fleet-reconciler` in the user's cache folder; it need not exist."""
    stated = environment.get("XDG_CACHE_HOME", "")
    if Path(stated).is_absolute():
        return Path(stated) / "fleet-reconciler"
    mac = sys.platform == "darwin"
    return Path.home() / ("Library/Caches" if mac else ".cache") / "fleet-reconciler"
