"""The name of the FleetNode that this machine is, kept for when the fleet cannot tell."""

from __future__ import annotations

import re
from pathlib import Path

from reconciler.atomic import atomic_write
from reconciler.ownfile import Damaged, move_aside, read_bytes

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def remembered_node(root: Path) -> str | None:
    """The node that this machine was the last time; None before the first, and where that cannot
    be read."""
    try:
        return read_bytes(node_file(root), _name)
    except Damaged:
        return None


def note_node(root: Path, name: str) -> None:
    """OSError where the disk does not take it; where it is noted already, a full one does not
    matter."""
    try:
        if read_bytes(node_file(root), _name) == name:
            return
    except Damaged as error:
        move_aside(node_file(root), str(error), f"this machine is {name}")
    atomic_write(node_file(root), name.encode())


def node_file(root: Path) -> Path:
    return root / "desired" / "node"


def _name(data: bytes) -> str:
    name = data.decode()
    if not _NAME.fullmatch(name):
        raise ValueError("it holds no name of a FleetNode")
    return name
