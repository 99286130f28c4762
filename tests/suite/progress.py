"""What a run says while it is under way: one line that changes, or a line a minute in a pipe."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.suite.schedule import Case, seconds_left

_TERMINAL_S, _PIPE_S = 0.5, 60.0
_CLEAR = "\r\x1b[K"


@dataclass
class Progress:
    """How far a run is. Any thread may ask for its line."""

    workers: int
    cases: dict[str, Case] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)  # test -> when it began
    done: dict[str, float] = field(default_factory=dict)  # test -> seconds
    failed: list[str] = field(default_factory=list)
    waits: Callable[[], Iterable[str]] = tuple  # for what is being built
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def begins(self, test: str) -> None:
        self.running[test] = self.clock()

    def ends(self, test: str) -> None:
        began = self.running.pop(test, None)
        self.done[test] = self.clock() - began if began is not None else 0.0

    def fails(self, test: str) -> None:
        if test not in self.failed:
            self.failed.append(test)

    def line(self, width: int) -> str:
        """`04:10  1,204 of 3,463 done, 0 failed, about 6 min left  test_chaos.py (48 s)`."""
        now = self.clock()
        parts = [f"{_clock(now - self.began)}  {len(self.done):,}"]
        parts += [f" of {len(self.cases):,} done, {len(self.failed)} failed"]
        if self.done and self.cases:
            parts.append(f", {_about(self.left_s())} left")
        if building := [*self.waits()]:
            parts.append(f", building {' and '.join(building)}")
        for test, began in sorted(self.running.copy().items(), key=lambda item: item[1]):
            name = test.rpartition("::")[2]
            parts.append(f"  {name} ({now - began:.0f} s)")
        text = "".join(parts)
        return text if len(text) <= width else f"{text[: width - 3]}..."

    def left_s(self) -> float:
        """By what the table of durations says, and how right it has been so far."""
        done = [self.cases[test] for test in tuple(self.done) if test in self.cases]
        left = [case for test, case in tuple(self.cases.items()) if test not in self.done]
        expected = seconds_left(done, self.workers)
        pace = (self.clock() - self.began) / expected if expected > 5.0 else 1.0
        return seconds_left(left, self.workers) * min(max(pace, 0.5), 4.0)


class Printer:
    """Prints a run's line until it is stopped. Other lines go through `say`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._terminal = sys.stdout.isatty()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        if self._terminal:
            self._write(_CLEAR)

    def say(self, text: str) -> None:
        self._write(f"{_CLEAR if self._terminal else ''}{text}\n")

    def _run(self) -> None:
        while not self._stopped.wait(_TERMINAL_S if self._terminal else _PIPE_S):
            if self._terminal:
                width = shutil.get_terminal_size().columns - 1
                self._write(f"{_CLEAR}{self._progress.line(width)}")
            else:
                self._write(f"{self._progress.line(200)}\n")

    def _write(self, text: str) -> None:
        with self._lock:
            sys.stdout.write(text)
            sys.stdout.flush()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


def _about(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else "about a minute"
