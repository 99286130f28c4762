"""Follow a head that is held: one that is older than what is applied, or, under --strict-history,
does not build on it.

COMMIT is the head as the agent names it (the first 7 characters are enough). Exactly that head is
followed, once. A running agent polls at once; one that is not running polls when it starts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.console.edge import Exit, tell

if TYPE_CHECKING:
    from reconciler.source.history import SourceRecord

_COMMIT = re.compile(r"[0-9a-f]{7,64}")


EXAMPLES = {
    "fleet-agent accept 1a2b3c4": "the head that `fleet-agent status` calls held",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("commit", metavar="COMMIT", help="the head that is held")


def run(args: argparse.Namespace) -> int:
    """Exit 0 when the head is let in. Raises UsageError for any but the one that is held."""
    from agent.state.directory import StateDir, state_root
    from reconciler.loop.accepted import let_in
    from reconciler.source.history import HistoryFile

    state = StateDir(state_root(args.state_dir))
    history = state.desired / "history.json"
    head = _held(args.commit.lower(), HistoryFile(history).peek())
    let_in(history, head)
    holder = state.holder()
    if holder is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # its next poll finds it
            os.kill(holder, signal.SIGHUP)
    when = "now" if holder is not None else "when the agent starts"
    tell(f"{head[:12]} is accepted; it is followed {when}")
    return Exit.OK


def _held(commit: str, record: SourceRecord) -> str:
    """The full id of the head that is held, if it is the one that was named."""
    from reconciler.source.history import VerdictKind

    if not _COMMIT.fullmatch(commit):
        raise UsageError(f"{commit}: give the commit as the agent names it, such as 9f2c1e4a07b3")
    held = record.verdict
    if held is None or held.kind is not VerdictKind.HELD:
        at = record.applied.revision[:12] if record.applied else "nothing"
        raise UsageError(f"{commit}: no head is held here; {at} is applied")
    if not held.revision.startswith(commit):
        raise UsageError(f"{commit}: another head is held: {held.message}")
    if not held.waits_for_a_person:
        raise UsageError(f"{commit}: to accept it would not help: {held.message}")
    return held.revision
