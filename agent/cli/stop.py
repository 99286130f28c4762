"""Drain and stop services on this machine, and keep them stopped.

They stay so until `fleet-agent restart`, or until the fleet changes their inputs. A running agent
does the work; without one this command does, from the records.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.edge import Exit
from reconciler.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.byhand.handwork import Here
    from agent.state import StateDir
    from reconciler.api.meta import ObjectRef


def add_options(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "everything that was started here")


def run(args: argparse.Namespace) -> int:
    """Exit 0 when they are stopped, 3 when they are not by the deadline."""
    from agent.byhand import handwork

    state = opened(args)
    if state is None:
        return Exit.OK
    here = handwork.Here.read(state)
    wanted = chosen(args, here, here.running)
    if done := sorted(wanted & here.stopped.keys() - here.running):
        print(f"{labels(done)}: stopped already", file=sys.stderr)
    return _stop(state, wanted & here.running, keep=True)


def stop_all(root: Path) -> int:
    """Everything that was started from a state directory, without a note to keep it so."""
    from agent.byhand import handwork

    state = _opened(root)
    return Exit.OK if state is None else _stop(state, handwork.Here.read(state).running, keep=False)


def _stop(state: StateDir, wanted: Collection[ObjectRef], *, keep: bool) -> int:
    from agent.byhand import handwork

    if not wanted:
        return Exit.OK
    print(f"{labels(wanted)}: drains and stops", file=sys.stderr)
    left = handwork.stop(state, wanted, keep=keep)
    if done := set(wanted) - left:
        until = ", until `fleet-agent restart` or a change of its inputs" if keep else ""
        print(f"{labels(done)}: stopped{until}", file=sys.stderr)
    if left:
        print(f"{labels(left)}: still there; see `fleet-agent status`", file=sys.stderr)
    return Exit.BLOCKED if left else Exit.OK


# What `restart` shares.


def add_names(parser: argparse.ArgumentParser, everything: str) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="NAME or NAMESPACE/NAME")
    parser.add_argument("--all", action="store_true", help=everything)


def opened(args: argparse.Namespace) -> StateDir | None:
    """The state directory; None, and said, where nothing was ever started from it.

    Raises UsageError where nothing is named.
    """
    from agent.local import state_root

    if bool(args.names) == args.all:
        raise UsageError("name the services, or say --all")
    return _opened(state_root(args.state_dir).absolute())


def _opened(root: Path) -> StateDir | None:
    from agent.state import StateDir

    if not root.is_dir():
        print(f"{root}: nothing was started from here", file=sys.stderr)
        return None
    return StateDir.open(root)


def chosen(
    args: argparse.Namespace, here: Here, everything: frozenset[ObjectRef]
) -> frozenset[ObjectRef]:
    """The services that were named, or everything. Raises UsageError with the names there are."""
    from reconciler.api.meta import DEFAULT_NAMESPACE, ObjectRef

    if args.all:
        return everything
    parts = (name.rpartition("/") for name in args.names)
    wanted = {ObjectRef("InferenceService", ns or DEFAULT_NAMESPACE, own) for ns, _, own in parts}
    if unknown := wanted - here.names:
        have = labels(here.names) or "nothing"
        raise UsageError(f"{labels(unknown)}: not started here; there is {have}")
    return frozenset(wanted)


def labels(refs: Collection[ObjectRef]) -> str:
    return ", ".join(ref.label for ref in sorted(refs))
