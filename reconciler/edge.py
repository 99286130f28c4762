"""The edge of both programs: exit codes, how whatever a run ends in is said, and to whom."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from reconciler.errors import InvalidFleet, ReconcilerError, UsageError
from reconciler.report.terminal import Style, printable

if TYPE_CHECKING:
    from reconciler.report.status_text import View


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
    try:
        return run()
    except UsageError as error:
        print(f"{program}: {printable(str(error))}", file=sys.stderr)
        return Exit.USAGE
    except InvalidFleet as error:
        for problem in error.problems:
            print(printable(str(problem)), file=sys.stderr)
        return Exit.FAILED
    except ReconcilerError as error:
        from reconciler.source.address import redact_url

        print(f"{program}: {printable(redact_url(str(error)))}", file=sys.stderr)
        return Exit.FAILED
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong, and nothing may be written any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except OSError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return Exit.FAILED
    except Exception as error:  # the outermost edge: said as a bug of ours
        if os.environ.get("FLEET_DEBUG"):
            raise
        print(
            f"{program}: a bug of ours: {type(error).__name__}: {error}\n"
            "Please report it; with FLEET_DEBUG=1 set, the same command prints where it happened.",
            file=sys.stderr,
        )
        return Exit.BUG


def _prepare_streams() -> None:
    """Whatever the locale can say is said as it is, the rest escaped; a closed stream is no bug."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for good
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def wants_colour(stream: TextIO) -> bool:
    """A terminal that nobody asked to stay plain (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def view_of(stream: TextIO) -> View:
    """How a table is to look there: as wide as the terminal; for a program lines have no end."""
    from reconciler.report.status_text import View

    width = shutil.get_terminal_size().columns if stream.isatty() else None
    return View(time.time(), width, Style(wants_colour(stream)))


class Parser(argparse.ArgumentParser):
    """argparse with the exit code of this program. An option is written whole: what is short for
    one today may be short for another tomorrow."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - ArgumentParser's
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


@contextmanager
def hangups(look: Callable[[], None]) -> Iterator[None]:
    """SIGHUP has us look at once. To be in force before anybody can know our pid: without it, the
    signal ends us."""
    before = signal.signal(signal.SIGHUP, lambda *_: look())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@contextmanager
def endings(stop: Callable[[], None]) -> Iterator[list[int]]:
    """SIGINT and SIGTERM ask us to stop, a second one stops us at once; yields those received."""
    received: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        stop()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
