"""What a running reconciler says, and how: plans to stdout, everything else to stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from reconciler.api.meta import ObjectRef
from reconciler.api.problem import Problem
from reconciler.console.edge import wants_colour, width_of
from reconciler.core.observation import Instance, Observation
from reconciler.core.plan import Plan
from reconciler.core.target import Result
from reconciler.loop import Listener, Pass
from reconciler.loop.desired import Desired
from reconciler.report.news import ON_ITS_WAY, News
from reconciler.report.plan_json import plan_json
from reconciler.report.plan_text import plan_text
from reconciler.report.terminal import Style, Tone, hanging, printable, short_revision
from reconciler.source.checkout import Checkout


class Screen:
    """stdout and stderr with one live line at the bottom, for progress bars on a terminal."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.style = Style(wants_colour(sys.stdout))
        self.error_style = Style(wants_colour(sys.stderr))
        self._lock = threading.Lock()
        self._bar = ""
        self._is_used = False

    def out(self, text: str) -> None:
        """Data, with its newline."""
        self._write(sys.stdout, text)

    def show_plan(self, plan: Plan) -> None:
        """A plan for people; on a terminal set apart from what is above it."""
        width = width_of(sys.stdout)
        text = plan_text(plan, time.time(), self.style, width)
        self.out(f"\n{text}" if self._is_used and width else text)

    def say(self, text: str, tone: Tone | None = None) -> None:
        """A line for people, on stderr, with the time of day; a new paragraph has none."""
        stamp = time.strftime("%H:%M:%S ") if text and not text.startswith("\n") else ""
        lines = [stamp + text]
        if "\n" not in text:
            lines = hanging(lines[0], width_of(sys.stderr), len(stamp))
        shown = "\n".join(lines)[len(stamp) :]
        self._write(sys.stderr, f"{stamp}{self.error_style(tone, shown) if tone else shown}\n")

    def bar(self, text: str) -> None:
        """Replace the live line; empty removes it. Nothing without a terminal. It is never
        wider than that: a line that wraps could not be replaced."""
        if not self.live:
            return
        text = text[: (width_of(sys.stderr) or 80) - 1]
        if text == self._bar:
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
            self._is_used = True
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


class Console(Listener):
    """What people and readers of `-o json` see: each thing once, when it changes."""

    def __init__(
        self, screen: Screen, output: str, on_ready: Callable[[Instance], None] | None = None
    ) -> None:
        self._screen = screen
        self._json = output == "json"
        self._on_ready = on_ready or self._say_ready
        self._news = News()
        self._reported_ready: set[ObjectRef] = set()  # of what ran before
        self._followed: Checkout | None = None
        self._refused_after: tuple[Checkout | None] | None = None

    def on_planned(self, planned: Pass) -> None:
        """Print what is new in the plan, with all of it."""
        plan = planned.plan
        self._say_valid_again(planned.desired)
        if not self._news.planned(plan):
            return
        if self._json:
            self._screen.out(json.dumps(plan_json(plan)) + "\n")
        else:
            self._screen.show_plan(plan)

    def _say_valid_again(self, desired: Desired) -> None:
        """Once something else is followed than when a revision was refused."""
        now = desired.checkout
        if self._refused_after is not None and now is not self._refused_after[0]:
            self._refused_after = None
            self._news.refused()
            if not desired.loaded.errors:  # else an agent applied it in part, before a restart
                text = f"{short_revision(now.revision)} is valid, and followed"
                self._screen.say(text, Tone.GOOD)
        self._followed = now

    def on_applied(self, done: Pass) -> None:
        failed = (o for o in self._news.applied(done.outcomes) if o.result is Result.FAILED)
        # a service says what its worst object said: one line for both
        for text in dict.fromkeys(f"{o.change.ref.label}: {printable(o.message)}" for o in failed):
            self._screen.say(text, Tone.BAD)

    def on_refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self._refused_after = (self._followed,)
        for problem in problems:
            self._screen.say(printable(str(problem)), Tone.BAD)
        self._screen.say(
            f"{short_revision(revision)} is refused; what runs stays as it is", Tone.BAD
        )

    def on_held(self, why: str) -> None:
        if self._news.held(why):
            self._screen.say(printable(why), Tone.CHANGE)

    def on_rewritten(self, how: str) -> None:
        self._screen.say(printable(how), Tone.CHANGE)

    def on_source_lost(self, why: str, since: float) -> None:
        if self._news.lost(why):
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
            text = f"{printable(why)}; unreachable since {at}, what runs stays as it is"
            self._screen.say(text, Tone.BAD)

    def on_source_back(self) -> None:
        self._news.back()
        self._screen.say("the fleet's source answers again", Tone.GOOD)

    def on_observed(self, observed: Observation) -> None:
        """Say every service that became ready, stopped being so, or changed its reason."""
        changed, gone = self._news.looked(observed.instances)
        for instance in changed:
            if instance.reason == "Adopted":
                continue  # it runs; whether it answers is about to be known
            if instance.ready:
                self._on_ready(instance)
            else:
                message = "" if instance.reason in ON_ITS_WAY else printable(instance.message)
                text = f"{instance.reason}: {message}" if message else instance.reason
                self._screen.say(f"{instance.ref.label}  {text}")
        for instance, pending in self._news.pending(observed.instances):
            if pending.reason == "NotApplied":  # said when it was tried
                continue
            text = f"update pending: {pending.reason}: {pending.message}".removesuffix(": ")
            self._screen.say(printable(f"{instance.ref.label}  {text}"), Tone.BAD)
        for ref in gone:
            self._screen.say(f"{ref.label}  stopped")

    def _say_ready(self, instance: Instance) -> None:
        where = f" at {instance.endpoint}" if instance.endpoint else ""
        if instance.adopted and instance.ref not in self._reported_ready:
            self._reported_ready.add(instance.ref)
            self._screen.say(f"{instance.ref.label}  already running{where}", Tone.GOOD)
            return
        took = f" after {instance.start_seconds:.1f} s" if instance.start_seconds else ""
        self._screen.say(f"{instance.ref.label}  ready{where}{took}", Tone.GOOD)
