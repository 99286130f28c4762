"""Print the end of what a service's engine writes: its start, its requests, why it ended."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from agent.cli.status import shown_state
from agent.process.logreader import LogReader
from reconciler.api.errors import UsageError
from reconciler.console.edge import Exit, endings, tell
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from agent.state.directory import StateDir
    from reconciler.api.meta import ObjectRef

_EVERY_S = 0.25


EXAMPLES = {
    "fleet-agent logs chat": "the last 100 lines",
    "fleet-agent logs chat -n 20 -f": "and whatever comes, until Ctrl-C",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="NAME or NAMESPACE/NAME")
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="go on with what it writes from now on, until Ctrl-C",
    )
    parser.add_argument(
        "-n", "--lines", type=_count, default=100, metavar="LINES", help="how many (default: 100)"
    )


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
    reader = LogReader(path)
    ended = threading.Event()
    with endings(ended.set) as received:
        _print(reader.last(args.lines))
        while args.follow and not ended.wait(_EVERY_S):
            _print(reader.more())
        if reader.open_line and args.lines:
            _print([reader.open_line])
    return Exit.INTERRUPTED if received else Exit.OK


def _print(lines: Iterable[bytes]) -> None:
    for line in lines:
        sys.stdout.write(printable(line.decode(errors="replace").rstrip("\r")) + "\n")
    sys.stdout.flush()


def _known(name: str, state: StateDir) -> ObjectRef:
    """What has a log here, or could have one. Raises UsageError with the names there are."""
    from agent.cli.handwork import Here
    from agent.cli.stop import unknown
    from reconciler.api.meta import service_ref

    ref = service_ref(name)
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


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)
