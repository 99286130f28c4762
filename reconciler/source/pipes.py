"""The output of a process, read with a limit and a deadline that the process cannot influence."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Callable
from typing import NamedTuple

_PIECE_BYTES = 2**16
_MOST_STDERR_BYTES = 2**16  # the rest is dropped


class Output(NamedTuple):
    """`is_cut`: stdout had more than the limit; the process may still run."""

    stdout: bytes
    stderr: bytes
    is_cut: bool


def read_output(
    process: subprocess.Popen[bytes], stdin: bytes | None, *, most_bytes: int, deadline_s: float
) -> Output | None:
    """Write `stdin`, and read until the process ends. None if it did not within the deadline.

    The caller ends a process that still runs.
    """
    until = time.monotonic() + deadline_s
    stdout, stderr = _Inbox(most_bytes), _Inbox(_MOST_STDERR_BYTES)
    with selectors.DefaultSelector() as pipes:
        for pipe, event, move in (
            (process.stdout, selectors.EVENT_READ, stdout.take),
            (process.stderr, selectors.EVENT_READ, stderr.take),
            (process.stdin, selectors.EVENT_WRITE, _writer(stdin or b"")),
        ):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                pipes.register(pipe, event, (pipe, move))
        while pipes.get_map() and not stdout.has_more:
            for key, _ in pipes.select(max(0.0, until - time.monotonic())):
                pipe, move = key.data
                if move(key.fd):
                    pipes.unregister(pipe)
                    pipe.close()
            if time.monotonic() > until:
                return None
    if not stdout.has_more:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
    return Output(bytes(stdout.data), bytes(stderr.data), stdout.has_more)


class _Inbox:
    """The first bytes of a pipe."""

    def __init__(self, most_bytes: int) -> None:
        self.data = bytearray()
        self.has_more = False
        self._most_bytes = most_bytes

    def take(self, pipe: int) -> bool:
        """Read what is available; True at the end of the pipe."""
        piece = os.read(pipe, _PIECE_BYTES)
        free = self._most_bytes - len(self.data)
        self.data += piece[:free]
        self.has_more |= len(piece) > free
        return not piece


def _writer(data: bytes) -> Callable[[int], bool]:
    """A function that writes what the pipe takes now; it returns True once all is written."""
    left = memoryview(data)

    def give(pipe: int) -> bool:
        nonlocal left
        try:
            left = left[os.write(pipe, left) :]
        except BrokenPipeError:  # it ended before reading everything: its exit status tells why
            return True
        return not left

    return give
