"""What this machine's records say, and whether each service answers now."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from typing import TYPE_CHECKING

from reconciler.edge import Exit, view_of

if TYPE_CHECKING:
    from agent.state import StateDir


def add_options(parser: argparse.ArgumentParser) -> None:
    """None beside the common ones."""


def run(args: argparse.Namespace) -> int:
    """Exit 0 when everything that should run is ready, 3 otherwise."""
    from agent.local import state_root
    from agent.state import StateDir
    from agent.view import recorded_instances
    from reconciler.plan import Observation, TargetState
    from reconciler.report.status import Status, status_json
    from reconciler.report.status_text import status_text

    state = StateDir(state_root(args.state_dir).absolute())
    node = _node_name(state)
    target = f"node/{node}"
    instances = recorded_instances(state, node)
    observed = Observation({target: TargetState(target, True, time.time())}, instances)
    if args.output == "json":
        print(json.dumps(status_json(Status(observed))))
    else:
        sys.stdout.write(status_text(Status(observed), view_of(sys.stdout)))
        holder = state.holder()
        watched = f"watched by pid {holder}" if holder else "watched by nobody now"
        print(f"{state.root}: {watched}", file=sys.stderr)
    return Exit.OK if all(instance.ready for instance in instances) else Exit.BLOCKED


def _node_name(state: StateDir) -> str:
    """The FleetNode that this machine was the last time; before the first, the host's name."""
    remembered = state.desired / "node"
    if remembered.is_file():
        return remembered.read_text()
    return platform.node().partition(".")[0] or "this"
