"""What takes memory and what writes now: pools against their budgets, then services, the busiest
first.

On a terminal it is kept current until Ctrl-C; else it is printed once. Tokens a second are the mean
of the last minute, and agents look at their engines every 15 seconds. `status -o json` has the same
figures for programs.
"""

from __future__ import annotations

import argparse
import sys
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.console.edge import Exit, endings, view_of

if TYPE_CHECKING:
    from reconciler.cli.inspection import Inspection
    from reconciler.report.status import Status

EXAMPLES = {
    "reconcile top": "all nodes, until Ctrl-C",
    "reconcile top --local --once": "this machine, once",
}
_EVERY_S = 2.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="print it once, also on a terminal")
    add_agent_options(parser)
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0; 3 where there is no revision to look at nodes by, or one of them gave no answer; 130
    after a signal."""
    check_output(args, "text")
    from reconciler.cli.fleet import open_planned
    from reconciler.cli.inspection import open_inspection
    from reconciler.report.top_text import top_text

    with open_inspection(args, open_planned(args)) as at:
        if at.fetch() is None:  # the reason was said
            return Exit.BLOCKED
        if sys.stdout.isatty() and not args.once:
            return _live(args, at)
        status = _seen(args, at)
        sys.stdout.write(top_text(status, view_of(sys.stdout)))
    return Exit.BLOCKED if status.silent and not args.allow_unreachable else Exit.OK


def _live(args: argparse.Namespace, at: Inspection) -> int:
    from reconciler.console.statusview import Redrawn, cut
    from reconciler.report.top_text import top_text

    ended, screen = threading.Event(), Redrawn()
    with endings(ended.set):
        while not ended.is_set():
            lines = top_text(_seen(args, at), view_of(sys.stdout)).splitlines()
            screen.draw(partial(cut, lines))
            ended.wait(_EVERY_S)
    return Exit.INTERRUPTED


def _seen(args: argparse.Namespace, at: Inspection) -> Status:
    from reconciler.cli import local
    from reconciler.cli.observed_status import observe_status

    status = local.as_reported_here(args, observe_status(at))
    return replace(status, states={**local.own_state(args), **status.states})
