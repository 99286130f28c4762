"""Edits of one plain line, which are most of a fleet's history: what they do to a document is known
without parsing it. Pure."""

from __future__ import annotations

import re

_MARKER = re.compile(rb"^(?:---|\.\.\.)", re.MULTILINE)
_IDENTITY = (b"apiVersion", b"kind", b"name", b"namespace")
# Of values like these, two that are written in different ways are different values: no quotes, no
# other form of a number, of true or of nothing. A line of them is never a comment, and whatever it
# stands in, it ends where it ends whichever of them it has.
_LINE = re.compile(
    rb"(?P<before>[ ]*(?:- )?(?P<key>[A-Za-z][A-Za-z0-9._/-]*): )"
    rb"(?P<value>[1-9][0-9]{0,14}[A-Za-z]*"
    rb"|(?!(?:true|false|yes|no|on|off|y|n|null|nan|inf|infinity)\Z)"
    rb"[A-Za-z](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?)",
    re.IGNORECASE,
)


def is_plain_edit(old: bytes, new: bytes) -> bool:
    """Whether two files surely are one document each, of the same object, which says something else
    in the second. False: that takes a parser to know."""
    one, other = old.split(b"\n"), new.split(b"\n")
    if len(one) != len(other):
        return False
    changed = [lines for lines in zip(one, other, strict=True) if lines[0] != lines[1]]
    if len(changed) != 1 or _MARKER.search(new):
        return False
    was, now = map(_LINE.fullmatch, changed[0])
    if was is None or now is None or was["key"] in _IDENTITY:
        return False
    return was["before"] == now["before"]
