"""What this machine's records say, and whether each service answers now."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

from reconciler.edge import Exit, view_of

if TYPE_CHECKING:
    from agent.state import StateDir
    from reconciler.api.nodestate import NodeState
    from reconciler.plan import RevisionState
    from reconciler.report.status import Status
    from reconciler.source.history import Record

_PATIENCE_S = 2.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """None beside the common ones."""


def run(args: argparse.Namespace) -> int:
    """Exit 0 when everything that should run is ready, 3 otherwise."""
    from agent.local import state_root
    from agent.state import StateDir
    from reconciler.report.status import status_json
    from reconciler.report.status_text import status_text

    state = StateDir(state_root(args.state_dir).absolute())
    status = _status(state, _node_name(state))
    if args.output == "json":
        print(json.dumps(status_json(status)))
    else:
        sys.stdout.write(status_text(status, view_of(sys.stdout)))
        holder = state.holder()
        watched = f"watched by pid {holder}" if holder else "watched by nobody now"
        print(f"{state.root}: {watched}", file=sys.stderr)
    late = [i for i in status.observed.instances if not i.ready]
    held = [d for d in status.declared if d.reason != "StoppedByHand"]
    return Exit.BLOCKED if late or held else Exit.OK


def _status(state: StateDir, node: str) -> Status:
    """From what lies on disk and the living processes; what only the agent knows, from itself."""
    from agent.byhand.stopped import read_stopped
    from agent.view import recorded_instances
    from reconciler.api.meta import ObjectRef
    from reconciler.plan import Observation, TargetState
    from reconciler.reasons import REASONS
    from reconciler.report.nodestate import read_node_state
    from reconciler.report.status import Declared, Status
    from reconciler.source.history import HistoryFile

    target, instances = f"node/{node}", recorded_instances(state, node)
    stopped = read_stopped(state)
    history = HistoryFile(state.desired / "history.json").peek()
    own = _asked(state)
    seen = TargetState(
        target,
        reachable=True,
        seen_at=time.time(),
        message=_lost(history.unreachable_since),
        pools=read_node_state(own)[0].pools if own else (),
        revision=_revision(history, own.revision.held if own else None),
        stopped=stopped,
    )
    why = REASONS["StoppedByHand"]
    declared = [Declared(ref, "StoppedByHand", why, node) for ref in stopped]
    for item in own.blocked if own else ():
        ref = ObjectRef(item.ref.kind, item.ref.namespace, item.ref.name)
        if ref.kind == "InferenceService" and ref not in stopped:
            declared.append(Declared(ref, item.reason, item.message, node))
    states = {target: own} if own else {}
    return Status(Observation({target: seen}, instances), tuple(declared), states)


def _asked(state: StateDir) -> NodeState | None:
    """What a living agent says itself, where it serves that to anybody on this machine."""
    from agent.server import served
    from reconciler.api.nodestate import NodeState

    said = served(state.root)
    url = said.url if said else None
    if state.holder() is None or not url or not url.startswith("http://"):
        return None
    try:
        with urllib.request.urlopen(f"{url}/v1/state", timeout=_PATIENCE_S) as answer:  # noqa: S310 - http by the line above
            return NodeState.model_validate_json(answer.read())
    except (OSError, ValueError):
        return None  # what lies on disk is shown all the same


def _revision(history: Record, held: str | None) -> RevisionState:
    from reconciler.plan import RevisionState

    refused = history.refused
    return RevisionState(
        applied=history.applied.revision if history.applied else None,
        refused=refused.revision if refused else None,
        problems=refused.problems if refused else (),
        held=held or (history.held.message if history.held else ""),
    )


def _lost(since: float | None) -> str:
    if since is None:
        return ""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
    return f"the fleet's source gives nothing since {at}: what runs stays as it is"


def _node_name(state: StateDir) -> str:
    """The FleetNode that this machine was the last time; before the first, the host's name."""
    remembered = state.desired / "node"
    if remembered.is_file():
        return remembered.read_text()
    return platform.node().partition(".")[0] or "this"
