"""Plan and apply: keep this machine (--local) or clusters (--cluster) equal to the fleet, and see
all nodes with an agent become so. `plan`, `apply`, `watch` and `follow` are this with --dry-run,
--once, --watch and without."""

from __future__ import annotations

import argparse

from reconciler.api.errors import UsageError
from reconciler.cli.options import (
    add_agent_options,
    add_cluster_loop_options,
    add_local_options,
    check_output,
)
from reconciler.console.command import PLAN_FORMATS, TEXT_OR_JSON
from reconciler.console.option import add
from reconciler.console.shared import DEBOUNCE, INTERVAL, OFFLINE, REPOSITORY

EXAMPLES = {
    "reconcile --dry-run --local": "the plan for this machine",
    "reconcile --once --local": "apply the commit here, and wait until all answers",
    "reconcile --watch": "apply the files as they are saved, until Ctrl-C",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true", help="print the plan and exit")
    mode.add_argument("--once", action="store_true", help="one pass, then wait until all is ready")
    mode.add_argument(
        "--watch", action="store_true", help="follow the files, uncommitted edits included"
    )
    add_pass_options(parser)


def add_pass_options(parser: argparse.ArgumentParser) -> None:
    """What each of the four takes."""
    parser.add_argument(
        "--from", dest="base", metavar="REF", help="of a plan: against what REF would run"
    )
    parser.add_argument(
        "--confirm",
        action="append",
        default=[],
        metavar="TOKEN",
        help="release the removals that a plan has printed this token for",
    )
    parser.add_argument(
        "--timeout",
        default="10m",
        metavar="TIME",
        help="how long nodes and clusters are waited for (10m)",
    )
    add(parser, (REPOSITORY, INTERVAL, DEBOUNCE, OFFLINE))
    parser.add_argument("--stop-on-exit", action="store_true", help="stop the models too")
    add_cluster_loop_options(parser)
    add_agent_options(parser)
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit codes: 0 current, 1 invalid, 2 changes (--dry-run), 3 blocked or not ready."""
    check_output(args, *(PLAN_FORMATS if args.dry_run else TEXT_OR_JSON))
    if args.base and not args.dry_run:
        raise UsageError("--from goes with `reconcile plan`")
    if args.cluster and (args.watch or args.local is not None):
        option = "--watch" if args.watch else "--local"
        raise UsageError(f"{option} is about this machine alone: leave --cluster out")
    if args.listen is not None and args.once:
        raise UsageError("--listen goes with `reconcile watch` and `follow`: they stay")
    interval_s = _seconds(args.interval, "--interval")
    timeout_s = _seconds(args.timeout, "--timeout")
    if args.dry_run:
        from reconciler.cli.dry_run import dry_run

        return dry_run(args)
    if args.local is None and not args.watch:
        from reconciler.cli.central import central

        return central(args, interval_s=interval_s, timeout_s=timeout_s)
    from reconciler.cli.serve import ServeOptions, serve

    debounce_s = _seconds(args.debounce, "--debounce")
    return serve(args, ServeOptions(interval_s, timeout_s, debounce_s, listen=args.listen))


def _seconds(text: str, option: str) -> float:
    from reconciler.api.quantity import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
