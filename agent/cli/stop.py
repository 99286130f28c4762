"""Drain and stop services on this machine, and keep them stopped.

They stay so, whichever agent follows the fleet, until `fleet-agent restart` or until the fleet
changes their spec. A running agent does the work; without one this command does, from the records.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.console.edge import Exit, tell
from reconciler.console.named import hint, named_service
from reconciler.report.terminal import printable

_SOON_S = 2.0  # who waits so long wants to know for what

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.cli.handwork import Here
    from agent.state.directory import StateDir
    from reconciler.api.meta import ObjectRef


EXAMPLES = {
    "fleet-agent stop chat": "one service",
    "fleet-agent stop --all": "everything that runs here",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "everything that was started here")


def run(args: argparse.Namespace) -> int:
    """Exit 0 when they are stopped, 3 when they are not by the deadline."""
    from agent.cli import handwork

    state = opened(args)
    if state is None:
        return Exit.OK
    here = handwork.Here.read(state)
    wanted = chosen(args, here, here.running)
    if args.all and not wanted:
        tell(f"{state.root}: nothing runs from here")
    if done := sorted(wanted & here.stopped.keys() - here.running):
        tell(f"{labels(done)}: stopped already")
    return _stop(state, wanted & here.running, keep=True)


def stop_all(root: Path) -> int:
    """Everything that was started from a state directory, without a note to keep it so."""
    from agent.cli import handwork

    state = opened_at(root)
    return Exit.OK if state is None else _stop(state, handwork.Here.read(state).running, keep=False)


def _stop(state: StateDir, wanted: Collection[ObjectRef], *, keep: bool) -> int:
    from agent.cli import handwork

    if not wanted:
        return Exit.OK
    tell(f"{labels(wanted)}: stopping")
    slow = threading.Timer(_SOON_S, _say_what_lasts, (state, wanted))
    slow.daemon = True
    slow.start()
    try:
        left = handwork.stop(state, wanted, keep=keep)
    finally:
        slow.cancel()
    if done := set(wanted) - left:
        again = " ".join(ref.label for ref in sorted(done)) + state.option
        until = (
            f", until `fleet-agent restart {again}` or until the fleet changes its spec"
            if keep
            else ""
        )
        tell(f"{labels(done)}: stopped{until}")
    if left:
        tell(f"{labels(left)}: still there; see `fleet-agent status`")
    return Exit.BLOCKED if left else Exit.OK


def _say_what_lasts(state: StateDir, wanted: Collection[ObjectRef]) -> None:
    from agent.node.view import recorded_leaving

    for ref, why in recorded_leaving(state).items():
        if ref in wanted:
            tell(f"{ref.label}: {printable(why)} (Ctrl-C leaves it running)")


# What `restart`, `logs` and `bench` share.


def add_names(parser: argparse.ArgumentParser, everything: str) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="NAME or NAMESPACE/NAME")
    parser.add_argument("--all", action="store_true", help=everything)


def opened(args: argparse.Namespace) -> StateDir | None:
    """The state directory; None, and said, where nothing was ever started from it.

    Raises UsageError where nothing is named.
    """
    from agent.state.directory import state_root

    if bool(args.names) == args.all:
        raise UsageError("name the services, or say --all")
    return opened_at(state_root(args.state_dir))


def opened_at(root: Path) -> StateDir | None:
    """A state directory that is there; None, and said, where there is none."""
    from agent.state.directory import StateDir

    if not root.is_dir():
        tell(f"{root}: nothing was started from here")
        return None
    return StateDir.open(root)


def chosen(
    args: argparse.Namespace, here: Here, everything: frozenset[ObjectRef]
) -> frozenset[ObjectRef]:
    """The services that were named, or everything. Raises UsageError with the names there are."""
    if args.all:
        return everything
    wanted = frozenset(map(named_service, args.names))
    if strange := wanted - here.names:
        raise unknown(strange, here.names)
    return wanted


def unknown(strange: Collection[ObjectRef], known: Collection[ObjectRef]) -> UsageError:
    """What to say of names that nothing here has."""
    have = {ref.label for ref in known}
    return UsageError(f"{labels(strange)}: not started here{hint(labels(strange), have)}")


def labels(refs: Collection[ObjectRef]) -> str:
    return ", ".join(ref.label for ref in sorted(refs))
