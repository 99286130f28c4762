"""Print the end of what a service's engine writes: its start, its requests, why it ended."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent.cli.status import shown_state
from agent.process.logreader import LogFile
from reconciler.api.errors import UsageError
from reconciler.console.edge import Exit, tell
from reconciler.console.logview import show
from reconciler.console.named import named_service
from reconciler.console.option import add_log_options

if TYPE_CHECKING:
    from agent.state.directory import StateDir
    from reconciler.api.meta import ObjectRef


EXAMPLES = {
    "fleet-agent logs chat": "the last 100 lines",
    "fleet-agent logs chat -n 20 -f": "and whatever comes, until Ctrl-C",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="NAME or NAMESPACE/NAME")
    add_log_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0; 3 where there is no log yet; 130 when followed until a signal. Raises UsageError."""
    if args.output != "text":
        raise UsageError(f"-o {args.output}: a log is text")
    state = shown_state(args)
    ref = _known(args.name, state)
    path = state.log_file(ref)
    if not path.exists():
        tell(
            f"{ref.label}: no log yet, it was not started; see `fleet-agent status`",
        )
        if not args.follow:
            return Exit.BLOCKED
    return show({ref.label: LogFile(path, args.lines, previous=args.previous, follow=args.follow)})


def _known(name: str, state: StateDir) -> ObjectRef:
    """What has a log here, or could have one. Raises UsageError with the names there are."""
    from agent.cli.handwork import Here
    from agent.cli.stop import unknown

    ref = named_service(name)
    here = Here.read(state)
    if ref in here.names or state.log_file(ref).exists():
        return ref
    raise unknown({ref}, here.names | {*_gone(state)})


def _gone(state: StateDir) -> Iterable[ObjectRef]:
    """What ran here once: its log is still there."""
    from reconciler.api.meta import ObjectRef

    for folder in state.logs.iterdir() if state.logs.is_dir() else ():
        namespace, _, name = folder.name.partition("_")
        yield ObjectRef("InferenceService", namespace, name)
