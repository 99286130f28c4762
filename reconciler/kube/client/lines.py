"""Bytes as they arrive -> whole lines, whatever their length. Pure."""

from __future__ import annotations


class LineBuffer:
    """What has come of the next line is joined once, when its end is there: joining it each time
    takes a minute for a line of 64 MiB."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._parts: list[bytes] = []
        self._held_bytes = 0

    def take(self, data: bytes) -> list[bytes]:
        """The lines that end in `data`. Raises ValueError: one is too long."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts, self._held_bytes = [], 0
        if rest:
            self._parts.append(rest)
            self._held_bytes += len(rest)
        if self._held_bytes > self._most_bytes:
            raise ValueError(f"a line of more than {self._most_bytes >> 20} MiB")
        return lines

    @property
    def rest(self) -> bytes:
        """What has come of the next line."""
        return b"".join(self._parts)
