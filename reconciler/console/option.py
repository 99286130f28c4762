"""Options of a command line that the environment may set too: a row for each, in tables."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconciler.runtimes import PROGRAMS

if TYPE_CHECKING:
    from reconciler.source.checkout import Source

_YES, _NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Option:
    """One option `--NAME VALUE`, or a switch where `metavar` is None.

    `read` turns its text into a value and raises ValueError with what is wrong. `names` are all
    texts that it takes, where they are few. `fallback` is a text as a person would write it;
    `foreign_variable` is one of other programs, heeded where the option's own says nothing;
    `is_shared`: so is the option's own, and what it cannot read there is meant for them.
    """

    name: str
    help: str
    metavar: str | None = "TEXT"
    read: Callable[[str], Any] = str
    names: tuple[str, ...] = ()
    fallback: str | None = None
    stated_variable: str | None = None
    foreign_variable: str | None = None
    is_shared: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that says the same; what is typed wins."""
        return self.stated_variable or "FLEET_" + self.name.upper().replace("-", "_")

    @property
    def attribute(self) -> str:
        """Where argparse keeps its value."""
        return self.name.replace("-", "_")


def add(
    group: argparse._ActionsContainer,
    options: Iterable[Option],
    environ: Mapping[str, str] | None = None,
    *,
    again: bool = False,
) -> None:
    """Make every row an option whose default is its variable, else its fallback. `again`: without a
    default, for the words after a command's own command."""
    environ = os.environ if environ is None else environ
    for option in options:
        stated = environ.get(option.variable)
        if not stated and option.foreign_variable:
            stated = environ.get(option.foreign_variable)
        if stated and option.is_shared and not _can_read(option, stated):
            stated = None
        help_text = f"{_help(option)} [${option.variable}]".replace("%", "%%")
        if option.metavar is None:
            group.add_argument(
                f"--{option.name}",
                action="store_true",
                default=argparse.SUPPRESS if again else _switch(option, stated or ""),
                help=help_text,
            )
        else:
            group.add_argument(
                f"--{option.name}",
                metavar=option.metavar,
                type=_reader(option),
                # an empty variable counts as unset
                default=argparse.SUPPRESS if again else stated or option.fallback,
                help=help_text,
            )


def _can_read(option: Option, text: str) -> bool:
    try:
        option.read(text)
    except ValueError:
        return False
    return True


def _help(option: Option) -> str:
    names_default = option.fallback is None or "default" in option.help
    return option.help if names_default else f"{option.help} (default: {option.fallback})"


def command_line(args: argparse.Namespace, options: Iterable[Option]) -> tuple[str, ...]:
    """The command line that says the same as this one together with the environment."""
    arguments: list[str] = []
    for option in options:
        value = getattr(args, option.attribute)
        if option.metavar is None:
            arguments += [f"--{option.name}"] if value else []
        elif value is not None and (text := _text(value)) != option.fallback:
            arguments += [f"--{option.name}", text]
    return tuple(arguments)


def program_option(program: str) -> str:
    """The option that names an engine's program: `mlx_lm.server` is `mlx-lm-server`."""
    return re.sub(r"[^a-z0-9]+", "-", program.lower()).strip("-")


def program_options() -> tuple[Option, ...]:
    """One for each program that a row of the runtime table starts."""
    return tuple(
        Option(program_option(program), f"the {program} to use, instead of the one on PATH", "PATH")
        for program in PROGRAMS
    )


def programs_of(args: argparse.Namespace) -> dict[str, str]:
    """Engine's program -> the path that a person chose for it."""
    chosen = {p: getattr(args, program_option(p).replace("-", "_"), None) for p in PROGRAMS}
    return {program: path for program, path in chosen.items() if path}


def source_of(
    args: argparse.Namespace,
    location: str,
    *,
    working_tree: bool = False,
    applied_from: str | None = None,
    option: str = "-C",
) -> Source:
    """The source at a location, with --ref, --path and the credentials. `applied_from`, `option`:
    see open_source. Raises UsageError, SourceError."""
    from reconciler.source.address import GitCredentials, parse_address
    from reconciler.source.open import cache_dir, open_source

    path = parse_address(location).path if location.strip() else None
    return open_source(
        # Absolute: what was applied from `.` here must not be taken for what is in `.` elsewhere.
        location if path is None else str(path.absolute()),
        cache_dir=cache_dir(),
        ref=args.ref,
        subdir=args.path,
        credentials=GitCredentials(
            token_file=args.git_token_file,
            ssh_key_file=args.ssh_key_file,
            known_hosts_file=args.known_hosts_file,
            ca_file=args.ca_file,
        ),
        working_tree=working_tree,
        applied_from=applied_from,
        option=option,
    )


def _reader(option: Option) -> Callable[[str], Any]:
    def read(text: str) -> object:
        if option.names and text not in option.names:
            raise argparse.ArgumentTypeError(f"{text!r}: it is one of {', '.join(option.names)}")
        try:
            return option.read(text)
        except ValueError as error:
            names = (option.variable, option.foreign_variable)
            variable = next((name for name in names if name and os.environ.get(name)), None)
            where = f" (also said by ${variable})" if variable else ""
            raise argparse.ArgumentTypeError(f"{text!r}: {error}{where}") from error

    return read


def _switch(option: Option, text: str) -> bool:
    if text.lower() not in (*_YES, *_NO):
        from reconciler.api.errors import UsageError

        raise UsageError(f"${option.variable} is {text!r}: it is one of yes and no")
    return text.lower() in _YES


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def add_view_options(parser: argparse.ArgumentParser) -> None:
    """Which part of a status to show, and for how long: for both programs."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="NAME or NAMESPACE/NAME: only these services, also in JSON and for the exit code",
    )
    parser.add_argument(
        "--not-ready",
        action="store_true",
        help="only what is not ready or not as declared, and how many are; the exit code stays",
    )
    parser.add_argument("--follow", action="store_true", help="keep it current until Ctrl-C")


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Which part of a log to show: for both programs."""
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="go on with what it writes from now on, until Ctrl-C",
    )
    parser.add_argument(
        "-n",
        "--tail",
        "--lines",
        dest="lines",
        type=_count,
        default=100,
        metavar="LINES",
        help="how many (default: 100)",
    )
    parser.add_argument(
        "--previous", action="store_true", help="of the run before the last start, why it ended"
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)
