"""A program's manual page, from the parsers of its commands. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping

from reconciler.console.edge import Exit
from reconciler.console.parser import CommonTitle

_EXITS = {
    Exit.OK: "nothing to do, or done",
    Exit.FAILED: "invalid, or it failed",
    Exit.CHANGES: "there are changes",
    Exit.BLOCKED: "blocked, not ready, or unreachable",
    Exit.USAGE: "the command line is wrong",
    Exit.BUG: "a bug in the program",
    Exit.INTERRUPTED: "ended by a signal",
}


def man_page(
    program: str, version: str, about: str, parsers: Mapping[str, argparse.ArgumentParser]
) -> str:
    """In the language of man(7). `parsers` are those of the commands, in their order; options that
    several have stand once, below all of them."""
    common: dict[str, list[argparse.Action]] = {}
    lines = [
        f'.TH {_word(program.upper())} 1 "" {_word(f"{program} {version}")}',
        ".SH NAME",
        f"{_text(program)} \\- {_text(about)}",
        ".SH SYNOPSIS",
        f".B {_text(program)}",
        "COMMAND [OPTIONS] ...",
        ".SH COMMANDS",
    ]
    for name, parser in parsers.items():
        lines += _command(f"{program} {name}", parser, common)
    if common:
        lines.append(".SH OPTIONS OF MANY COMMANDS")
    for title, actions in common.items():
        lines += [f".SS {_word(title)}", *_options(actions)]
    lines.append(".SH EXIT STATUS")
    for code, meaning in _EXITS.items():
        lines += [".TP", f".B {code.value}", _text(meaning)]
    return "\n".join(lines) + "\n"


def _command(
    line: str, parser: argparse.ArgumentParser, common: dict[str, list[argparse.Action]]
) -> Iterator[str]:
    """A command, and those below it. What it has of the `common` options is noted there."""
    yield f".SS {_word(line)}"
    yield from _paragraphs(parser.description or "")
    below: dict[str, argparse.ArgumentParser] = {}
    for group in parser._action_groups:
        if isinstance(group.title, CommonTitle):
            common.setdefault(str(group.title), group._group_actions)
            continue
        parents = [a for a in group._group_actions if isinstance(a, argparse._SubParsersAction)]
        for action in parents:
            below |= action.choices
        yield from _options(action for action in group._group_actions if action not in parents)
    for name, child in below.items():
        yield from _command(f"{line} {name}", child, common)


def _options(actions: Iterable[argparse.Action]) -> Iterator[str]:
    for action in actions:
        if action.help == argparse.SUPPRESS or "-h" in action.option_strings:
            continue
        names = ", ".join(action.option_strings)
        value = "" if action.nargs == 0 and names else str(action.metavar or action.dest.upper())
        if action.choices and not action.metavar:
            value = "{" + ",".join(map(str, action.choices)) + "}"
        if action.nargs == "?" and names:
            value = f"[{value}]"
        yield ".TP"
        yield f".B {_text(f'{names} {value}'.strip())}"
        yield _text((action.help or "").replace("%%", "%")) or "\\&"


def _paragraphs(text: str) -> Iterator[str]:
    for number, part in enumerate(part for part in text.strip().split("\n\n") if part):
        if number:
            yield ".PP"
        yield _text(" ".join(part.split()))


def _word(text: str) -> str:
    """One argument of a macro."""
    return '"' + _text(text).replace('"', "\\(dq") + '"'


def _text(text: str) -> str:
    """Text of which nothing is a macro or an escape; a hyphen stays one when it is copied."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe
