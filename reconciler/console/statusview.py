"""A status for people and programs: shown once, or kept current until Ctrl-C.

`reconcile status` and `fleet-agent status` find it in different ways and show it in this one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from reconciler.api.errors import UsageError
from reconciler.api.meta import ObjectRef
from reconciler.console.edge import Exit, endings, view_of, window_of
from reconciler.console.named import hint, named_service
from reconciler.report.status import Status
from reconciler.report.status_json import status_json
from reconciler.report.status_text import StatusStyle, status_text, well_rows

_EVERY_S = 2.0
# What changes all the time is left out where every print stays on the page.
_RESTLESS = frozenset({"seenAt", "receivedBytes", "usedByOthersBytes"})


def chosen(args: argparse.Namespace, status: Status) -> Status:
    """What was asked for. Raises UsageError for an unknown name."""
    if unknown := sorted(_refs(args) - status.refs):
        have = sorted(ref.label for ref in status.refs)
        label = unknown[0].label
        raise UsageError(f"{label}: no such service{hint(label, have)}")
    return _narrowed(args, status)


def _narrowed(args: argparse.Namespace, status: Status) -> Status:
    refs = _refs(args)
    return status.narrowed(refs) if refs else status


def _refs(args: argparse.Namespace) -> frozenset[ObjectRef]:
    return frozenset(map(named_service, args.names))


def show(args: argparse.Namespace, status: Status) -> None:
    """Once, to stdout."""
    if args.output == "json":
        print(json.dumps(status_json(status, all_services=not args.not_ready), indent=2))
    else:
        sys.stdout.write(_text(args, status))


def follow(args: argparse.Namespace, read: Callable[[], Status]) -> int:
    """Look again and again: redrawn on a terminal, else printed when something changed. Until a
    signal: exit 130."""
    ended = threading.Event()
    with endings(ended.set):
        _look_until(ended, args, read)
    return Exit.INTERRUPTED


def _look_until(
    ended: threading.Event, args: argparse.Namespace, read: Callable[[], Status]
) -> None:
    screen = Redrawn() if sys.stdout.isatty() and args.output == "text" else None
    before: Any = None
    status = chosen(args, read())
    while not ended.is_set():
        shown = status_json(status, all_services=not args.not_ready)
        if screen is not None:
            screen.draw(partial(_fitted, args, status))
        elif (news := _settled(shown)) != before:
            before = news
            text = json.dumps(shown) if args.output == "json" else _text(args, status)
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        if not ended.wait(_EVERY_S):
            status = _narrowed(args, read())


def _fitted(args: argparse.Namespace, status: Status, height: int) -> list[str]:
    return fitting(status, view_of(sys.stdout), height, not_ready=args.not_ready)


def _text(args: argparse.Namespace, status: Status) -> str:
    return status_text(status, view_of(sys.stdout), well=0 if args.not_ready else None)


def _settled(document: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The same without what changes all the time."""
    if isinstance(document, dict):
        return {k: _settled(v) for k, v in document.items() if k not in _RESTLESS}
    return [_settled(item) for item in document] if isinstance(document, list) else document


def fitting(status: Status, view: StatusStyle, height: int, *, not_ready: bool) -> list[str]:
    """The lines for a window: of what is well as much as there is room for."""
    well = 0 if not_ready else well_rows(status, view)
    while True:
        lines = status_text(status, view, well=well).splitlines()
        over = len(lines) - height + 1
        if over <= 0 or not well:
            return cut(lines, height)
        well = max(0, well - over)


def cut(lines: list[str], height: int) -> list[str]:
    """Keep as many lines as fit a window, the totals among them: the cursor cannot go up to what
    has left the screen."""
    if len(lines) < height:
        return lines
    more = len(lines) - height + 2
    return [
        *lines[: max(0, height - 3)],
        f"... {more} more lines: make the window higher",
        lines[-1],
    ]


class Redrawn:
    """The last lines of a terminal, written over: what stood above stays."""

    def __init__(self) -> None:
        self._lines = 0
        self._size: os.terminal_size | None = None

    def draw(self, text: Callable[[int], list[str]]) -> None:
        """`text` are the lines for a window of a height."""
        size = window_of(sys.stdout)
        lines = text(size.lines)
        # After a change of size the place of the old lines is not known.
        up = f"\x1b[{self._lines}A" if self._lines else ""
        back = up if self._size in (None, size) else "\x1b[H\x1b[2J"
        sys.stdout.write(f"{back}\r\x1b[J" + "\n".join(lines) + "\n")
        sys.stdout.flush()
        self._lines, self._size = len(lines), size
