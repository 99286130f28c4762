"""The API key that clients of this machine's models send, where its FleetNode says `expose: key`.

One file for all services, made at first need. A process gets it by its environment at its start,
and a copy lies in its service's directory: a client of that process sends what it was started
with, also after the file was changed. It is nowhere else: no argument, record, digest or log.
"""

from __future__ import annotations

import errno
import os
import secrets
import string
from pathlib import Path

from agent.state.writable import why_unwritable
from reconciler.api.errors import StateError, error_text
from reconciler.atomic import atomic_write

KEY_FILE = "api-key"
"""What the copy in a service's directory is called."""

_BYTES = 32
# llama.cpp takes a comma for the end of one key and the beginning of the next.
_SENDABLE = frozenset(string.ascii_letters + string.digits + string.punctuation) - {","}


def node_key(file: Path) -> str:
    """The key in the file; a new one where the file is not there. StateError where it is not a key,
    or everybody may read it."""
    try:
        if not file.exists():
            atomic_write(file, f"{secrets.token_urlsafe(_BYTES)}\n".encode())
    except OSError as error:
        raise _unusable(file, error.strerror) from error
    return _read(file)


def why_unusable(file: Path) -> str | None:
    """Why `node_key` would give none, without making one; None: it would give one."""
    try:
        if file.exists():
            _read(file)
        elif not file.parent.is_dir():
            return str(_unusable(file, os.strerror(errno.ENOENT)))
        elif why := why_unwritable(file.parent):
            return str(_unusable(file, why))
    except (OSError, StateError) as error:
        return error_text(error)
    return None


def _read(file: Path) -> str:
    try:
        if file.stat().st_mode & 0o007:
            raise StateError(f"{file}: everybody on this machine may read it; chmod 600 it")
        key = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise _unusable(file, why) from error
    if not key or not _SENDABLE.issuperset(key):
        raise StateError(f"{file}: holds no API key: one ASCII word without commas is wanted")
    return key


def _unusable(file: Path, why: str | None) -> StateError:
    return StateError(
        f"{file}: the API key cannot be read or made: {why}; see to that, or name another file with"
        " --api-key-file"
    )


def keep_copy(place: Path, key: str) -> None:
    """For those who ask the process; readable by this user only. OSError."""
    atomic_write(place, key.encode())


def sent_key(place: str) -> str | None:
    """The key that a process was started with; None where it is gone."""
    try:
        return Path(place).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
