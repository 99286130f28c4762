"""What a running reconciler says, and how: plans to stdout, everything else to stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TextIO

from reconciler.api.quantity import show_bytes
from reconciler.desired import Desired
from reconciler.edge import wants_colour
from reconciler.plan import Instance, Observation, Plan
from reconciler.problem import Problem
from reconciler.report.news import ON_ITS_WAY, News
from reconciler.report.plan_json import plan_json
from reconciler.report.plan_text import plan_text
from reconciler.report.terminal import Style, Tone, printable
from reconciler.target import Outcome, Result

_BAR_WIDTH = 28
_BAR_EVERY_S = 0.2


class Download(Protocol):
    """What a progress bar shows of one model on its way."""

    @property
    def model(self) -> str: ...
    @property
    def received_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int | None: ...


class Screen:
    """stdout and stderr with one live line at the bottom, for progress bars on a terminal."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.style = Style(wants_colour(sys.stdout))
        self.error_style = Style(wants_colour(sys.stderr))
        self._lock = threading.Lock()
        self._bar = ""

    def out(self, text: str) -> None:
        """Data, with its newline."""
        self._write(sys.stdout, text)

    def say(self, text: str, tone: Tone | None = None) -> None:
        """A line for people, on stderr, with the time of day when nobody sits at a terminal."""
        words = self.error_style(tone, text) if tone else text
        stamp = "" if self.live else time.strftime("%H:%M:%S ")
        self._write(sys.stderr, f"{stamp}{words}\n")

    def bar(self, text: str) -> None:
        """Replace the live line; empty removes it. Nothing where no terminal looks."""
        if not self.live or text == self._bar:
            return
        with self._lock:
            self._bar = text
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def _write(self, stream: TextIO, text: str) -> None:
        with self._lock:
            if self._bar:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            stream.write(text)
            stream.flush()
            if self._bar:
                sys.stderr.write(self._bar)
                sys.stderr.flush()


class ScreenLog(logging.Handler):
    """Log lines that a person should see, above the live line; tracebacks only when debugging."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        tone = Tone.CHANGE if record.levelno >= logging.WARNING else None
        self._screen.say(printable(record.getMessage()), tone)
        if record.exc_info and os.environ.get("FLEET_DEBUG"):
            self._screen.say(logging.Formatter().formatException(record.exc_info))


class Progress:
    """Shows downloads on the screen's live line while they last."""

    def __init__(self, screen: Screen, downloads: Callable[[], Iterable[Download]]) -> None:
        self._screen = screen
        self._downloads = downloads
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        if screen.live:
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._screen.bar("")

    def _run(self) -> None:
        while not self._stop.wait(_BAR_EVERY_S):
            now = time.monotonic()
            self._screen.bar("   ".join(_bar(d, now) for d in self._downloads()))


def _bar(download: Download, now: float) -> str:
    """How full it is, or, where nobody knows the size, that it moves."""
    name, got, total = printable(download.model), download.received_bytes, download.total_bytes
    if not total:
        at = int(now / _BAR_EVERY_S) % (_BAR_WIDTH - 3)
        return f"{name} [{'-' * at}###{'-' * (_BAR_WIDTH - 3 - at)}] {show_bytes(got)}"
    filled = min(_BAR_WIDTH, _BAR_WIDTH * got // total)
    bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
    return (
        f"{name} [{bar}] {min(100, 100 * got // total)} %  {show_bytes(got)} of {show_bytes(total)}"
    )


class Console:
    """The loop's Reporter for people and for `-o json`: says each thing once, when it changes."""

    def __init__(
        self, screen: Screen, output: str, on_ready: Callable[[Instance], None] | None = None
    ) -> None:
        self._screen = screen
        self._json = output == "json"
        self._on_ready = on_ready or self._say_ready
        self._news = News()

    def planned(self, plan: Plan, desired: Desired) -> None:
        """Print what is new in the plan, with all of it."""
        if not self._news.planned(plan):
            return
        if self._json:
            self._screen.out(json.dumps(plan_json(plan)) + "\n")
        else:
            self._screen.out(plan_text(plan, time.time(), self._screen.style))

    def applied(self, outcomes: tuple[Outcome, ...]) -> None:
        failed = (o for o in self._news.applied(outcomes) if o.result is Result.FAILED)
        # a service says what its worst object said: one line for both
        for text in dict.fromkeys(f"{o.change.ref.label}: {printable(o.message)}" for o in failed):
            self._screen.say(text, Tone.BAD)

    def refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self._news.refused()
        for problem in problems:
            self._screen.say(printable(str(problem)), Tone.BAD)
        short = revision.split("+")[0][:12] if "+" not in revision else revision
        self._screen.say(f"{short} is refused; what runs stays as it is", Tone.BAD)

    def held(self, why: str) -> None:
        if self._news.held(why):
            self._screen.say(printable(why), Tone.CHANGE)

    def source_lost(self, why: str, since: float) -> None:
        if self._news.lost(why):
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
            words = f"{printable(why)}; unreachable since {at}, what runs stays as it is"
            self._screen.say(words, Tone.BAD)

    def source_back(self) -> None:
        self._news.back()
        self._screen.say("the fleet's source answers again", Tone.GOOD)

    def looked(self, observed: Observation) -> None:
        """Say every service that became ready, stopped being so, or changed its reason."""
        changed, gone = self._news.looked(observed.instances)
        for instance in changed:
            if instance.ready:
                self._on_ready(instance)
            else:
                message = "" if instance.reason in ON_ITS_WAY else printable(instance.message)
                words = f"{instance.reason}: {message}" if message else instance.reason
                self._screen.say(f"{instance.ref.label}  {words}")
        for ref in gone:
            self._screen.say(f"{ref.label}  stopped")

    def _say_ready(self, instance: Instance) -> None:
        took = f" after {instance.start_seconds:.1f} s" if instance.start_seconds else ""
        where = f" at {instance.endpoint}" if instance.endpoint else ""
        self._screen.say(f"{instance.ref.label}  ready{where}{took}", Tone.GOOD)
