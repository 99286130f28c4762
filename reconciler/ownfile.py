"""Files that we wrote ourselves, read like everybody else's: a disk, a person or another version
may have put anything there. It costs what the file would have told, and never the program.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from reconciler.api.errors import StateError, error_text
from reconciler.api.plain_json import parse_json

_MOST_BYTES = 64 << 20  # the largest is the record of what was applied, of thousands of documents
_log = logging.getLogger(__name__)
T = TypeVar("T")

WRONG = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What a function may raise that makes something of values which nobody has checked."""


class Damaged(ValueError):
    """A file is there and is not what we write; in words."""


class Unreadable(Damaged):
    """The disk does not give it; another time it may."""


def read_json(path: Path, parse: Callable[[Any], T]) -> T | None:
    """What `parse` makes of a file; None where there is none. Raises Damaged."""
    return read_bytes(path, lambda data: parse(parse_json(data)))


def read_bytes(path: Path, parse: Callable[[bytes], T]) -> T | None:
    """The same of a file that is no JSON."""
    try:
        return parse(_content(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreadable(error_text(error, path)) from error
    except WRONG as error:
        raise Damaged(_error_text(error)) from error


def read_or_move(
    path: Path, parse: Callable[[Any], T], *, lost: str = "", keep: bool = False
) -> T | None:
    """The same, for who owns the file: a damaged one is moved aside, and that is said with what is
    `lost` with it. None: there is none any more. `keep`: one that the disk does not give now is
    not forgotten. Raises StateError for it."""
    return read_bytes_or_move(path, lambda data: parse(parse_json(data)), lost=lost, keep=keep)


def read_bytes_or_move(
    path: Path, parse: Callable[[bytes], T], *, lost: str = "", keep: bool = False
) -> T | None:
    """The same of a file that is no JSON."""
    try:
        return read_bytes(path, parse)
    except Unreadable as error:
        if keep:
            raise StateError(f"{path}: cannot be read: {error}") from error
        move_aside(path, str(error), lost)
        return None
    except Damaged as error:
        move_aside(path, str(error), lost)
        return None


def glance(path: Path, parse: Callable[[Any], T]) -> T | None:
    """The same, for who only looks: a damaged file counts as none, and stays."""
    try:
        return read_json(path, parse)
    except Damaged:
        return None


def move_aside(path: Path, why: str, lost: str = "") -> None:
    """Move what cannot be read out of the way, and log it with what is `lost` with it."""
    _log.warning("%s", moved_aside(path, why, lost))


def moved_aside(path: Path, why: str, lost: str = "") -> str:
    """The same, for who says it in another way. Of one name the newest is kept."""
    aside = path.with_name(f"{path.name}.corrupt")
    try:
        path.replace(aside)
    except OSError as error:
        where = f"it stays where it is ({error_text(error, path)})"
    else:
        where = f"moved to {aside.name}"
    return f"{path} cannot be read ({why}): {where}" + (f"; {lost}" if lost else "")


def _content(path: Path) -> bytes:
    """The content of a plain file: another kind, as a pipe, would have us wait for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a file")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES >> 20} MiB")
    return data


def _error_text(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    return " ".join(str(error).split())[:200] or type(error).__name__
