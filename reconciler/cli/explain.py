"""Where a service goes and why, what memory it needs and how that adds up, how it is started."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.cli.explain_field import explain_field, is_field
from reconciler.cli.options import add_local_options, check_output
from reconciler.console.edge import Exit, width_of
from reconciler.console.named import hint, parse_ref
from reconciler.console.option import add
from reconciler.console.shared import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.api.meta import ObjectRef
    from reconciler.fleet.command import Command
    from reconciler.loop.desired import Desired
    from reconciler.placement.explanation import Explanation


EXAMPLES = {
    "reconcile explain chat --local": "as it is, or would be, on this machine",
    "reconcile explain team-a/chat": "one in another namespace than default",
    "reconcile explain InferenceService.spec.contextSize": "what a field does, and its default",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "object",
        metavar="REF",
        help="a service: NAME, NAMESPACE/NAME or InferenceService/NAMESPACE/NAME; or a field:"
        " KIND.spec.FIELD",
    )
    add(parser, (OFFLINE,))
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0. Raises UsageError for an unknown REF, InvalidFleet."""
    check_output(args, "text", "json")
    if is_field(args.object):
        return explain_field(args)
    from reconciler.api.inferenceservice import InferenceService
    from reconciler.cli import local
    from reconciler.cli.fleet import open_planned
    from reconciler.cli.headers import headers_of, say_unknown
    from reconciler.cli.inspection import inspect_node, inspect_placement
    from reconciler.cli.overrides import with_defaults
    from reconciler.cli.render import commands_in_pods, rendered_of
    from reconciler.loop.explained import command_left_open, explanation_of, origins_of
    from reconciler.report.explain import explain_json, explain_text

    ref = parse_ref(args.object)
    source = open_planned(args)
    if args.local is None:
        args.local = local.this_node(args, source)
    headers = headers_of(args, node=None, here=args.local is not None)
    at = (
        inspect_placement(args, source, headers)
        if args.local is None
        else inspect_node(args, source, headers=headers)
    )
    desired = at.fetch()
    if at.findings.failure is not None:
        raise at.findings.failure
    if desired is None:
        return Exit.BLOCKED
    planned = at.compare()
    desired = planned.desired
    service = desired.fleet.get(InferenceService, ref)
    if service is None:
        raise UsageError(_unknown(ref, desired))
    say_unknown(at.headers)
    fleet = with_defaults(args)(desired.fleet)  # this machine's own view leaves them out

    def made(own: Desired) -> tuple[Explanation, Command | None, Mapping[str, Sequence[str]]]:
        explanation = explanation_of(service, planned, fleet, at.node)
        command = None
        if explanation.sized is not None and explanation.sized.node == at.node:
            here = local.observed_node(args, at.node, desired.fleet)
            command = here.command(explanation.sized, desired.assignment.workloads)
        command = command or commands_in_pods(own).get(ref) or command_left_open(explanation)
        return explanation, command, origins_of(explanation, desired.loaded)

    explanation, command, origins = rendered_of(desired, (ref,), made)
    if args.output == "json":
        print(json.dumps(explain_json(explanation, command, origins), indent=2))
    else:
        sys.stdout.write(explain_text(explanation, command, width_of(sys.stdout), origins))
    return Exit.OK


def _unknown(ref: ObjectRef, desired: Desired) -> str:
    if ref in desired.fleet.objects:
        users = _users(ref, desired)
        ask = f"name one that uses it: {', '.join(users)}" if users else "none uses it"
        return f"{ref}: only an InferenceService is placed and started; {ask}"
    known = [str(other) for other in desired.fleet.objects if other.kind == ref.kind]
    return f"{ref}: the fleet declares no such object{hint(str(ref), known)}"


def _users(ref: ObjectRef, desired: Desired) -> list[str]:
    """The services that name an object, or that are placed on it."""
    from reconciler.api.inferenceservice import InferenceService

    named = {
        str(service.ref)
        for service in desired.fleet.all(InferenceService)
        if any(reference.ref == ref for reference in service.references)
    }
    placed = {
        str(workload.ref)
        for workload in desired.assignment.workloads
        if ref.kind == "FleetNode" and workload.node == ref.name
    }
    return sorted(named | placed)
