"""Tokens as people write them, in files and variables: one reader for all of them."""

from __future__ import annotations

import codecs
from pathlib import Path

_MOST_BYTES = 64 << 10
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def token_lines(path: Path) -> list[str]:
    """Return the lines of a token file, stripped, without blank ones. A byte-order mark of UTF-8 is
    no part of a token. Raises OSError, and ValueError if the file is not ASCII text."""
    with path.open("rb") as file:
        return written_lines(file.read(_MOST_BYTES))


def written_lines(data: bytes) -> list[str]:
    """Return the lines of token text as `token_lines` does. Raises ValueError."""
    if data.startswith(_WIDE):
        raise ValueError("the file is UTF-16; save it as UTF-8 without a byte-order mark")
    lines = data.removeprefix(codecs.BOM_UTF8).splitlines()
    for number, line in enumerate(lines, 1):
        if not line.isascii():
            raise ValueError(
                f"line {number} has characters that no token has (not ASCII); copy the token again"
            )
    return [text for line in lines if (text := line.decode("ascii").strip())]
