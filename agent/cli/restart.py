"""Restart services on this machine, also those that were stopped by hand.

What changed on the machine since they were started is applied with it: an upgraded engine, or other
options of the agent. Without a running agent, name the options that it runs with.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from agent.cli.download_options import MODEL_STORE
from agent.cli.stop import add_names, chosen, labels, opened
from reconciler.console.edge import Exit, tell
from reconciler.console.option import add, program_options, programs_of
from reconciler.console.shared import API_KEY_FILE
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from agent.state.directory import StateDir
    from reconciler.api.meta import ObjectRef
    from reconciler.core.observation import Instance


EXAMPLES = {
    "fleet-agent restart chat": "one service",
    "fleet-agent restart --all": "everything that runs here or was stopped by hand",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "everything that runs here or was stopped by hand")
    parser.add_argument(
        "--timeout", default="10m", metavar="TIME", type=_seconds, help="for them to be ready"
    )
    options = (MODEL_STORE, API_KEY_FILE, *program_options())
    add(parser.add_argument_group("where no agent runs"), options)


def run(args: argparse.Namespace) -> int:
    """Exit 0 when they answer, 3 when one does not in time. Raises UsageError, StateError."""
    from agent.byhand.restarts import read_restarts
    from agent.cli import handwork
    from agent.node.settings import Settings
    from agent.server.here import instances_here
    from agent.state.node_name import remembered_node

    state = opened(args)
    if state is None:
        return Exit.OK
    here = handwork.Here.read(state)
    wanted = chosen(args, here, here.names)
    if not wanted:
        return Exit.OK
    if again := wanted if state.holder() else wanted & (here.records.keys() | here.launches):
        tell(f"{labels(again)}: restarting")
    settings = Settings(
        root=state.root,
        programs=programs_of(args),
        model_store=args.model_store,
        api_key_file=args.api_key_file,
    )
    node = remembered_node(state.root) or "this"
    late = handwork.restart(state, wanted, node, settings, args.timeout, _progress())
    _say(state, instances_here(state, node), wanted, late)
    return Exit.BLOCKED if late or read_restarts(state) & wanted else Exit.OK


def _progress() -> Callable[[Instance], None]:
    """Says of each process that has to end first what that waits for, when it changes."""
    printed: dict[ObjectRef, str] = {}

    def say(instance: Instance) -> None:
        text = instance.message if instance.reason == "Replacing" else ""
        if text != printed.get(instance.ref, ""):
            printed[instance.ref] = text
            if text:
                tell(f"{instance.ref.label}: {printable(text)}")

    return say


def _say(
    state: StateDir,
    instances: Iterable[Instance],
    wanted: Collection[ObjectRef],
    late: Collection[ObjectRef],
) -> None:
    from agent.byhand.restarts import read_restarts

    by_ref, kept = {i.ref: i for i in instances}, read_restarts(state)
    for ref in sorted(wanted):
        there = by_ref.get(ref)
        if ref in kept:
            waits = there.pending if there else None
            why = f" ({waits.reason}: {waits.message})".replace(": )", ")") if waits else ""
            text = f"not restarted yet{why}: the agent here does it, or the next one, once it can"
        elif ref in late:
            why = f"{there.reason}: {there.message}".rstrip(": ") if there else "not started"
            text = f"not ready ({why}); see `fleet-agent status`"
        elif there is None:
            text = (
                "may run again: `reconcile apply --local`, `reconcile watch` or an agent starts it"
            )
        else:
            text = f"ready at {there.endpoint}"
        tell(f"{ref.label}: {printable(text)}")


def _seconds(text: str) -> float:
    from reconciler.api.quantity import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
