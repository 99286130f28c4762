"""What runs where, and how it is."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from reconciler.api.errors import InvalidFleet, SourceError
from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.console.edge import Exit, tell, tell_error
from reconciler.console.option import add_view_options
from reconciler.report.terminal import printable

_FETCH_EVERY_S = 30.0

if TYPE_CHECKING:
    from reconciler.cli.inspection import Inspection
    from reconciler.report.status import Status


EXAMPLES = {
    "reconcile status": "all nodes, asked from here",
    "reconcile status --local --follow": "this machine, until Ctrl-C",
    "reconcile status --cluster prod -o json": "a cluster too, for a program",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_view_options(parser)
    add_agent_options(parser)
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when everything that was asked for and should run answers, and nothing stays
    otherwise than declared; 3 otherwise; 1 when the fleet cannot be read: what runs here is shown
    all the same."""
    check_output(args, "text", "json")
    from reconciler.cli.fleet import open_planned
    from reconciler.cli.inspection import open_inspection
    from reconciler.console.statusview import show

    try:
        with open_inspection(args, open_planned(args)) as at:
            return _show(args, at)
    except (SourceError, InvalidFleet) as error:
        if args.local is None:
            raise
        tell_error(error)
        show(args, _without_fleet(args))
        return Exit.FAILED


def _show(args: argparse.Namespace, at: Inspection) -> int:
    """Raises SourceError or InvalidFleet where there is no revision to look at it by."""
    from reconciler.cli import local
    from reconciler.cli.clusters import not_covered
    from reconciler.cli.fleet import exit_of
    from reconciler.cli.observed_status import observe_status
    from reconciler.console.statusview import chosen, follow, show

    if (desired := at.fetch()) is None:
        show(args, _without_fleet(args))
        return exit_of(at.loop.verdict) or Exit.BLOCKED
    if args.follow:
        return follow(args, _Newest(args, at).status)
    if at.findings.failure is not None:
        tell_error(at.findings.failure)
    everything = local.as_reported_here(args, observe_status(at))
    status = chosen(args, everything)
    show(args, status)
    if args.output == "text" and (page := local.page_here(args)):
        tell(f"page: {page}")
    if args.local is None:
        for line in not_covered(desired, everything.observed, "looked at"):
            tell(printable(line))
    if at.findings.failure is not None:
        return Exit.FAILED
    if (code := exit_of(at.loop.verdict)) is not None:
        return code
    return exit_code(status, allow_unreachable=args.allow_unreachable)


def exit_code(status: Status, *, allow_unreachable: bool) -> int:
    """3 where something that should run does not answer, a whole node among it, or stays otherwise
    than declared."""
    silent = status.silent
    if silent and not allow_unreachable:
        return Exit.BLOCKED
    ready = {(i.target, i.ref) for i in status.observed.instances if i.ready}
    late = any(
        not d.is_meant and d.target not in silent and (d.target, d.ref) not in ready
        for d in status.declared
    )
    return Exit.BLOCKED if late or status.waits else Exit.OK


def _without_fleet(args: argparse.Namespace) -> Status:
    """What this machine's records say, where no revision says what should be."""
    from reconciler.cli import local
    from reconciler.report.status import Status

    node = args.local or local.remembered_node(args) or "this"
    return Status(local.observed_node(args, node).observe(()))


class _Newest:
    """A look by the newest revision that may be followed."""

    def __init__(self, args: argparse.Namespace, at: Inspection) -> None:
        self._args, self._at = args, at
        self._again_at = time.monotonic() + _FETCH_EVERY_S
        self._shown = ""
        self._say()

    def status(self) -> Status:
        from reconciler.cli import local
        from reconciler.cli.observed_status import observe_status

        if time.monotonic() >= self._again_at:
            self._again_at = time.monotonic() + _FETCH_EVERY_S
            self._at.fetch()
            self._say()
        return local.as_reported_here(self._args, observe_status(self._at))

    def _say(self) -> None:
        """Why it is not the newest that there is, once."""
        reason = str(self._at.findings.failure or "")
        if reason and reason != self._shown:
            tell(printable(reason))
        self._shown = reason
