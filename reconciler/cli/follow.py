"""Keep a status on the screen, until somebody has seen enough."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from typing import Any

from reconciler.cli.fleet import read_desired
from reconciler.cli.look import Looker
from reconciler.desired import Desired
from reconciler.edge import Exit, endings, view_of
from reconciler.errors import InvalidFleet, SourceError
from reconciler.report.status import Status, status_json
from reconciler.report.status_text import status_text
from reconciler.report.terminal import printable
from reconciler.source.checkout import Source
from reconciler.source.load import reader

_EVERY_S = 2.0
_FETCH_EVERY_S = 30.0
# What moves by itself is no news where every print stays on the page.
_RESTLESS = frozenset({"seenAt", "receivedBytes", "usedByOthersBytes"})


def follow(args: argparse.Namespace, source: Source, desired: Desired, looker: Looker) -> int:
    """Look again and again: redrawn on a terminal, else printed when something changed. Until a
    signal: exit 130."""
    ended = threading.Event()
    with endings(ended.set):
        _look_until(ended, args, source, desired, looker)
    return Exit.INTERRUPTED


def _look_until(
    ended: threading.Event,
    args: argparse.Namespace,
    source: Source,
    desired: Desired,
    looker: Looker,
) -> None:
    screen = _Redrawn() if sys.stdout.isatty() and args.output == "text" else None
    newest = _Newest(source, desired)
    before: Any = None
    while not ended.is_set():
        status = looker.look(newest.desired())
        found = status_json(status)
        if screen is not None:
            screen.draw(status)
        elif (news := _settled(found)) != before:
            before = news
            text = json.dumps(found) + "\n" if args.output == "json" else _text(status) + "\n"
            sys.stdout.write(text)
            sys.stdout.flush()
        ended.wait(_EVERY_S)


class _Newest:
    """The fleet's newest valid revision: while there is none, the one before."""

    def __init__(self, source: Source, desired: Desired) -> None:
        self._source = source
        self._desired = desired
        self._read = reader()
        self._again_at = time.monotonic() + _FETCH_EVERY_S
        self._said = ""

    def desired(self) -> Desired:
        if time.monotonic() >= self._again_at:
            self._again_at = time.monotonic() + _FETCH_EVERY_S
            try:
                self._desired = read_desired(self._source, read=self._read, before=self._desired)
                self._said = ""
            except (SourceError, InvalidFleet) as error:
                if str(error) != self._said:
                    self._said = str(error)
                    print(printable(self._said), file=sys.stderr)
        return self._desired


def _text(status: Status) -> str:
    return status_text(status, view_of(sys.stdout))


def _settled(found: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The same without what changes all the time."""
    if isinstance(found, dict):
        return {k: _settled(v) for k, v in found.items() if k not in _RESTLESS}
    return [_settled(item) for item in found] if isinstance(found, list) else found


class _Redrawn:
    """The last lines of a terminal, written over: what stood above stays."""

    def __init__(self) -> None:
        self._lines = 0
        self._size: os.terminal_size | None = None

    def draw(self, status: Status) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        lines = _text(status).splitlines()
        if len(lines) >= size.lines:  # the cursor cannot go up to what has left the screen
            more = len(lines) - size.lines + 2
            lines = [*lines[: size.lines - 2], f"... {more} more lines: make the window higher"]
        # After a change of size nobody knows where the old lines stand.
        up = f"\x1b[{self._lines}A" if self._lines else ""
        back = up if self._size in (None, size) else "\x1b[H\x1b[2J"
        sys.stdout.write(f"{back}\r\x1b[J" + "\n".join(lines) + "\n")
        sys.stdout.flush()
        self._lines, self._size = len(lines), size
