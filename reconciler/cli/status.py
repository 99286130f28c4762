"""What runs where, and how it is."""

from __future__ import annotations

import argparse
import json
import sys
import time

from reconciler.cli.options import add_local_options
from reconciler.edge import Exit


def add_options(parser: argparse.ArgumentParser) -> None:
    add_local_options(parser)
    parser.add_argument("--allow-unreachable", action="store_true", help="exit 3 not for that")


def run(args: argparse.Namespace) -> int:
    """Exit 0 when everything that should run answers, 3 otherwise."""
    from reconciler.cli import local
    from reconciler.cli.console import wants_colour
    from reconciler.cli.fleet import open_fleet, read_desired
    from reconciler.report.status import status_json, status_text
    from reconciler.report.terminal import Style

    desired = read_desired(open_fleet(args, working_tree=True))
    workloads = desired.assignment.workloads
    if args.local is None:
        observed = local.AgentNodes(desired.fleet).observe(workloads)
        declared = [w.ref for w in workloads if not w.suspended]
    else:
        node = local.node_of(args, desired.fleet)
        observed = local.look_at(args, node).observe(workloads)
        declared = [w.ref for w in workloads if w.node == node and not w.suspended]
    if args.output == "json":
        print(json.dumps(status_json(observed, declared), indent=2))
    else:
        style = Style(wants_colour(sys.stdout))
        sys.stdout.write(status_text(observed, time.time(), declared, style))
    reachable = all(state.reachable for state in observed.targets.values())
    ready = {i.ref for i in observed.instances if i.ready}
    if not reachable:
        return Exit.OK if args.allow_unreachable else Exit.BLOCKED
    return Exit.OK if set(declared) <= ready else Exit.BLOCKED
