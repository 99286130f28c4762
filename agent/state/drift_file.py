"""What is known of every process's drift, on disk: it outlives the agent, and shows from outside.

It is nothing to act on: an agent checks for itself. A disk that takes no more costs the date when
something was first seen, nothing else.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.state.directory import StateDir
from reconciler.atomic import atomic_write
from reconciler.core.observation import Drift, DriftKind
from reconciler.ownfile import glance, read_or_move

Known = Mapping[str, tuple[int, tuple[Drift, ...]]]
"""A service's label -> its process then, and how that drifted."""


def drift_file(state: StateDir) -> Path:
    return state.desired / "drift.json"


def read_drifts(file: Path, *, is_owner: bool = False) -> Known:
    """Return the drifts that were written last; none if the file is missing or damaged. The owner
    moves a damaged file aside."""
    read = read_or_move if is_owner else glance
    return read(file, _known) or {}


def write_drifts(file: Path, known: Known) -> None:
    """Only what drifted, so that there is nothing to write as long as all is as it should be."""
    entries = {
        label: {
            "pid": pid,
            "drifts": [{"kind": d.kind, "message": d.message, "since": d.since} for d in drifts],
        }
        for label, (pid, drifts) in sorted(known.items())
        if drifts
    }
    with contextlib.suppress(OSError):
        if entries or file.exists():
            atomic_write(file, json.dumps(entries, indent=1).encode())


def _known(read: Mapping[str, Any]) -> Known:
    return {
        str(label): (int(entry["pid"]), tuple(_drift(d) for d in entry["drifts"]))
        for label, entry in read.items()
    }


def _drift(entry: Mapping[str, Any]) -> Drift:
    return Drift(DriftKind(entry["kind"]), str(entry["message"]), float(entry["since"]))
