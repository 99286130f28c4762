"""Own this machine's node: one pass, or follow commits or files until told to stop."""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.api.meta import ObjectRef
from reconciler.api.problem import Problem
from reconciler.api.quantity import format_duration
from reconciler.cli import local
from reconciler.cli.ahead import headers_of
from reconciler.cli.console import Console, Screen, ScreenLog
from reconciler.cli.fleet import beside_the_commit, open_fleet
from reconciler.cli.progress import ProgressLine
from reconciler.console.edge import Exit, endings, hangups
from reconciler.core.observation import Instance, Observation
from reconciler.core.plan import Plan
from reconciler.core.target import Outcome
from reconciler.loop import Loop, LoopTiming, PlannedRevision, Wake
from reconciler.loop.desired import Desired
from reconciler.report.plan_json import change_json, plan_json
from reconciler.report.terminal import Tone, printable
from reconciler.source.bundle import BundleSource
from reconciler.source.checkout import Source
from reconciler.source.directory import DirectorySource
from reconciler.source.worktree import WorktreeSource

if TYPE_CHECKING:
    from agent.process.launch import ProcessSnapshot

_WATCH_POLL_S = 30.0  # should the watcher miss something
_SETTLE_S = 1.0  # several saves within a moment are one change
_STILL_THERE_MS = 1000  # how often the watched folder is looked for
_REWATCH_S = 1.0

# Of what a run waited for, and what goes on without it.
_GOES_ON = {
    "Downloading": "; what was fetched is kept, and the next run goes on from there",
    "Loading": "; it goes on loading: `fleet-agent status` says when it is ready",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve, beside the words of the command line. `on_ready` says that a service answers,
    in the place of the usual line; True: that was all, stop. So does `is_hopeless` of a plan."""

    interval_s: float = 30.0
    timeout_s: float = 600.0
    debounce_s: float = 2.0  # of --watch: removals wait out an editor, a rebase, a stash
    on_ready: Callable[[Instance, Screen], bool] | None = None
    is_hopeless: Callable[[Plan], bool] = lambda _: False
    ends_refused: bool = False  # a run without a terminal: what is not valid stays so
    deadline_s: float | None = None  # stop after so long, whatever happened


def serve(args: argparse.Namespace, service: ServeOptions) -> int:
    """Run until the pass is done, or until a signal."""
    source = open_fleet(args, working_tree=args.watch)
    if args.watch and not isinstance(source, DirectorySource | WorktreeSource):
        raise UsageError("--watch follows the files of a folder: -C must be one, without --ref")
    from agent.node.node import Following, owned

    screen, wake = Screen(), Wake()
    log_to(screen)
    for line in () if args.watch else beside_the_commit(args):
        screen.say(line, Tone.CHANGE)
    ready = _ready_line(service, screen, wake)
    refused = wake.stop if service.ends_refused else lambda: None
    ends = _end_of(service, wake)
    console = _Recorder(screen, args.output, ready, ends, refused, quiet=args.once)
    following = Following(
        LoopTiming(
            poll_s=_WATCH_POLL_S if args.watch else service.interval_s,
            quiet_s=service.debounce_s if args.watch else 0.0,
            settle_s=_SETTLE_S if args.watch else 0.0,
        ),
        confirmed=frozenset(args.confirm),
        busy=_busy(source) if args.watch else lambda: None,
    )
    headers = headers_of(
        args, screen, node=None, here=True, follows=not args.once, changed=wake.look
    )
    headers.beside = source.beside if isinstance(source, BundleSource) else None
    node = owned(
        source,
        args.local or None,
        local.settings(args),
        wake,
        console,
        following,
        stop_children=args.stop_on_exit,
        headers=headers,
    )
    with hangups(wake.fetch), node as here:
        if here.journal.damage:
            screen.say(here.journal.damage)
        if args.watch and service.on_ready is None:
            screen.say(_watching(source, args.stop_on_exit))
        progress = ProgressLine(screen, here.agent.store.downloads, here.agent.store.stored_bytes)
        alarm = threading.Timer(service.deadline_s or 0.0, wake.stop)
        try:
            if service.deadline_s is not None:
                alarm.start()
            with endings(wake.stop) as received:
                if args.once:
                    return _once(here.loop, console, service.timeout_s)
                return _follow(here.loop, source, args.watch, received)
        finally:
            alarm.cancel()
            progress.close()
            running = here.agent.processes.snapshot()
            if args.stop_on_exit and running:
                _say_stopping(screen, running)
            elif not args.once:
                _say_left_running(screen, running, args.state_dir)


def _watching(source: Source, stop_on_exit: bool) -> str:
    ended = "the watch and the models" if stop_on_exit else "the watch, the models go on"
    return (
        f"watching the files in {source.location}: what is saved is applied once they have"
        f" been still for {_SETTLE_S:g} s; Ctrl-C ends {ended}"
    )


def _say_stopping(screen: Screen, states: Iterable[ProcessSnapshot]) -> None:
    names = ", ".join(state.ref.label for state in states)
    if screen.live:
        screen.say("")  # the terminal has shown ^C
    screen.say(f"stops {names}: requests in flight may finish first; Ctrl-C leaves them running")


def _say_left_running(
    screen: Screen, states: Iterable[ProcessSnapshot], state_dir: str | None
) -> None:
    """The models go on: who pressed Ctrl-C may not expect that, and wants to know how to end it."""
    where = f" --state-dir {shlex.quote(state_dir)}" if state_dir else ""
    if screen.live:
        screen.say("")  # the terminal has shown ^C
    for state in states:
        if state.pid is not None:
            at = f" at {state.launch.url}" if state.ready else ""
            stop = f"fleet-agent stop {shlex.quote(state.ref.label)}{where}"
            screen.say(f"left running: {state.ref.label}{at}; `{stop}` ends it")


def log_to(screen: Screen) -> None:
    for name in ("reconciler", "agent"):
        logger = logging.getLogger(name)
        logger.handlers = [ScreenLog(screen)]
        logger.propagate = False
    # The console says a failed download already, with its service.
    logging.getLogger("agent.models.downloads").setLevel(logging.ERROR)


def _ready_line(
    service: ServeOptions, screen: Screen, wake: Wake
) -> Callable[[Instance], None] | None:
    on_ready = service.on_ready
    if on_ready is None:
        return None

    def say(instance: Instance) -> None:
        if on_ready(instance, screen):
            wake.stop()

    return say


def _end_of(service: ServeOptions, wake: Wake) -> Callable[[Plan], None]:
    def look(plan: Plan) -> None:
        if service.is_hopeless(plan):
            wake.stop()

    return look


class _Recorder(Console):
    """A Console that also keeps the first plan and every outcome, for --once."""

    def __init__(
        self,
        screen: Screen,
        output: str,
        on_ready: Callable[[Instance], None] | None,
        on_plan: Callable[[Plan], None],
        on_refused: Callable[[], None],
        *,
        quiet: bool,
    ) -> None:
        super().__init__(screen, output, on_ready)
        self._screen_out = screen
        self._hold_json = quiet and output == "json"
        self.first: Plan | None = None
        self.last: Plan | None = None
        self.observed: Observation | None = None
        self.outcomes: list[Outcome] = []
        self.failed = False  # the newest revision could not be had, or is invalid
        self._on_plan = on_plan
        self._on_refused = on_refused

    def refused(self, revision: str, problems: tuple[Problem, ...]) -> None:
        self.failed = True
        super().refused(revision, problems)
        self._on_refused()

    def source_lost(self, why: str, since: float) -> None:
        self.failed = True
        super().source_lost(why, since)

    def planned(self, plan: Plan, desired: Desired) -> None:
        self.first = self.first or plan
        self.last = plan
        if not self._hold_json:
            super().planned(plan, desired)
        self._on_plan(plan)

    def applied(self, planned: PlannedRevision, outcomes: tuple[Outcome, ...]) -> None:
        self.outcomes += outcomes
        super().applied(planned, outcomes)

    def looked(self, observed: Observation) -> None:
        self.observed = observed
        super().looked(observed)

    def say_missing(self, waiting: _Waiting, timeout_s: float) -> None:
        """At the end of a run that waited in vain: what for, a line a service."""
        said = {o.change.ref: o.message for o in self.outcomes if o.message}
        for ref, instance in waiting.items():
            why = said.get(ref) or "not there yet"
            if instance is not None:
                why = ": ".join(filter(None, (instance.reason, instance.message)))
            more = _GOES_ON.get(instance.reason if instance else "", "")
            self._screen_out.say(
                printable(
                    f"{ref.label}  not as declared after {format_duration(round(timeout_s))}"
                    f" (--timeout): {why}{more}"
                ),
                Tone.BAD,
            )

    def print_once(self) -> None:
        """The plan with what became of its changes, as `--once -o json` promises."""
        if self._hold_json and self.first is not None:
            done = [
                {"change": change_json(o.change), "result": str(o.result), "message": o.message}
                for o in self.outcomes
            ]
            text = json.dumps(plan_json(self.first) | {"outcomes": done}, indent=2)
            self._screen_out.out(text + "\n")


def _busy(source: Source) -> Callable[[], str | None]:
    """Whether git is in the middle of something in the watched tree."""
    from reconciler.source.worktree import busy

    return lambda: busy(Path(source.location))


def _once(loop: Loop, console: _Recorder, timeout_s: float) -> int:
    """One pass, then wait until everything that should run answers."""
    loop.fetch()
    if loop.desired is None:
        return Exit.BLOCKED if loop.held else Exit.FAILED
    deadline = monotonic() + timeout_s
    while not loop.wake.stopped:
        loop.sync()
        assert console.last is not None
        assert console.observed is not None
        waiting = _waiting(loop.desired, console.last, console.observed)
        is_over = monotonic() >= deadline
        if not waiting or is_over or all(map(_is_final, waiting.values())):
            if is_over:
                console.say_missing(waiting, timeout_s)
            console.print_once()
            if console.failed:
                return Exit.FAILED
            if loop.held:
                return Exit.BLOCKED
            return Exit.BLOCKED if waiting or console.last.blocked else Exit.OK
        loop.wake.wait(min(1.0, max(0.0, deadline - monotonic())))
    return Exit.INTERRUPTED


_Waiting = Mapping[ObjectRef, Instance | None]


def _waiting(desired: Desired, plan: Plan, observed: Observation) -> _Waiting:
    """What is not as it should be yet: an instance that is not ready, None for one to come."""
    held = {ref for item in plan.blocked for ref in (item.ref, *item.holds)}
    wanted = {
        w.ref: w
        for w in desired.assignment.workloads
        if (state := observed.targets.get(w.target))
        and not (w.suspended or w.ref in held or state.keeps_stopped(w))
    }
    there = {i.ref: i for i in observed.instances}
    late = {ref: there.get(ref) for ref in wanted}
    waiting = {ref: i for ref, i in late.items() if i is None or not i.ready}
    pending = {c.ref: there.get(c.ref) for c in plan.changes if not c.is_shown_only}
    return waiting or {ref: i and _as_it_comes(i) for ref, i in pending.items()}


def _as_it_comes(instance: Instance) -> Instance | None:
    """Its successor, which waits for something; None where nothing is known of that."""
    if instance.pending is None:
        return None
    pending = instance.pending
    return replace(instance, ready=False, reason=pending.reason, message=pending.message)


def _is_final(instance: Instance | None) -> bool:
    """Whether waiting longer cannot help: only other bytes or another commit will."""
    from agent.process.exits import PERMANENT

    return instance is not None and instance.reason in PERMANENT


def _follow(loop: Loop, source: Source, watch: bool, received: list[int]) -> int:
    stop = threading.Event()
    watcher = threading.Thread(
        target=watch_files,
        args=(Path(source.location), loop.wake, stop),
        name="watch",
        daemon=True,
    )
    if watch:
        watcher.start()
    try:
        loop.run()
    finally:
        stop.set()
    return Exit.INTERRUPTED if signal.SIGINT in received else Exit.OK


def watch_files(folder: Path, wake: Wake, stop: threading.Event) -> None:
    """Wake the loop on every change below the folder; git's own bookkeeping says nothing.

    A folder that is taken away and put back is another folder: it is watched again from the start.
    """
    from watchfiles import watch

    while not stop.is_set():
        try:
            watched = folder.stat().st_ino
            changes = watch(
                folder,
                watch_filter=lambda _, path: "/.git/" not in path,
                debounce=50,
                step=20,
                rust_timeout=_STILL_THERE_MS,
                yield_on_timeout=True,
                stop_event=stop,
                raise_interrupt=False,
            )
            is_new = True
            for change in changes:
                if change or is_new:  # what changed before the watch began is not seen yet
                    wake.fetch()
                is_new = False
                if folder.stat().st_ino != watched:
                    break
        except OSError as error:
            log.debug("%s cannot be watched now: %s", folder, error)
        wake.fetch()
        stop.wait(_REWATCH_S)
