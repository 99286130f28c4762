"""What may reach a terminal, and how it may look there. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Sized
from enum import StrEnum


class Tone(StrEnum):
    """ANSI colours by meaning."""

    GOOD = "32"
    CHANGE = "33"
    BAD = "31"
    QUIET = "2"
    STRONG = "1"


class Style:
    """Colours text, or leaves it alone where colour is not wanted."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, tone: Tone, text: str) -> str:
        return f"\x1b[{tone}m{text}\x1b[0m" if self._colour and text else text


PLAIN = Style(colour=False)


def printable(text: str) -> str:
    """Text from a file, a model or a server with its control characters shown, not obeyed; nor is
    it what a CI job that prints it takes for a command."""
    shown = text
    if not text.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _JOB_COMMAND.sub(_escaped, shown) if "::" in shown or "##" in shown else shown


# GitHub obeys `::error` at the start of a line, and `##[error]` anywhere in it; Azure `##vso[...]`.
_JOB_COMMAND = re.compile(r"^\s*:(?=:)|##(?=\[|vso\[)")


def _escaped(mark: re.Match[str]) -> str:
    return mark[0][:-1] + f"\\x{ord(mark[0][-1]):02x}"


def short_revision(revision: str) -> str:
    """A revision as people say it; what follows a `+` is what changed since."""
    commit, plus, rest = revision.partition("+")
    return f"{commit[:7]}{plus}{rest}" if len(commit) >= 40 else revision


_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_WORD = re.compile(  # a number keeps its unit
    r"\s*\S*[0-9] (?:[KMGT]iB|B|s|min|h|d|%)(?=[\s,;.:)]|$)|\s*\S+"
)
_MARKED = 8  # what is below a line with a mark begins here


def seen_width(text: str) -> int:
    """How many columns it takes: colours take none."""
    return len(_ESCAPE.sub("", text))


def hanging(line: str, width: int | None, indent_columns: int | None = None) -> list[str]:
    """A line on as many as it needs, the further ones indented below it. A word stays whole, also
    one that is wider than the terminal: it is there to be copied. No width: one line."""
    if width is None or seen_width(line) <= width:
        return [line]
    own = len(line) - len(line.lstrip())
    below = indent_columns or (_MARKED if own == 2 else own + 2)
    indent = " " * min(below, width // 3)
    lines, used = [""], 0
    for word in _WORD.findall(line):
        if lines[-1] and used + seen_width(word) > width:
            lines.append(indent)
            used, word = len(indent), word.lstrip()
        elif not lines[-1] and own > width // 3:
            word = indent + word.lstrip()
        lines[-1] += word
        used += seen_width(word)
    return lines


_COLUMN = re.compile(r"  +\S.*?\S  +(?=\S)")


def fitted(lines: Sequence[str], width: int | None) -> Iterator[str]:
    """A list within a terminal: where its second column has no room, it goes below the first."""
    columns = [match.end() if (match := _COLUMN.match(line)) else None for line in lines]
    is_wide = width is not None and any(len(line) > width for line in lines)
    for line, column in zip(lines, columns, strict=True):
        if is_wide and width is not None and column is not None and column > width // 3:
            yield from hanging(line[:column].rstrip(), width)
            yield from hanging(f"      {line[column:]}", width, 6)
        else:
            yield from hanging(line, width, column)


_SCREEN_LINES = 16  # with the prompt, and some of them wrapped, a window of 24


def is_long(lines: Sized) -> bool:
    """Whether its beginning and its end may not be seen together, so that its totals are at both:
    counted before lines are wrapped, so that a pipe and each terminal show the same."""
    return len(lines) > _SCREEN_LINES


_NUMBER = re.compile(r"([0-9]+)")


def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """The order that people expect: node-2 before node-10."""
    parts = _NUMBER.split(name)  # each second one is a number
    return tuple((i % 2 == 1, int(p) if i % 2 else 0, p) for i, p in enumerate(parts) if p)


def counted(noun: str, count: int) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
