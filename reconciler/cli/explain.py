"""Where a service goes and why, what memory it needs and how that adds up, how it is started."""

from __future__ import annotations

import argparse
import json
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING

from reconciler.cli.options import add_local_options, check_output
from reconciler.edge import Exit
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef
    from reconciler.desired import Desired
    from reconciler.explanation import Explanation
    from reconciler.workload import Command


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("object", metavar="REF", help="Kind/name or Kind/namespace/name")
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0. Raises UsageError for an unknown REF, InvalidFleet."""
    check_output(args, "text", "json")
    from reconciler.api.inferenceservice import InferenceService
    from reconciler.cli import local
    from reconciler.cli.fleet import open_fleet, read_desired
    from reconciler.cli.render import commands_in_pods
    from reconciler.explanation import explain_service
    from reconciler.report.explain import explain_json, explain_text

    ref = parse_ref(args.object)
    desired = read_desired(open_fleet(args, working_tree=True))
    node = None
    if args.local is not None:
        node = local.look_at(args, local.node_of(args, desired.fleet))
        desired = desired.refreshed(node.facts)
    service = desired.fleet.get(InferenceService, ref)
    if service is None:
        raise UsageError(_unknown(ref, desired))
    found = explain_service(service, desired.fleet, desired.facts, desired.assignment)
    command = node.command(found.sized) if node and found.sized else None
    command = command or commands_in_pods(desired).get(ref) or _placeholders(found)
    if args.output == "json":
        print(json.dumps(explain_json(found, command), indent=2))
    else:
        sys.stdout.write(explain_text(found, command))
    return Exit.OK


def parse_ref(text: str) -> ObjectRef:
    """`Kind/name` or `Kind/namespace/name`; a name alone is a service's. Raises UsageError."""
    from reconciler.api import KINDS
    from reconciler.api.meta import DEFAULT_NAMESPACE, ObjectRef

    parts = text.split("/")
    if len(parts) == 1:
        parts = ["InferenceService", *parts]
    kinds = {name.lower(): name for name in KINDS}
    kind = kinds.get(parts[0].lower())
    if kind is None or len(parts) > 3 or not all(parts):
        raise UsageError(f"{text!r} is no REF: write Kind/name, with a kind of {', '.join(KINDS)}")
    namespace = (
        (DEFAULT_NAMESPACE if len(parts) == 2 else parts[1]) if KINDS[kind].namespaced else ""
    )
    return ObjectRef(kind, namespace, parts[-1])


def _unknown(ref: ObjectRef, desired: Desired) -> str:
    if ref in desired.fleet.objects:
        return f"{ref}: only an InferenceService is placed and started; name one"
    names = [other.label for other in desired.fleet.objects if other.kind == ref.kind]
    near = get_close_matches(ref.label, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(names) or 'none'}"
    return f"{ref}: the fleet declares no such object; {hint}"


def _placeholders(found: Explanation) -> Command | None:
    """The command with a node's facts left open, where no node could fill them in."""
    from reconciler.runtime import NodeFacts
    from reconciler.runtimes import RUNTIMES

    if found.sized is None:
        return None
    facts = NodeFacts(host=found.sized.listen.host)
    return RUNTIMES[found.sized.runtime].command(found.sized, facts)
