"""What runs where, and how it is."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.edge import Exit
from reconciler.errors import InvalidFleet, SourceError, UsageError
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.report.status import Status


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--follow", action="store_true", help="keep it current until Ctrl-C")
    add_agent_options(parser)
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when everything that should run answers, 3 otherwise; 1 when the fleet cannot be
    read: what runs here is shown all the same."""
    check_output(args, "text", "json")
    from reconciler.cli.clusters import in_given_cluster, not_covered
    from reconciler.cli.fleet import open_fleet, read_desired
    from reconciler.cli.look import looker

    if args.local is not None and args.cluster:
        raise UsageError("--local is about this machine alone: leave --cluster out")
    here = looker(args)
    try:
        source = open_fleet(args, working_tree=True)
        desired = read_desired(source, adjusts=in_given_cluster(args))
    except (SourceError, InvalidFleet) as error:
        if args.local is None:
            raise
        print(printable(str(error)), file=sys.stderr)
        _print(args, _without_fleet(args))
        return Exit.FAILED
    if args.follow:
        from reconciler.cli.follow import follow

        return follow(args, source, desired, here)
    status = here.look(desired)
    _print(args, status)
    if args.local is None:
        for line in not_covered(desired, status.observed, "looked at"):
            print(printable(line), file=sys.stderr)
    return exit_code(status, allow_unreachable=args.allow_unreachable)


def exit_code(status: Status, *, allow_unreachable: bool) -> int:
    """3 where something that should run does not answer, a whole node among it."""
    if any(not state.reachable for state in status.observed.targets.values()):
        return Exit.OK if allow_unreachable else Exit.BLOCKED
    ready = {(i.target, i.ref) for i in status.observed.instances if i.ready}
    late = [
        d for d in status.declared if d.reason != "StoppedByHand" and (d.target, d.ref) not in ready
    ]
    return Exit.BLOCKED if late else Exit.OK


def _without_fleet(args: argparse.Namespace) -> Status:
    """What this machine's records say, where no revision says what should be."""
    from reconciler.cli import local
    from reconciler.report.status import Status

    node = args.local or local.remembered_node(args) or "this"
    return Status(local.look_at(args, node).observe(()))


def _print(args: argparse.Namespace, status: Status) -> None:
    if args.output == "json":
        from reconciler.report.status import status_json

        print(json.dumps(status_json(status), indent=2))
        return
    from reconciler.edge import view_of
    from reconciler.report.status_text import status_text

    sys.stdout.write(status_text(status, view_of(sys.stdout)))
