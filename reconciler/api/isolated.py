"""One door for work on documents: an unexpected exception costs the document that causes it, and no
other. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import TypeVar

from reconciler.api.errors import ReconcilerError

X = TypeVar("X", bound=Hashable)
T = TypeVar("T")

INTERNAL = "InternalError"  # the rule
_MOST = 20  # things that are left out; with more of them the whole fails
_MOST_TEXT = 200  # characters of an exception's own words

show_traceback: Callable[[Exception], object] | None = None
"""Called with each exception that costs a document. The command line sets it for FLEET_DEBUG."""


@dataclass(frozen=True, slots=True)
class Crash:
    """Work that raised an unexpected exception. `message` is what a problem reports of it."""

    message: str


def attempt(work: Callable[[], T], *, quiet: bool = False) -> T | Crash:
    """Return the result of `work`, or the exception as a value. Raises expected errors: those that
    people can act on, and those of the machine."""
    try:
        return work()
    except (ReconcilerError, OSError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - the one place where a document's bug ends
        if show_traceback is not None and not quiet:
            show_traceback(error)
        return Crash(_message(error))


def isolated(
    things: Sequence[X], work: Callable[[Sequence[X]], T]
) -> tuple[T, dict[X, str]] | Crash:
    """Return `work(things)` without the things for which it fails, and these with a message each.
    Crash: it fails without any of them, or with too many.

    `work` takes any part of `things`, in their order. Put things that others refer to first: of
    several that fail together, the last one is left out.
    """
    left_out: dict[X, str] = {}
    while isinstance(done := attempt(partial(work, things)), Crash):
        if len(left_out) == _MOST or _fails(work, ()):
            return done
        at = _first_failing(things, work)
        left_out[things[at]] = done.message
        things = [*things[:at], *things[at + 1 :]]
    return done, left_out


def _first_failing(things: Sequence[X], work: Callable[[Sequence[X]], T]) -> int:
    """Return the index of the thing with which `work` begins to fail."""
    good, bad = 0, len(things)
    while bad - good > 1:
        half = (good + bad) // 2
        if _fails(work, things[:half]):
            bad = half
        else:
            good = half
    return bad - 1


def _fails(work: Callable[[Sequence[X]], T], things: Sequence[X]) -> bool:
    return isinstance(attempt(partial(work, things), quiet=True), Crash)


def _message(error: Exception) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    code = f" ({PurePath(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno})" if at else ""
    words = "".join(c if c.isprintable() else " " for c in str(error))[:_MOST_TEXT]
    return (
        f"a bug in this program{code}: {type(error).__name__}: {words}; report it with this"
        " document. Change or remove the document meanwhile"
    )
