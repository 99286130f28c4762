"""Drain and stop services that were started here.

Works from the records, when no agent or `reconcile` watches this state directory: a watching one
would start them again.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from reconciler.edge import Exit
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="NAME or NAMESPACE/NAME")
    parser.add_argument("--all", action="store_true", help="everything that was started here")


def run(args: argparse.Namespace) -> int:
    """Exit 0 when they are stopped. Raises StateError while another process watches them."""
    from agent.local import state_root
    from agent.processes import Processes
    from agent.records import Records
    from agent.state import StateDir

    if bool(args.names) == args.all:
        raise UsageError("name the services to stop, or say --all")
    root = state_root(args.state_dir)
    if not root.is_dir():
        print(f"{root}: nothing was started from here", file=sys.stderr)
        return Exit.OK
    state = StateDir.open(root)
    state.lock()
    known = {record.launch.ref: record for record in Records(state).read_all()}
    wanted = set(known) if args.all else {_ref(name) for name in args.names}
    if unknown := sorted(ref.label for ref in wanted - set(known)):
        have = ", ".join(ref.label for ref in sorted(known)) or "nothing"
        raise UsageError(f"{', '.join(unknown)}: not started here; there is {have}")
    processes = Processes(state)
    processes.start(revive=False)
    for ref in sorted(wanted):
        print(f"{ref.label}: drains and stops", file=sys.stderr)
        processes.stop(ref)
    slowest = max((known[ref].launch.drain_timeout_s for ref in wanted), default=0.0)
    done = processes.wait_for(lambda states: not wanted & {s.ref for s in states}, slowest + 30)
    processes.close(stop_children=False)
    state.unlock()
    return Exit.OK if done else Exit.BLOCKED


def _ref(name: str) -> ObjectRef:
    from reconciler.api.meta import DEFAULT_NAMESPACE, ObjectRef

    namespace, _, own = name.rpartition("/")
    return ObjectRef("InferenceService", namespace or DEFAULT_NAMESPACE, own)
