"""Lines of a `.gitignore` -> what a path has to be, as git's wildmatch.c and dir.c have it. Pure.

Git matches bytes, and so does this. A pattern becomes steps, one for each byte that it needs:
`*` and `**` are bytes that may come before a step. What follows them is decided without trying,
so that no pattern can take long.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

_BOM = b"\xef\xbb\xbf"
_SLASH = ord("/")
_ANY = frozenset(range(256)) - {_SLASH}
_ONE = tuple(frozenset((byte,)) for byte in range(256))
_SPECIAL = frozenset(b"*?[\\")


@cache
def _classes() -> dict[bytes, frozenset[int]]:
    """What git's own tables have for ASCII; its spaces are fewer than C's."""
    letters, digits = string.ascii_letters.encode(), string.digits.encode()
    printed = range(0x20, 0x7F)
    return {
        b"alnum": frozenset(letters + digits),
        b"alpha": frozenset(letters),
        b"blank": frozenset(b" \t"),
        b"cntrl": frozenset(range(0x20)) | {0x7F},
        b"digit": frozenset(digits),
        b"graph": frozenset(printed) - {0x20},
        b"lower": frozenset(string.ascii_lowercase.encode()),
        b"print": frozenset(printed),
        b"punct": frozenset(string.punctuation.encode()),
        b"space": frozenset(b" \t\n\r"),
        b"upper": frozenset(string.ascii_uppercase.encode()),
        b"xdigit": frozenset(string.hexdigits.encode()),
    }


@dataclass(frozen=True, slots=True)
class PatternStep:
    """One byte that a pattern needs. `before`: bytes that may come first, as often as they like;
    `is_optional`: it and all before it may be missing (`**/`)."""

    bytes: frozenset[int]
    before: frozenset[int] = frozenset()
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line. `after`: bytes that may follow its last step, as often as they like."""

    steps: tuple[PatternStep, ...]
    after: frozenset[int]
    is_negated: bool
    is_for_folders: bool


_EVERY = _ANY | {_SLASH}
_FOLDERS = PatternStep(_ONE[_SLASH], _EVERY, is_optional=True)  # **/


def read_patterns(data: bytes) -> Iterator[Pattern]:
    """The patterns of a file, in order, without those that match nothing whatever."""
    for line in data.removeprefix(_BOM).split(b"\n"):
        if line and not line.startswith(b"#"):
            pattern = _pattern(_trimmed(line.removesuffix(b"\r").partition(b"\0")[0]))
            if pattern is not None:
                yield pattern


def _trimmed(line: bytes) -> bytes:
    """Without the spaces at its end, but for one behind a backslash."""
    rest = line.rstrip(b" ")
    backslashes = len(rest) - len(rest.rstrip(b"\\"))
    return line[: len(rest) + 1] if backslashes % 2 else rest


def _pattern(line: bytes) -> Pattern | None:
    is_negated = line.startswith(b"!")
    text = line[is_negated:]
    is_for_folders = text.endswith(b"/")
    text = text.removesuffix(b"/")
    is_path = b"/" in text
    if is_path:
        text = text.removeprefix(b"/")
    parsed = _steps(text, is_path=is_path)
    if not text or parsed is None:
        return None
    steps, after = parsed
    return Pattern(steps if is_path else (_FOLDERS, *steps), after, is_negated, is_for_folders)


def _steps(text: bytes, *, is_path: bool) -> tuple[tuple[PatternStep, ...], frozenset[int]] | None:
    """None: nothing matches it. A pattern without a slash is for the last name of a path alone,
    where `**` is nothing but `*`."""
    steps: list[PatternStep] = []
    before: frozenset[int] = frozenset()
    # Git compares what stands before the first wildcard by itself: `a**/b` is `a` and then `**/b`.
    first = next((at for at, byte in enumerate(text) if byte in _SPECIAL), 0)
    at = 0
    while at < len(text):
        if text[at] == ord("*"):
            end = at
            while text[end : end + 1] == b"*":
                end += 1
            is_deep = is_path and end - at > 1 and (at == first or text[at - 1] == _SLASH)
            if is_deep and text[end : end + 1] == b"/":
                if steps[-1:] != [_FOLDERS]:  # as often as it is written, it is the same
                    steps.append(_FOLDERS)
                at = end + 1
                continue
            is_deep = is_deep and (end == len(text) or text[end : end + 2] == b"\\/")
            before, at = _EVERY if is_deep else _ANY, end
            continue
        step = _one_byte(text, at)
        if step is None:
            return None
        members, at = step
        steps.append(PatternStep(members, before))
        before = frozenset()
    return tuple(steps), before


def _one_byte(text: bytes, at: int) -> tuple[frozenset[int], int] | None:
    """Which bytes match here, and where the pattern goes on."""
    match text[at : at + 1]:
        case b"?":
            return _ANY, at + 1
        case b"\\":
            return (_ONE[text[at + 1]], at + 2) if at + 1 < len(text) else None
        case b"[":
            return _bracket(text, at + 1)
        case _:
            return _ONE[text[at]], at + 1


def _bracket(text: bytes, at: int) -> tuple[frozenset[int], int] | None:
    """`[...]` from behind its bracket, byte by byte as git reads it; None where it never ends."""
    is_negated = text[at : at + 1] in (b"!", b"^")
    begin = at = at + is_negated
    members: set[int] = set()
    previous: int | None = None  # where a range may begin
    while at < len(text) and (text[at] != ord("]") or at == begin):
        byte: int | None = text[at]
        following = text[at + 1 : at + 2]
        if byte == ord("\\"):
            if not following:
                return None
            at, byte = at + 1, following[0]
            members.add(byte)
        elif byte == ord("-") and previous and following not in (b"", b"]"):
            at += 1 + (following == b"\\")
            if at >= len(text):
                return None
            members.update(range(previous, text[at] + 1))
            byte = None
        elif byte == ord("[") and following == b":":
            end = text.find(b"]", at + 2)
            if end < 0:
                return None
            if end > at + 2 and text[end - 1] == ord(":"):
                named = _classes().get(text[at + 2 : end - 1])
                if named is None:
                    return None
                members |= named
                at, byte = end, None
            else:
                members.add(ord("["))
        else:
            members.add(text[at])
        previous = byte
        at += 1
    if at >= len(text):
        return None
    return (_ANY - members if is_negated else _ANY & members), at + 1
