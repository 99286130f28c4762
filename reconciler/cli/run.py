"""Plan and apply: keep this machine equal to the fleet, once or until told to stop."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING

from reconciler.api.quantity import parse_duration
from reconciler.cli import local
from reconciler.cli.fleet import open_fleet, read_desired
from reconciler.edge import Exit
from reconciler.errors import UsageError
from reconciler.plan import Action, Instance, Observation, TargetState
from reconciler.report.plan_json import plan_json

if TYPE_CHECKING:
    from reconciler.desired import Desired
    from reconciler.plan import Plan

_FORMATS = ("text", "json")


def add_options(parser: argparse.ArgumentParser) -> None:
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true", help="print the plan and exit")
    mode.add_argument("--once", action="store_true", help="one pass, then wait until all is ready")
    mode.add_argument(
        "--watch", action="store_true", help="follow the files, uncommitted edits included"
    )
    parser.add_argument(
        "--from", dest="base", metavar="REF", help="with --dry-run: against what REF would run"
    )
    parser.add_argument("--confirm", action="append", default=[], metavar="TOKEN")
    parser.add_argument("--timeout", default="10m", metavar="TIME", help="of --once")
    parser.add_argument(
        "--interval",
        default=os.environ.get("FLEET_POLL_INTERVAL", "30s"),
        metavar="TIME",
        help="how often a remote is asked (or $FLEET_POLL_INTERVAL; default 30s)",
    )
    parser.add_argument("--allow-unreachable", action="store_true", help="exit 3 not for that")
    parser.add_argument("--stop-on-exit", action="store_true", help="stop the models too")
    local.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit codes: 0 current, 1 invalid, 2 changes (--dry-run), 3 blocked or not ready."""
    if args.output not in _FORMATS:
        raise UsageError(f"-o {args.output}: a plan is printed as {' or '.join(_FORMATS)}")
    if args.base and not args.dry_run:
        raise UsageError("--from goes with --dry-run")
    interval_s, timeout_s = (
        _seconds(args.interval, "--interval"),
        _seconds(args.timeout, "--timeout"),
    )
    if args.dry_run:
        return _dry_run(args)
    if args.local is None and not args.watch:
        return _central(args)
    from reconciler.cli.serve import Service, serve

    return serve(args, Service(interval_s=interval_s, timeout_s=timeout_s))


def _seconds(text: str, option: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def _dry_run(args: argparse.Namespace) -> int:
    source = open_fleet(args, working_tree=True)
    if args.base:
        desired = read_desired(source)
        observed = _as_planned(_base(args), desired)
    elif args.local is not None:
        desired = read_desired(source)
        node = local.look_at(args, local.node_of(args, desired.fleet))
        desired = desired.refreshed(node.facts)
        observed = node.observe(desired.assignment.workloads)
    else:
        desired = read_desired(source)
        observed = local.AgentNodes(desired.fleet).observe(desired.assignment.workloads)
    plan = desired.plan(observed, args.confirm)
    _warn(desired)
    _print(plan, args.output)
    return _exit(plan, args)


def _base(args: argparse.Namespace) -> Desired:
    """The revision that --from names."""
    words = vars(args) | {"ref": args.base}
    return read_desired(open_fleet(argparse.Namespace(**words), working_tree=False))


def _as_planned(base: Desired, desired: Desired) -> Observation:
    """Another revision in the place of an observation: it runs exactly what it declares."""
    workloads = [*base.assignment.workloads, *desired.assignment.workloads]
    targets = {f"node/{w.node}": TargetState(f"node/{w.node}", True) for w in workloads}
    return Observation(
        targets,
        tuple(
            Instance(
                ref=w.ref,
                target=f"node/{w.node}",
                runtime=w.runtime,
                inputs=w.inputs,
                inputs_digest=w.inputs_digest,
                render_digest=None,
                source=base.where(w.ref),
                ready=True,
                reason="Declared",
                needs=w.needs,
                models=tuple(m.name for m in w.models),
            )
            for w in base.assignment.workloads
            if not w.suspended
        ),
    )


def _warn(desired: Desired) -> None:
    """Problems that refuse nothing, on stderr: the plan says the rest."""
    found = [*desired.loaded.problems, *map(desired.loaded.problem, desired.assignment.warnings)]
    for problem in found:
        if problem.severity == "warning":
            print(f"warning: {problem}", file=sys.stderr)
    if elsewhere := len(desired.assignment.elsewhere):
        print(f"{elsewhere} services on Kubernetes nodes: not planned here", file=sys.stderr)


def _print(plan: Plan, output: str) -> None:
    if output == "json":
        print(json.dumps(plan_json(plan), indent=2))
        return
    from reconciler.cli.console import wants_colour
    from reconciler.report.plan_text import plan_text
    from reconciler.report.terminal import Style

    sys.stdout.write(plan_text(plan, time.time(), Style(wants_colour(sys.stdout))))


def _exit(plan: Plan, args: argparse.Namespace) -> int:
    if plan.blocked or (plan.unreachable and not args.allow_unreachable):
        return Exit.BLOCKED
    shown = (Action.DEFERRED, Action.UNKNOWN)
    return Exit.CHANGES if any(c.action not in shown for c in plan.changes) else Exit.OK


def _central(args: argparse.Namespace) -> int:
    """Without a node of its own, this version can only say that it reaches none."""
    desired = read_desired(open_fleet(args, working_tree=False))
    observed = local.AgentNodes(desired.fleet).observe(desired.assignment.workloads)
    plan = desired.plan(observed, args.confirm)
    _print(plan, args.output)
    print(
        "agents are not read over the network yet: run this on the node with --local",
        file=sys.stderr,
    )
    return Exit.OK if args.allow_unreachable else Exit.BLOCKED
