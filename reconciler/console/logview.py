"""Logs of services for people: of one place, or of several at once, each line with its place."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from reconciler.api.errors import ReconcilerError
from reconciler.console.edge import Exit, endings, tell
from reconciler.report.terminal import printable


class LogSource(Protocol):
    def parts(self, ended: threading.Event) -> Iterator[list[bytes]]:
        """Lines without their newlines, as they come, until it is over or `ended`. Raises
        ReconcilerError."""

    def close(self) -> None:
        """End what waits for lines. Any thread."""


def show(sources: Mapping[str, LogSource]) -> int:
    """Print them by the names of their places. Exit 0, 1 where one of them failed, 130 after a
    signal."""
    ended = threading.Event()

    def end() -> None:
        ended.set()
        for source in sources.values():
            source.close()

    printer = _Printer(longest=max(map(len, sources)) if len(sources) > 1 else 0)
    failures: list[BaseException] = []

    def copy(place: str, source: LogSource) -> None:
        try:
            for lines in source.parts(ended):
                printer.print(place, lines)
        except ReconcilerError as error:
            failures.append(error)
        except BaseException as error:  # noqa: BLE001 - of a thread: raised by the command
            failures.append(error)
            end()

    threads = [threading.Thread(target=copy, args=item, daemon=True) for item in sources.items()]
    with endings(end) as received:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for failure in failures:
        if not isinstance(failure, ReconcilerError):
            raise failure
        tell(printable(str(failure)))
    if received:
        return Exit.INTERRUPTED
    return Exit.FAILED if failures else Exit.OK


class _Printer:
    """Prints for several threads; `longest`: of the places' names, 0: they are not printed."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._lock = threading.Lock()

    def print(self, place: str, lines: Sequence[bytes]) -> None:
        before = f"{place:<{self._longest}}  " if self._longest else ""
        with self._lock:
            for line in lines:
                text = printable(line.decode(errors="replace").rstrip("\r"))
                sys.stdout.write(f"{before}{text}\n")
            sys.stdout.flush()
