"""The edge of both programs: exit codes, and how each way that a run may end is reported."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from reconciler.api.errors import InvalidFleet, ReconcilerError, UsageError, error_text
from reconciler.report.terminal import Style, hanging, printable

if TYPE_CHECKING:
    from reconciler.report.status_text import StatusStyle


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    FAILED = 1
    CHANGES = 2
    BLOCKED = 3
    USAGE = 64
    BUG = 70
    INTERRUPTED = 130


def guarded(run: Callable[[], int], program: str) -> int:
    """Turn whatever a run ends in into an exit code, with words and without a traceback."""
    _prepare_streams()
    # Else pydantic looks for plugins in every installed package, and runs those in each validation.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if os.environ.get("FLEET_DEBUG"):
        import traceback

        from reconciler.api import isolated

        isolated.show_traceback = traceback.print_exception
    try:
        return run()
    except UsageError as error:
        tell(f"{program}: {printable(str(error))}")
        return Exit.USAGE
    except InvalidFleet as error:
        tell_error(error)
        return Exit.FAILED
    except ReconcilerError as error:
        from reconciler.source.address import redact_url

        tell(f"{program}: {printable(redact_url(str(error)))}")
        return Exit.FAILED
    except KeyboardInterrupt:
        _after_the_echo()
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong, and nothing may be written any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except OSError as error:
        print(f"{program}: {printable(error_text(error))}", file=sys.stderr)
        return Exit.FAILED
    except MemoryError:
        print(f"{program}: there is not enough memory for this; free some", file=sys.stderr)
        return Exit.FAILED
    except Exception as error:  # the outermost edge: reported as a bug in this program
        if os.environ.get("FLEET_DEBUG"):
            raise
        print(
            f"{program}: a bug in this program: {type(error).__name__}: {printable(str(error))}\n"
            "Please report it; with FLEET_DEBUG=1 set, the same command prints where it happened.",
            file=sys.stderr,
        )
        return Exit.BUG


def _prepare_streams() -> None:
    """What the locale encodes is written as it is, the rest escaped. A closed stream is not a
    bug."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for good
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - for good


def tell(text: str) -> None:
    """Lines for people, on stderr: none is broken within a word."""
    _print(text, sys.stderr, None)


def tell_error(error: ReconcilerError) -> None:
    """Print an error on stderr. Each problem of a revision has a line of its own."""
    problems = error.problems if isinstance(error, InvalidFleet) else (error,)
    for problem in problems:
        tell(printable(str(problem)))


def show(text: str, indent_columns: int | None = None) -> None:
    """The same on stdout; `indent_columns` is where a line goes on that is too long."""
    _print(text, sys.stdout, indent_columns)


def _print(text: str, stream: TextIO, indent_columns: int | None) -> None:
    width = width_of(stream)
    lines = [part for line in text.split("\n") for part in hanging(line, width, indent_columns)]
    print("\n".join(lines), file=stream, flush=True)


def wants_colour(stream: TextIO) -> bool:
    """A terminal that was not asked to stay plain (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width_of(stream: TextIO) -> int | None:
    """How many columns there are; for a program lines have no end."""
    if not stream.isatty():
        return None
    stated = os.environ.get("COLUMNS", "")
    return (int(stated) if stated.isdecimal() else 0) or window_of(stream).columns


_USUAL_WINDOW = os.terminal_size((80, 24))


def window_of(stream: TextIO) -> os.terminal_size:
    """Return the size of a terminal's window, and the usual size if the terminal reports zero: a
    pseudo-terminal has none until a program sets one, and `script` and CI jobs set none."""
    with contextlib.suppress(OSError):
        # not shutil's, which reads stdout for every stream
        size = os.get_terminal_size(stream.fileno())
        return os.terminal_size(
            own or usual for own, usual in zip(size, _USUAL_WINDOW, strict=True)
        )
    return _USUAL_WINDOW


def view_of(stream: TextIO) -> StatusStyle:
    """How a table is to look there."""
    from reconciler.report.status_text import StatusStyle

    return StatusStyle(time.time(), width_of(stream), Style(wants_colour(stream)))


@contextmanager
def hangups(poll: Callable[[], None]) -> Iterator[None]:
    """SIGHUP has us look at once. To be in force before anybody can know our pid: without it, the
    signal ends us."""
    before = signal.signal(signal.SIGHUP, lambda *_: poll())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def _after_the_echo() -> None:
    """A terminal shows ^C where the cursor is: what follows begins on a line of its own."""
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\n")


@contextmanager
def endings(stop: Callable[[], None]) -> Iterator[list[int]]:
    """SIGINT and SIGTERM ask us to stop, a second one stops us at once; yields those received."""
    received: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        if number == signal.SIGINT:
            _after_the_echo()
        stop()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
