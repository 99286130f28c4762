"""How much of the models' disk stays free: a full disk breaks more than a download."""

from __future__ import annotations

import shutil
from pathlib import Path

from reconciler.api.errors import DiskFull

# 5 % of the disk, but no more than 10 GiB, for the system and its logs
_SHARE, _MOST_BYTES = 20, 10 << 30


def keep_free_bytes(root: Path, stated: int | None) -> int:
    """The bytes to keep free on the disk of `root`: as stated, else the default."""
    if stated is not None:
        return stated
    return min(shutil.disk_usage(root).total // _SHARE, _MOST_BYTES)


def require_room(root: Path, missing: int, stated: int | None) -> None:
    """Raises DiskFull if `missing` more bytes below `root` would leave too little free space."""
    free, kept = shutil.disk_usage(root).free, keep_free_bytes(root, stated)
    if free - missing < kept:
        raise DiskFull(
            f"{missing >> 20} MiB are still to come and {free >> 20} MiB are free on the disk"
            f" of {root}, of which {kept >> 20} MiB stay free: free some space"
            " (fleet-agent store gc removes models that nothing needs)"
        )
