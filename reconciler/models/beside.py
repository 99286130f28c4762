"""Models that came with the fleet, in a folder beside its bundle: what is there needs no network.

models/sha256/<digest>/...   as the `models` folder of an agent's store has it: it can be copied
models/<name>                a file or folder with the last name of the source's path
"""

from __future__ import annotations

import re
from pathlib import Path

_REVISION = re.compile(r"@[^/@]*$")  # hf://org/repo/file.gguf@main


def find_beside(folder: Path, source: str, digest: str | None) -> str | None:
    """The file:// source of a model's copy, or None. Its content is verified like any download: by
    the digest, if one is known."""
    for path in (_by_digest(folder, digest), _by_name(folder, source)):
        if path is not None and path.exists():
            return path.absolute().as_uri() + ("/" if path.is_dir() else "")
    return None


def _by_digest(folder: Path, digest: str | None) -> Path | None:
    try:
        entries = sorted(p for p in (folder / "sha256" / digest).iterdir()) if digest else []
    except OSError:
        return None
    # Of a split model the first part: its name contains how many there are.
    return next((path for path in entries if not path.name.startswith(".")), None)


def _by_name(folder: Path, source: str) -> Path | None:
    path = _REVISION.sub("", source.partition("://")[2].partition("?")[0])
    name = path.rstrip("/").rpartition("/")[2]
    return folder / name if name not in ("", ".", "..") and name.isprintable() else None
