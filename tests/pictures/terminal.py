"""What a program writes on a terminal, as an SVG picture of that terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

_SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")
_WORDS = re.compile(r"\S+(?: \S+)*")  # a picture keeps no second space
# Of a terminal that is dark in a light page, too: 7:1 against its ground and more.
_GROUND, _BAR, _TEXT, _DIM = "#10151c", "#1f2731", "#dfe5ec", "#9ba7b4"
_COLOURS = {"31": "#ff8f87", "32": "#7ee08a", "33": "#ecc55f", "34": "#8cb9ff", "36": "#7fd8e6"}
_ADVANCE, _LINE, _SIZE, _EDGE, _TOP = 7.8, 18.0, 13, 16.0, 44.0
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"


class Span(NamedTuple):
    """Characters of one look, `column` from the left."""

    column: int
    text: str
    colour: str
    is_bold: bool


def picture(title: str, text: str, columns: int) -> str:
    """An SVG of a window that holds this text, which may have ANSI colours."""
    lines = text.rstrip("\n").split("\n")
    width, height = columns * _ADVANCE + 2 * _EDGE, len(lines) * _LINE + _TOP + _EDGE
    plain = _SEQUENCE.sub("", text)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            f' width="{width:g}" height="{height:g}" role="img" font-family="{_FONT}"'
            f' font-size="{_SIZE}">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(plain)}</desc>",
            f'<rect width="100%" height="100%" rx="10" fill="{_GROUND}"/>',
            f'<path d="M0 28V10A10 10 0 0 1 10 0H{width - 10:g}A10 10 0 0 1 {width:g} 10V28z"'
            f' fill="{_BAR}"/>',
            *(f'<circle cx="{x}" cy="14" r="5" fill="#4a5665"/>' for x in (18, 36, 54)),
            f'<text x="{width / 2:g}" y="18.5" text-anchor="middle" fill="{_DIM}">'
            f"{escape(title)}</text>",
            *(
                _text(span, _TOP + number * _LINE + _SIZE * 0.75)
                for number, line in enumerate(lines)
                for span in _spans(line)
            ),
            "</svg>\n",
        )
    )


def _text(span: Span, y: float) -> str:
    # Its length is stated: whatever font there is, columns stay in their places.
    weight = ' font-weight="700"' if span.is_bold else ""
    return (
        f'<text x="{_EDGE + span.column * _ADVANCE:g}" y="{y:g}" fill="{span.colour}"{weight}'
        f' textLength="{len(span.text) * _ADVANCE:g}" lengthAdjust="spacingAndGlyphs">'
        f"{escape(span.text)}</text>"
    )


def _spans(line: str) -> Iterator[Span]:
    column, colour, is_bold = 0, _TEXT, False
    for number, part in enumerate(_SEQUENCE.split(line)):
        if number % 2:
            for code in part.split(";"):
                if code in ("", "0"):
                    colour, is_bold = _TEXT, False
                is_bold = is_bold or code == "1"
                colour = _DIM if code == "2" else _COLOURS.get(code, colour)
            continue
        for words in _WORDS.finditer(part):
            yield Span(column + words.start(), words[0], colour, is_bold)
        column += len(part)
