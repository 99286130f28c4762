"""Own this machine's node: one pass, or follow commits or files until told to stop."""

from __future__ import annotations

import argparse
import contextlib
import logging
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.cli import local
from reconciler.cli.console import Screen, ScreenLog
from reconciler.cli.fleet import beside_the_commit, open_fleet
from reconciler.cli.headers import headers_of
from reconciler.cli.once import Recorder, once
from reconciler.cli.progress import ProgressLine
from reconciler.cli.watching import watch_files
from reconciler.console.edge import Exit, endings, hangups
from reconciler.console.value import Listen
from reconciler.core.observation import Instance
from reconciler.core.plan import Plan
from reconciler.loop import Loop, LoopTiming, Wake
from reconciler.report.terminal import Tone
from reconciler.source.checkout import Source
from reconciler.source.directory import DirectorySource
from reconciler.source.worktree import WorktreeSource

if TYPE_CHECKING:
    from agent.node.follow_options import FollowOptions
    from agent.node.node import Node
    from agent.process.launch import ProcessSnapshot

_WATCH_POLL_S = 30.0  # should the watcher miss something
_SETTLE_S = 1.0  # several saves within a moment are one change


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
    listen: Listen | None = None  # serve the node's page there
    on_page: Callable[[str], None] | None = None  # serve it on a free port, and say where


def serve(args: argparse.Namespace, service: ServeOptions) -> int:
    """Run until the pass is done, or until a signal."""
    source = open_fleet(args, working_tree=args.watch)
    if args.watch and not isinstance(source, DirectorySource | WorktreeSource):
        raise UsageError("watch follows the files of a folder: -C must be one, without --ref")
    from agent.node.node import owned

    screen, wake = Screen(), Wake()
    log_to(screen)
    for line in () if args.watch else beside_the_commit(args):
        screen.say(line, Tone.CHANGE)
    ready = _ready_line(service, screen, wake)
    refused = wake.stop if service.ends_refused else lambda: None
    ends = _end_of(service, wake)
    console = Recorder(screen, args.output, ready, ends, refused, quiet=args.once)
    headers = headers_of(
        *(args, screen, source),
        node=None,
        here=True,
        follows=not args.once,
        changed=wake.pass_now,
    )
    node = owned(
        source,
        args.local or None,
        local.settings(args),
        wake,
        [console],
        _follow_options(args, service, source),
        stop_children=args.stop_on_exit,
        headers=headers,
    )
    with hangups(wake.fetch), node as here, _page(here, wake, service, screen):
        if here.journal.damage:
            screen.say(here.journal.damage)
        if args.watch and service.on_ready is None:
            screen.say(_watching(source, args.stop_on_exit))
        progress = ProgressLine(screen, here.agent.store.downloads, here.agent.store.stored_bytes)
        alarm = threading.Timer(service.deadline_s or 0.0, wake.stop)
        received: list[int] = []
        try:
            if service.deadline_s is not None:
                alarm.start()
            with endings(wake.stop) as received:
                if args.once:
                    return once(here.loop, console, service.timeout_s)
                return _follow(here.loop, source, args.watch, received)
        finally:
            alarm.cancel()
            progress.close(interrupted=bool(received))
            running = here.agent.processes.snapshot()
            if args.stop_on_exit and running:
                _say_stopping(screen, running)
            elif not args.once:
                _say_left_running(screen, running, args.state_dir)


@contextlib.contextmanager
def _page(node: Node, wake: Wake, service: ServeOptions, screen: Screen) -> Iterator[None]:
    """The node's page, where one is asked for."""
    listen, on_page = service.listen, service.on_page
    if listen is None and on_page is None:
        yield
        return
    from agent.server import ListenSettings, serve_state
    from agent.server.board import StateBoard

    board = StateBoard(node.agent.processes)
    node.loop.listeners.add(board)
    where = ListenSettings(port=0) if listen is None else ListenSettings(listen.host, listen.port)
    with serve_state(node, board, where, wake) as server:
        served = server.wait()
        if served.url is None:
            screen.say(f"the page is not served: {served.problem}", Tone.CHANGE)
        elif on_page is not None:
            on_page(served.url)
        else:
            screen.say(f"the page is served on {served.url}")
        yield


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


def _follow_options(
    args: argparse.Namespace, service: ServeOptions, source: Source
) -> FollowOptions:
    from agent.node.follow_options import FollowOptions

    timing = LoopTiming(service.interval_s)
    if args.watch:
        timing = LoopTiming(_WATCH_POLL_S, quiet_s=service.debounce_s, settle_s=_SETTLE_S)
    busy = _busy(source) if args.watch else lambda: None
    return FollowOptions(timing, confirmed=frozenset(args.confirm), busy=busy)


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
    def publish(plan: Plan) -> None:
        if service.is_hopeless(plan):
            wake.stop()

    return publish


def _busy(source: Source) -> Callable[[], str | None]:
    """Whether git is in the middle of something in the watched tree."""
    from reconciler.source.busy import busy

    return lambda: busy(Path(source.location))


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
