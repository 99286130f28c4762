"""What runs where, and how it is."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.edge import Exit
from reconciler.errors import InvalidFleet, SourceError
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.desired import Desired
    from reconciler.plan import Observation
    from reconciler.report.status import Declared


def add_options(parser: argparse.ArgumentParser) -> None:
    add_agent_options(parser)
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when everything that should run answers, 3 otherwise; 1 when the fleet cannot be
    read: what runs here is shown all the same."""
    check_output(args, "text", "json")
    from reconciler.cli import local
    from reconciler.cli.agents import open_agents
    from reconciler.cli.fleet import open_fleet, read_desired

    try:
        desired = read_desired(open_fleet(args, working_tree=True))
    except (SourceError, InvalidFleet) as error:
        if args.local is None:
            raise
        print(printable(str(error)), file=sys.stderr)
        node = args.local or local.remembered_node(args) or "this"
        _print(args, local.look_at(args, node).observe(()), [])
        return Exit.FAILED
    node = None if args.local is None else local.node_of(args, desired.fleet)
    observer = local.look_at(args, node) if node else open_agents(args, desired.fleet)
    observed = observer.observe(desired.assignment.workloads)
    declared = _declared(desired, node, observed)
    _print(args, observed, declared)
    reachable = all(state.reachable for state in observed.targets.values())
    ready = {i.ref for i in observed.instances if i.ready}
    if not reachable:
        return Exit.OK if args.allow_unreachable else Exit.BLOCKED
    return Exit.OK if {service.ref for service in declared} <= ready else Exit.BLOCKED


def _print(args: argparse.Namespace, observed: Observation, declared: list[Declared]) -> None:
    from reconciler.cli.console import wants_colour
    from reconciler.report.status import status_json, status_text
    from reconciler.report.terminal import Style

    if args.output == "json":
        print(json.dumps(status_json(observed, declared), indent=2))
        return
    style = Style(wants_colour(sys.stdout))
    sys.stdout.write(status_text(observed, time.time(), declared, style))


def _declared(desired: Desired, node: str | None, observed: Observation) -> list[Declared]:
    """What should run, there or anywhere; what cannot, with the reason."""
    from reconciler.report.status import Declared

    held = {
        ref: Declared(ref, h.finding.rule, h.finding.message)
        for h in desired.assignment.held
        if node is None or not h.nodes or node in h.nodes
        for ref in h.services
    }
    missing = {k: why for state in observed.targets.values() for k, why in state.missing.items()}
    placed = {}
    for workload in desired.assignment.workloads:
        if node not in (None, workload.node) or workload.suspended:
            continue
        state = observed.targets.get(f"node/{workload.node}")
        if state is not None and not state.reachable:
            reason, message = "Unknown", state.message
        elif workload.runtime in missing:
            reason, message = "EngineMissing", missing[workload.runtime]
        else:
            reason, message = "NotRunning", ""
        placed[workload.ref] = Declared(workload.ref, reason, message)
    return [*(placed | held).values()]
