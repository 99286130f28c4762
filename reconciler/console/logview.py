"""Logs of services for people: of one place, or of several at once, each line with its place."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from reconciler.api.errors import ReconcilerError
from reconciler.console.edge import Exit, endings, tell
from reconciler.report.terminal import printable

_LAST_WORDS_S = 1.0  # for what is not a whole line yet; who waits for another machine is left


class LogSource(Protocol):
    def parts(self, ended: threading.Event) -> Iterator[list[bytes]]:
        """Lines without their newlines, as they come, until it is over or `ended`. Raises
        ReconcilerError."""

    def close(self) -> None:
        """End what waits for lines. Any thread."""


def show(sources: Mapping[str, LogSource], *, named: bool = True) -> int:
    """Print them, `named` by their places where there are several. Exit 0, 1 where one of them
    failed, 130 after a signal."""
    ended, done = threading.Event(), queue.SimpleQueue[None]()

    def end() -> None:
        ended.set()
        for source in sources.values():
            source.close()
            done.put(None)

    printer = _Printer(max(map(len, sources)) if named and len(sources) > 1 else 0)
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
        finally:
            done.put(None)

    threads = [threading.Thread(target=copy, args=item, daemon=True) for item in sources.items()]
    with endings(end) as received:
        for thread in threads:
            thread.start()
        for _ in threads:
            done.get()
        for thread in threads if ended.is_set() else ():
            thread.join(_LAST_WORDS_S)
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
