"""What `.fleetignore` leaves out of a fleet: what git would leave out, were it `.gitignore`. Pure.

All patterns are one automaton. The steps that may come next are the bits of an integer, so that a
byte of a path costs the same whatever the patterns are: time grows with the length of the paths
times that of the patterns, and never faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from reconciler.api.errors import SourceError
from reconciler.source.tree import IGNORE_FILE
from reconciler.source.wildmatch import Pattern, read_patterns

_MOST_BYTES = 2**16  # of IGNORE_FILE: a path of 60 bytes takes 0.5 ms where each of them may match
_SLASH = ord("/")


def ignore_matcher(data: bytes | None) -> Callable[[str], bool]:
    """The `.fleetignore` at the root of the tree -> does it exclude a file? The file that is asked
    next should be near the last one."""
    if not data:
        return lambda _path: False
    if len(data) > _MOST_BYTES:
        raise SourceError(
            f"{IGNORE_FILE}: {len(data):,} bytes; at most {_MOST_BYTES:,}: name folders instead of"
            " files"
        )
    return _Matcher(_Automaton(read_patterns(data))).excludes


class _Folder(NamedTuple):
    """Where the automaton stands behind a folder of a path and its slash."""

    name: bytes
    is_excluded: bool
    state: int


class _Matcher:
    """Asks about each folder of a path, from the root: below an excluded one all is excluded. What
    was found of the last path is kept, as the next one is most often beside it."""

    def __init__(self, automaton: _Automaton) -> None:
        self._automaton = automaton
        self._root = _Folder(b"", False, automaton.start)
        self._last: tuple[_Folder, ...] = ()

    def excludes(self, path: str) -> bool:
        *names, name = path.encode("utf-8", "surrogateescape").split(b"/")
        folders = self._enter(names)
        here = folders[-1] if folders else self._root
        if here.is_excluded:
            return True
        return self._automaton.excludes(self._automaton.read(here.state, name), is_folder=False)

    def _enter(self, names: list[bytes]) -> tuple[_Folder, ...]:
        kept = 0
        for known, name in zip(self._last, names, strict=False):
            if known.name != name:
                break
            kept += 1
        folders = list(self._last[:kept])
        automaton = self._automaton
        for name in names[kept:]:
            above = folders[-1] if folders else self._root
            if above.is_excluded:
                break
            state = automaton.read(above.state, name)
            is_excluded = automaton.excludes(state, is_folder=True)
            folders.append(_Folder(name, is_excluded, automaton.read(state, b"/")))
        self._last = tuple(folders)
        return self._last


class _Bit(NamedTuple):
    """A place in a pattern. `bytes` lead on to the next bit, `before` back to this one; `ends`: the
    pattern whose end it is."""

    bytes: frozenset[int] = frozenset()
    before: frozenset[int] = frozenset()
    is_start: bool = False
    is_optional: bool = False  # the next two are reached with this one
    ends: Pattern | None = None


class _Automaton:
    """The bits of all patterns, one pattern behind the other, so that of the ends that were reached
    the highest is that of the last pattern that matches."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        bits = [bit for pattern in patterns for bit in _bits(pattern)]
        self._bits = bits
        self._loops = _mask(bool(bit.before) for bit in bits)
        self._deep_loops = _mask(_SLASH in bit.before for bit in bits)
        self._optional = _mask(bit.is_optional for bit in bits)
        self._folder_ends = _mask(bit.ends is not None for bit in bits)
        self._file_ends = _mask(
            bit.ends is not None and not bit.ends.is_for_folders for bit in bits
        )
        self._negated = _mask(bit.ends is not None and bit.ends.is_negated for bit in bits)
        self._leads: dict[int, int] = {}  # by byte: the bits that it leads on from
        self.start = self._skipped(_mask(bit.is_start for bit in bits))

    def read(self, state: int, name: bytes) -> int:
        """The state behind some more bytes of a path."""
        for byte in name:
            if not state:
                return 0
            leads = self._leads.get(byte)
            if leads is None:
                leads = self._leads[byte] = _mask(byte in bit.bytes for bit in self._bits)
            loops = self._deep_loops if byte == _SLASH else self._loops
            state = self._skipped((state & leads) << 1 | state & loops)
        return state

    def excludes(self, state: int, *, is_folder: bool) -> bool:
        """Whether a path that ends here is excluded: the last pattern that matches decides."""
        reached = state & (self._folder_ends if is_folder else self._file_ends)
        return bool(reached) and not self._negated >> (reached.bit_length() - 1) & 1

    def _skipped(self, state: int) -> int:
        optional = state & self._optional
        return state | optional << 1 | optional << 2 if optional else state


def _bits(pattern: Pattern) -> Iterator[_Bit]:
    is_start = True
    for step in pattern.steps:
        if step.is_optional:  # one for coming here, and one for having read bytes of it
            yield _Bit(is_start=is_start, is_optional=True)
            is_start = False
        yield _Bit(step.bytes, step.before, is_start)
        is_start = False
    yield _Bit(before=pattern.after, is_start=is_start, ends=pattern)


def _mask(bits: Iterable[bool]) -> int:
    """The lowest bit first."""
    return int("".join("01"[bit] for bit in bits)[::-1] or "0", 2)
