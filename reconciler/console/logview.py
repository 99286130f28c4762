"""Logs of services for people: of one place, or of several at once, each line with its place."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from reconciler.api.errors import NoAnswer, ReconcilerError
from reconciler.console.edge import Exit, endings, tell
from reconciler.report.terminal import printable

_LATER_S = 2.0
_LAST_WORDS_S = 1.0  # for what is not a whole line yet; who waits for another machine is left


class LogSource(Protocol):
    def parts(self, ended: threading.Event) -> Iterator[list[bytes]]:
        """Lines without their newlines, as they come, until it is over or `ended`. Raises
        ReconcilerError."""

    def close(self) -> None:
        """End what waits for lines. Any thread."""


def show(
    sources: Mapping[str, LogSource],
    *,
    named: bool = True,
    later: Callable[[], Mapping[str, LogSource]] | None = None,
) -> int:
    """Print them, `named` by their places where there are several. `later` is asked again and again
    for those that have come since; with it only a signal ends this. Exit 0, 1 where one of them
    failed, 3 where one was not answered, 130 after a signal."""
    reading = _Reading(named=named)
    with endings(reading.end) as received:
        reading.begin(sources)
        while later is not None and not reading.ended.wait(_LATER_S):
            with contextlib.suppress(NoAnswer):  # who is silent now may answer the next time
                reading.begin(later())
        reading.wait()
    failures = reading.failures
    for failure in failures:
        if not isinstance(failure, ReconcilerError):
            raise failure
    if received:
        return Exit.INTERRUPTED
    if all(isinstance(failure, NoAnswer) for failure in failures):
        return Exit.BLOCKED if failures else Exit.OK
    return Exit.FAILED


class _Reading:
    """A thread for each source, all of which print. `ended`: no more is to be read."""

    def __init__(self, *, named: bool) -> None:
        self.ended = threading.Event()
        self.failures: list[BaseException] = []
        self._done = queue.SimpleQueue[None]()
        self._sources: list[LogSource] = []
        self._threads: list[threading.Thread] = []
        self._printer = _Printer(named=named)

    def begin(self, sources: Mapping[str, LogSource]) -> None:
        self._printer.know(sources)
        self._sources += sources.values()
        for item in sources.items():
            self._threads.append(threading.Thread(target=self._copy, args=item, daemon=True))
            self._threads[-1].start()

    def wait(self) -> None:
        """Until all of them are at their ends, or `end` was called."""
        for _ in self._threads:
            self._done.get()
        for thread in self._threads if self.ended.is_set() else ():
            thread.join(_LAST_WORDS_S)

    def end(self) -> None:
        self.ended.set()
        for source in self._sources:
            source.close()
            self._done.put(None)

    def _copy(self, place: str, source: LogSource) -> None:
        try:
            for lines in source.parts(self.ended):
                self._printer.print(place, lines)
        except ReconcilerError as error:
            self.failures.append(error)
            tell(printable(str(error)))
        except BaseException as error:  # noqa: BLE001 - of a thread: raised by the command
            self.failures.append(error)
            self.end()
        finally:
            self._done.put(None)


class _Printer:
    """Prints for several threads: of several places each line begins with its own, if `named`."""

    def __init__(self, *, named: bool) -> None:
        self._named = named
        self._places: set[str] = set()
        self._lock = threading.Lock()

    def know(self, places: Iterable[str]) -> None:
        with self._lock:
            self._places.update(places)

    def print(self, place: str, lines: Sequence[bytes]) -> None:
        with self._lock:
            is_named = self._named and len(self._places) > 1
            before = f"{place:<{max(map(len, self._places))}}  " if is_named else ""
            for line in lines:
                text = printable(line.decode(errors="replace").rstrip("\r"))
                sys.stdout.write(f"{before}{text}\n")
            sys.stdout.flush()
