"""The daemon: follow a source as this machine's agent until a signal, and say what happens."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.daemon.log import DaemonLog, log_to, say
from agent.node.follow_options import FollowOptions
from agent.node.node import Node, owned
from agent.node.settings import Settings
from agent.server import ListenSettings, serve_state
from agent.server.board import StateBoard
from reconciler import __version__
from reconciler.console.edge import Exit, endings, hangups
from reconciler.loop import LoopTiming, Wake
from reconciler.source.address import redact_url
from reconciler.source.checkout import Source


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """How to serve. `node` is the FleetNode that a person says this machine is, or None."""

    node: str | None = None
    listen: ListenSettings = field(default_factory=ListenSettings)
    interval_s: float = 30.0
    strict: bool = False  # no head that does not build on the applied one
    confirmed: frozenset[str] = frozenset()  # the words that release removals
    log_level: str = "info"
    stop_on_exit: bool = False


Beside = Callable[[Node, StateBoard], contextlib.AbstractContextManager[None]]
"""What goes on while the loop runs, in threads of its own."""


def _nothing(_node: Node, _board: StateBoard) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def run(
    open_source: Callable[[], Source],
    settings: Settings,
    service: DaemonOptions,
    wake: Wake,
    beside: Beside = _nothing,
) -> int:
    """Until SIGTERM or SIGINT; the models go on unless `stop_on_exit`. SIGHUP polls at once.

    Raises StateError, UsageError or SourceError where it cannot begin.
    """

    log = log_to(sys.stderr, service.log_level)
    timing = LoopTiming(poll_s=service.interval_s)
    following = FollowOptions(
        timing, strict=service.strict, own_slice=True, confirmed=service.confirmed
    )
    with contextlib.ExitStack() as resources:
        resources.enter_context(hangups(wake.fetch))
        source = open_source()
        node = resources.enter_context(
            owned(
                source,
                service.node,
                settings,
                wake,
                [DaemonLog(log)],
                following,
                stop_children=service.stop_on_exit,
            )
        )
        _say_beginning(log, node, settings, service)
        board = StateBoard(node.agent.processes)
        node.loop.listeners.add(board)
        resources.enter_context(serve_state(node, board, service.listen, wake))
        resources.enter_context(beside(node, board))
        received = resources.enter_context(endings(wake.stop))
        node.loop.run()
        _say_end(log, node, stops=service.stop_on_exit)
    return Exit.INTERRUPTED if signal.SIGINT in received else Exit.OK


def _say_beginning(
    log: logging.Logger, node: Node, settings: Settings, service: DaemonOptions
) -> None:
    """Everything that was decided before the first pass: a log's reader has nothing to guess."""
    source = node.loop.revisions.source
    say(
        log,
        logging.INFO,
        "fleet-agent begins",
        version=__version__,
        pid=os.getpid(),
        node=node.name,
        fleet=redact_url(source.location),
        ref=getattr(source, "ref", None),
        state=node.agent.state.root,
        store=settings.model_store or node.agent.state.models,
        interval_seconds=service.interval_s,
        namespace=settings.namespace,
        runtime=settings.runtime,
        runtimes=settings.runtimes and ",".join(settings.runtimes),
        memory_fraction=settings.memory_fraction,
        memory_check_mode=settings.memory_mode,
        host_ip=settings.host_ip,
        **{f"program_{name}": path for name, path in sorted(settings.programs.items())},
    )
    if node.journal.damage:
        say(log, logging.WARNING, node.journal.damage)


def _say_end(log: logging.Logger, node: Node, *, stops: bool) -> None:
    running = ",".join(state.ref.label for state in node.agent.processes.snapshot())
    say(log, logging.INFO, "fleet-agent ends", **{"stops" if stops else "leaves_running": running})
