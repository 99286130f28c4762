"""The edge of both programs: exit codes, and how each way that a run may end is reported."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from reconciler.api.errors import InvalidFleet, ReconcilerError, UsageError, error_text
from reconciler.report.terminal import Style, fitted, hanging, printable

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
    try:
        return run()
    except UsageError as error:
        tell(f"{program}: {printable(str(error))}")
        return Exit.USAGE
    except InvalidFleet as error:
        for problem in error.problems:
            tell(printable(str(problem)))
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
    with contextlib.suppress(OSError):
        # not shutil's: that looks at stdout, whichever stream is meant
        return int(stated) if stated.isdecimal() else os.get_terminal_size(stream.fileno()).columns
    return 80


def view_of(stream: TextIO) -> StatusStyle:
    """How a table is to look there."""
    from reconciler.report.status_text import StatusStyle

    return StatusStyle(time.time(), width_of(stream), Style(wants_colour(stream)))


class CommonTitle(str):
    """The title of options that several commands have: a command's own help names them only, and
    `--help --all` explains them."""

    __slots__ = ()


class Parser(argparse.ArgumentParser):
    """argparse with the exit code of this program. An option is written whole: what is short for
    one today may be short for another tomorrow."""

    _explains_all = False

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - ArgumentParser's
        examples: Mapping[str, str] = MappingProxyType({}),
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """`examples`: whole command lines, each with what it is for."""
        ours = {"allow_abbrev": False, "formatter_class": _HelpText, "epilog": _listed(examples)}
        super().__init__(*args, **{**ours, **kwargs})

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - argparse's own overloads
        words = sys.argv[1:] if args is None else list(args)
        self._explains_all = "--all" in words and not {"-h", "--help"}.isdisjoint(words)
        return super().parse_known_args(args, namespace)

    def print_help(self, file: Any = None, *, everything: bool | None = None) -> None:  # noqa: ANN401
        """What -h prints: a command's own options, or with --all `everything`."""
        shows_all = self._explains_all if everything is None else everything
        print(self.format_help() if shows_all else self._own_help(), end="", file=file)

    def format_help(self) -> str:
        """Every option, the command's own first."""
        self._action_groups.sort(key=_is_common)
        return super().format_help()

    def _own_help(self) -> str:
        own = [group for group in self._action_groups if not _is_common(group)]
        actions = [action for group in own for action in group._group_actions]
        formatter = self._get_formatter()
        shown = [action for action in self._actions if action in actions]
        formatter.add_usage(self.usage, shown, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in own:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self._others())
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _others(self) -> str | None:
        """The names of the options that are not explained."""
        groups = {
            str(group.title).partition(" (")[0]: [a.option_strings[0] for a in group._group_actions]
            for group in self._action_groups
            if _is_common(group)
        }
        rows = [
            line
            for title, names in groups.items()
            for line in hanging(f"  {title}: {', '.join(names)}", width_of(sys.stdout), 4)
        ]
        how = f"more options, which `{self.prog} --help --all` explains:"
        return "\n".join((how, *rows)) if rows else None

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def _is_common(group: argparse._ArgumentGroup) -> bool:
    return isinstance(group.title, CommonTitle)


class _HelpText(argparse.HelpFormatter):
    """Paragraphs stay apart; one that is indented, or a list, is shown line by line."""

    def start_section(self, heading: str | None) -> None:
        lines = hanging(heading, width_of(sys.stdout)) if heading else ()
        super().start_section("\n".join(lines) or heading)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = (part.rstrip() for part in text.strip("\n").split("\n\n"))
        return "\n\n".join(
            "\n".join(fitted(part.split("\n"), width_of(sys.stdout)))
            if "\n  " in f"\n{part}"
            else super(_HelpText, self)._fill_text(part, width, indent)
            for part in parts
        )


def _listed(examples: Mapping[str, str]) -> str | None:
    width = max(map(len, examples), default=0)
    rows = (f"  {line:<{width}}  {purpose}" for line, purpose in examples.items())
    return "\n".join(("examples:", *rows)) if examples else None


def no_command(
    word: str, program: str, commands: Iterable[str], elsewhere: Mapping[str, str]
) -> UsageError:
    """For a command that is not there. `elsewhere`: words of other tools -> what does that here."""
    from difflib import get_close_matches

    near = get_close_matches(word, tuple(commands), 1, cutoff=0.7)
    known = elsewhere.get(word) or (near[0] if near else None)
    if known is None:
        return UsageError(f"no command named {word!r}; see `{program} --help`")
    known = known if " " in known else f"{program} {known}"
    return UsageError(f"no command named {word!r}; did you mean `{known}`?")


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
