"""Markdown for the comments of a forge: what others wrote stays what it is, and a text is cut to
what a comment holds. Pure.

GitHub, GitLab and Forgejo obey more than the markup: `@name` notifies a person, `#1` links to an
issue and `:name:` is a picture, also where they were escaped. In code none of them is obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from reconciler.report.terminal import counted, printable

MOST_BYTES = 65_536  # of a comment on GitHub, which has the lowest limit
_ROOM = 256  # for the line by which a comment is found again
_QUOTED = re.compile(r"(`[^`\n]+`)")
_SPECIAL = re.compile(r"[\\*_\[\]|~$`&<>@#]")
_OBEYED = "@#"  # also where they were escaped, but not apart from the word behind them
_JOINER = "&#8288;"


def code(text: str) -> str:
    """A code span that holds any text. Not for a cell of a table."""
    text = printable(text) or " "
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def prose(text: str) -> str:
    """A message for people: what it quotes is code, and nothing of it is markup."""
    parts = _QUOTED.split(printable(text))
    return "".join(code(p[1:-1]) if i % 2 else _escaped(p) for i, p in enumerate(parts))


def html_code(text: str) -> str:
    """The same as `code`, where a forge reads HTML."""
    return f"<code>{escape(printable(text))}</code>"


def link(text: str, url: str | None) -> str:
    """`text` is markdown already."""
    return f"[{text}]({url})" if url else text


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda m: _entity(m[0]), text)


def _entity(char: str) -> str:
    if char in "&<>":
        return escape(char)
    if char in _OBEYED:
        return f"{char}{_JOINER}"
    return f"\\{char}"


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text that may be cut: whole, in short, or not at all."""

    text: str
    short: str


@dataclass(frozen=True, slots=True)
class Section:
    """Items below a heading. `noun` is what one of them is, for the line about those left out."""

    heading: str
    items: Sequence[Passage]
    noun: str


def cut(head: str, sections: Sequence[Section], tail: str) -> str:
    """All of it if it fits a comment. Else first the sections behind are shortened, each from its
    end, and then left out, with a line that counts them; `head`, the headings and `tail` stay."""
    left = MOST_BYTES - _ROOM - _size(head) - _size(tail)
    left -= sum(
        _size(s.heading) + _size(_left_out(s, len(s.items), len(s.items))) for s in sections
    )
    kept = [[""] * len(section.items) for section in sections]
    for version in ("short", "text"):
        for i, section in enumerate(sections):
            left = _upgraded(kept[i], [getattr(item, version) for item in section.items], left)
    text = f"{head}{''.join(_texts(sections, kept))}{tail}"
    return f"{text.rstrip()}\n"


def _upgraded(kept: list[str], texts: Sequence[str], left: int) -> int:
    """Take texts in their order until one has no room; what remains of the room."""
    for i, text in enumerate(texts):
        more = _size(text) - _size(kept[i])
        if more > left:
            break
        kept[i], left = text, left - more
    return left


def _texts(sections: Sequence[Section], kept: Sequence[Sequence[str]]) -> Iterator[str]:
    for section, texts in zip(sections, kept, strict=True):
        if not section.items:
            continue
        yield f"{section.heading}{''.join(texts)}"
        gone = sum(not text for text in texts)
        short = sum(t == i.short != i.text for t, i in zip(texts, section.items, strict=True))
        if gone or short:
            yield _left_out(section, gone, short)
        yield "\n"


def _left_out(section: Section, gone: int, short: int) -> str:
    more = f"{counted(f'more {section.noun}', gone)} left out" if gone else ""
    in_short = f"{counted(section.noun, short)} in short" if short else ""
    cuts = ", ".join(part for part in (more, in_short) if part)
    return f"\n_Cut to fit a comment: {cuts}. The command line prints all of it._\n"


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))
