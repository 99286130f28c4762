"""What reads a command line, and what it says of words that it does not know."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from reconciler.api.errors import UsageError
from reconciler.console import typed
from reconciler.console.edge import width_of
from reconciler.report.terminal import fitted, hanging

_MISSING = "the following arguments are required"  # argparse's words


class CommonTitle(str):
    """The title of options that several commands have: a command's own help names them only, and
    `--help --all` explains them."""

    __slots__ = ()


class Parser(argparse.ArgumentParser):
    """argparse with the exit code of this program. An option is written whole: what is short for
    one today may be short for another tomorrow."""

    _explains_all = False
    _words: Sequence[str] = ()

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
        self._words = words = sys.argv[1:] if args is None else list(args)
        self._explains_all = "--all" in words and not {"-h", "--help"}.isdisjoint(words)
        return super().parse_known_args(args, namespace)

    def parse_args(  # type: ignore[override]  # argparse has overloads for other namespaces
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        known, unknown = self.parse_known_args(args, namespace)  # type: ignore[no-untyped-call]
        return self._without(known, unknown)

    def parse_intermixed_args(  # type: ignore[override]  # argparse has overloads for other namespaces
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        known, unknown = self.parse_known_intermixed_args(args, namespace)
        return self._without(known, unknown)

    def _without(self, known: argparse.Namespace, unknown: Sequence[str]) -> argparse.Namespace:
        """Raises UsageError for words that nothing takes."""
        if unknown:
            takes_words = any(not action.option_strings for action in self._actions)
            options = {name for parser in self._all() for name in parser._option_string_actions}
            hint = typed.of_unknown(unknown, self.prog, options, takes_words=takes_words)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return known

    def _all(self) -> Iterator[argparse.ArgumentParser]:
        """This one, and those of its actions."""
        yield self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices.values()

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(each) for each in action.choices]
            hint = typed.of_choice(str(value), choices)
            raise argparse.ArgumentError(
                action, f"{value!r}: it is one of {', '.join(choices)}{hint}"
            )

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
        hint = typed.of_missing(self._words) if _MISSING in message else ""
        raise UsageError(f"{message}{hint}; see `{self.prog} --help`")


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
    meant = " or ".join(f"`{each}`" for each in known.split(" or "))
    return UsageError(f"no command named {word!r}; did you mean {meant}?")
