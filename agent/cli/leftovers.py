"""What runs on this machine and was started by a fleet-agent, but is not in this state directory.

Such a service holds its port and its memory, and no agent of this state directory ends it. Each is
printed with the command that does.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from reconciler.console.edge import Exit, tell
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from agent.process.holders import Started

EXAMPLES = {
    "fleet-agent leftovers": "of other state directories, or without a record in this one",
}


def add_options(_: argparse.ArgumentParser) -> None:
    """It has none of its own."""


def run(args: argparse.Namespace) -> int:
    """Exit 0, whether or not there are some: another agent may well own them."""
    from agent.cli.status import shown_state
    from agent.process.holders import leftovers

    state = shown_state(args)
    running = sorted(leftovers(state), key=lambda each: (each.root, each.label or "", each.pid))
    if args.output == "json":
        print(json.dumps([_as_json(each) for each in running], indent=2))
        return Exit.OK
    for each in running:
        name = each.label or "of no record"
        port = "" if each.port is None else f", port {each.port}"
        print(f"{name}: pid {each.pid}{port}, started from {printable(str(each.root))}")
        print(f"    {printable(each.ends_with)}")
    if not running:
        tell(f"nothing but what is in {state.root} was started here")
    return Exit.OK


def _as_json(each: Started) -> dict[str, Any]:
    return {
        "name": each.label,
        "pid": each.pid,
        "port": each.port,
        "stateDir": str(each.root),
        "endsWith": each.ends_with,
    }
