"""The one held head that a person lets in, in a note beside the record of what was applied."""

from __future__ import annotations

import contextlib
from pathlib import Path

from reconciler.api.errors import StateError, error_text
from reconciler.atomic import atomic_write


def accepted(history: Path) -> str | None:
    """The one head that a person let in beside this record of what was applied."""
    try:
        return _note(history).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def let_in(history: Path, revision: str) -> None:
    """Let exactly this head in, once; the owner of the record reads it with its next fetch.
    Raises StateError."""
    note = _note(history)
    try:
        atomic_write(note, f"{revision}\n".encode())
    except OSError as error:
        raise StateError(f"{note}: cannot be written: {error_text(error, note)}") from error


def withdraw(history: Path) -> None:
    """It was followed: another time it would have to be accepted again."""
    with contextlib.suppress(OSError):
        _note(history).unlink()


def _note(history: Path) -> Path:
    return history.with_name("accepted")
