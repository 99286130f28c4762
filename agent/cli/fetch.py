"""Bring models here ahead of time: those of this node's services, or those that are named.

Works beside a running agent, which then finds them. What was fetched so stays for 30 days even
while nothing needs it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from agent.cli.download_options import DOWNLOAD_OPTIONS, MODEL_STORE, store_of
from reconciler.api.errors import InvalidFleet, UsageError
from reconciler.console.edge import Exit, tell
from reconciler.console.option import Option, add, source_of
from reconciler.console.shared import GIT_OPTIONS
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.models.store import Download, ModelStore
    from agent.state.directory import StateDir
    from reconciler.fleet.model_file import ModelFile
    from reconciler.loop.desired import Desired
    from reconciler.models.scheme import FetchContext

_ATTEMPTS = 5
_LOOK_EVERY_S = 0.25
_BAR_WIDTH = 24
_FLEET = (
    Option(
        "fleet",
        "a git URL, a folder or a .bundle file (default: where the agent's came from)",
        "URL",
        stated_variable="FLEET_URL",
    ),
    Option("ref", "a branch, tag or commit", "REF"),
    Option("path", "only this folder of the fleet", "DIR"),
    Option("node", "the FleetNode that this machine is (default: as it was last)", "NAME"),
)


EXAMPLES = {
    "fleet-agent fetch": "what this node's services need",
    "fleet-agent fetch --fleet https://git.example/fleet.git gemma-270m": "one Model of any fleet",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="a Model, NAME or NAMESPACE/NAME")
    add(parser.add_argument_group("the fleet"), (*_FLEET, *GIT_OPTIONS))
    add(parser.add_argument_group("downloads"), (MODEL_STORE, *DOWNLOAD_OPTIONS))


def run(args: argparse.Namespace) -> int:
    """Exit 0 when all are here, 1 when one is not. Raises UsageError, SourceError, InvalidFleet."""
    from agent.state.directory import StateDir, state_root

    logging.getLogger("agent.models.downloads").setLevel(logging.ERROR)  # _bring says what failed
    state = StateDir.open(state_root(args.state_dir))
    desired, context = _read(args, state)
    wanted = _wanted(args.names, desired, args.node, state)
    store = store_of(args, state.models, pin=True)
    try:
        failed = _bring(store, wanted, context)
    finally:
        store.close()
    entries = [_entry(model, store, failed.get(model.origin)) for model in wanted]
    if args.output == "json":
        print(json.dumps({"formatVersion": 1, "models": entries}))
    else:
        for entry in entries:
            print(printable(f"{entry['name']}: {entry['path'] or entry['message']}"))
    if not wanted:
        tell("this node's services need no models")
    return Exit.FAILED if failed else Exit.OK


def _read(args: argparse.Namespace, state: StateDir) -> tuple[Desired, FetchContext]:
    """The newest revision, decided, and its policy for downloads."""
    from reconciler.loop.desired import Desired, no_facts
    from reconciler.loop.journal import applied_location
    from reconciler.models.policy import context_of
    from reconciler.models.sources import hosts_of
    from reconciler.source.load import reader

    before = applied_location(state.desired / "history.json")
    location = args.fleet or before
    if not location:
        raise UsageError("say where the fleet is: --fleet URL, or $FLEET_URL")
    checkout = source_of(args, location, applied_from=before, option="--fleet").fetch()
    loaded = reader()(checkout, frozenset())
    if loaded.fleet is None:
        raise InvalidFleet(loaded.problems)
    context = context_of(
        loaded.fleet, hosts_of, open_repository=checkout.open, list_repository=checkout.folder
    )
    return Desired.of(checkout, loaded, loaded.fleet, no_facts), context


def _wanted(
    names: Sequence[str], desired: Desired, node: str | None, state: StateDir
) -> tuple[ModelFile, ...]:
    """The models to bring, each of their files once."""
    from agent.node.which import choose_node
    from agent.state.node_name import remembered_node
    from reconciler.api.meta import DEFAULT_NAMESPACE, ObjectRef
    from reconciler.api.model import Model
    from reconciler.fleet.model_file import model_file, with_companions

    fleet = desired.fleet
    if not names:
        this = choose_node(fleet, node or remembered_node(state.root))
        here = [w for w in desired.assignment.workloads if w.node == this]
        return tuple({m.origin: m for workload in here for m in workload.model_files}.values())
    models: list[ModelFile] = []
    for name in names:
        namespace, _, own = name.rpartition("/")
        model = fleet.get(Model, ObjectRef("Model", namespace or DEFAULT_NAMESPACE, own))
        if model is None:
            have = ", ".join(m.ref.label for m in fleet.all(Model)) or "none"
            raise UsageError(f"{name}: the fleet has no such Model; there is {have}")
        models += with_companions([model_file(model, fleet)])
    return tuple(models)


def _bring(store: ModelStore, wanted: Sequence[ModelFile], context: FetchContext) -> dict[str, str]:
    """Download what is not here; why not, by ModelFile.origin. A lost line is tried again."""
    from agent.models.store import DownloadPhase

    live = sys.stderr.isatty()
    attempts: dict[str, float] = {}
    failed: dict[str, str] = {}
    tries: dict[str, int] = {}
    while waiting := [m for m in wanted if store.lookup(m) is None and m.origin not in failed]:
        for model in waiting:
            store.ensure(model, context)
            download = store.download_of(model)
            if download is None or download.state is not DownloadPhase.FAILED:
                continue
            if attempts.get(model.origin) != download.since:
                attempts[model.origin] = download.since
                tries[model.origin] = tries.get(model.origin, 0) + 1
                tell(printable(f"{model.name}: {download.message}"))
            if download.reason != "DownloadFailed" or tries[model.origin] >= _ATTEMPTS:
                failed[model.origin] = download.message
        if live:
            bars = "   ".join(_bar(d) for d in store.downloads() if d.state == "downloading")
            sys.stderr.write(f"\r\x1b[K{bars}")
            sys.stderr.flush()
        time.sleep(_LOOK_EVERY_S)
    if live:
        sys.stderr.write("\r\x1b[K")
    return failed


def _bar(download: Download) -> str:
    from reconciler.api.quantity import show_bytes

    got, total = download.received_bytes, download.total_bytes
    if not total:
        return f"{download.model} {show_bytes(got)}"
    filled = min(_BAR_WIDTH, _BAR_WIDTH * got // total)
    bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
    return f"{download.model} [{bar}] {show_bytes(got)} of {show_bytes(total)}"


def _entry(model: ModelFile, store: ModelStore, message: str | None) -> dict[str, Any]:
    from reconciler.api.model import public_source

    stored = store.lookup(model)
    return {
        "name": model.name,
        "source": public_source(model.source),
        "sha256": stored.digest if stored else None,
        "sizeBytes": stored.size_bytes if stored else None,
        "path": str(stored.path) if stored else None,
        "message": message or "",
    }
