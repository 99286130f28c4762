"""List the models that are here, verify them, put some in by hand or into a registry, remove what
nothing needs."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cli.download_options import DOWNLOAD_OPTIONS, MODEL_STORE, store_of
from agent.cli.stored_models import SHOWN_DIGITS, by_names, entry, row, show_gone
from reconciler.api.errors import StateError, UsageError
from reconciler.console.edge import Exit, hangups, show, tell
from reconciler.console.option import add
from reconciler.console.shared import STATE_DIR
from reconciler.report.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Collection

    from agent.models.store import ModelStore
    from agent.state.directory import StateDir

_NEEDED = (
    "nothing was removed: what the fleet wants here would be fetched again. Take the service out of"
    " the fleet first (`reconcile rm NAME`)"
)
_NAME_HELP = "a file's name, a source, or a digest's beginning, as list shows them"

EXAMPLES = {
    "fleet-agent store list": "what is here",
    "fleet-agent store verify": "read every byte of it",
    "fleet-agent store import mini.gguf --source hf://org/mini/mini.gguf": "a copy from elsewhere",
    "fleet-agent store push mini.gguf oci://reg.example/mini:1": "for other machines to fetch",
    "fleet-agent store rm mini.gguf": "one that nothing here needs",
    "fleet-agent store gc --dry-run": "what is needed no more",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add(parser, (MODEL_STORE, *DOWNLOAD_OPTIONS))
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="the models, their sizes and what they answer for")
    verify = actions.add_parser("verify", help="read every byte; take damaged models out of use")
    verify.add_argument("names", nargs="*", metavar="NAME", help=f"{_NAME_HELP} (default: all)")
    verify.add_argument("--dry-run", action="store_true", help="only say what is damaged")
    put = actions.add_parser("import", help="put a file, or a folder, in by its digest")
    put.add_argument("file", type=Path, metavar="PATH")
    put.add_argument("--source", help="answer for this source of a Model from now on")
    put.add_argument("--format", choices=("gguf", "mlx", "safetensors"), help="default: by name")
    push = actions.add_parser("push", help="put a model into an OCI registry, for others to fetch")
    push.add_argument("name", metavar="NAME", help=_NAME_HELP)
    push.add_argument("target", metavar="oci://REGISTRY/REPOSITORY:TAG")
    gc = actions.add_parser("gc", help="remove the models that nothing needs any more")
    gc.add_argument("--dry-run", action="store_true", help="only say what would go")
    rm = actions.add_parser("rm", help="remove models that no service here needs")
    rm.add_argument("names", nargs="+", metavar="NAME", help=_NAME_HELP)
    rm.add_argument("--dry-run", action="store_true", help="only say what would go")
    for action in (listed, verify, put, push, rm, gc):
        add(action, (STATE_DIR, MODEL_STORE), again=True)
        action.add_argument("-o", "--output", choices=("text", "json"), default=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Exit 0; 3 when verify found damage, or rm what is needed. Raises UsageError, ModelError,
    StateError."""
    from agent.state.directory import StateDir, state_root

    state = StateDir.open(state_root(args.state_dir))
    store = store_of(args, state.models)
    actions = {
        "list": _list,
        "verify": _verify,
        "import": _import,
        "push": _push,
        "rm": _rm,
        "gc": _gc,
    }
    return actions[args.action](args, store, state)


def _list(args: argparse.Namespace, store: ModelStore, state: StateDir) -> int:
    from reconciler.api.model import public_source
    from reconciler.api.quantity import show_bytes
    from reconciler.models.url import shown

    stocked = store.inventory()
    if args.output == "json":
        entries = [
            entry(s.model)
            | {"sources": [public_source(one) for one in s.sources], "resolved": list(s.resolved)}
            for s in stocked
        ]
        print(json.dumps({"formatVersion": 1, "store": str(store.root), "models": entries}))
        return Exit.OK
    for s in stocked:
        m = s.model
        fetched = f"fetched from {shown(m.source)}" if m.source else f"{m.path.name}, imported"
        sources = ", ".join(map(shown, s.sources)) or fetched
        row = f"{m.digest[:SHOWN_DIGITS]}  {show_bytes(m.size_bytes):>9}  {m.format:<11}  {sources}"
        show(row)
    total = sum(s.model.size_bytes for s in stocked)
    tell(f"{store.root}: {counted('model', len(stocked))}, {show_bytes(total)}")
    return Exit.OK


def _verify(args: argparse.Namespace, store: ModelStore, state: StateDir) -> int:
    from agent.models.damage import damage_of

    entries: list[dict[str, Any]] = []
    for model in by_names(args.names, store) if args.names else store.contents.all():
        tell(f"{model.digest[:SHOWN_DIGITS]}: reading {model.path.name}")
        damage = damage_of(model)
        moved = store.contents.set_aside(model.digest) if damage and not args.dry_run else None
        entries.append(entry(model) | {"damage": damage, "movedTo": str(moved) if moved else None})
    damaged = [each for each in entries if each["damage"]]
    if args.output == "json":
        print(json.dumps({"formatVersion": 1, "models": entries}))
    else:
        for each in damaged:
            where = f"; moved to {each['movedTo']}" if each["movedTo"] else ""
            print(f"{each['sha256'][:SHOWN_DIGITS]}: damaged: {each['damage']}{where}")
        if users := _started_from([e["sha256"] for e in damaged if e["movedTo"]], state):
            tell(f"still in use: `fleet-agent restart {users}{state.option}` reads it anew")
        tell(f"{len(entries)} verified, {len(damaged)} damaged")
    return Exit.BLOCKED if damaged else Exit.OK


def _started_from(digests: Collection[str], state: StateDir) -> str:
    """The services whose processes were started from these models, with blanks between."""
    from agent.process.records import Records

    records = Records(state).read_all()
    commands = {r.launch.ref.label: " ".join(r.launch.command.argv) for r in records if r.child}
    return " ".join(label for label, argv in commands.items() if any(d in argv for d in digests))


def _import(args: argparse.Namespace, store: ModelStore, state: StateDir) -> int:
    from reconciler.api.model import format_by_name
    from reconciler.fleet.model_file import ModelFile
    from reconciler.models.sources import check_source

    path = args.file.expanduser().absolute()
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or folder")
    if args.source and (reason := check_source(args.source)):
        raise UsageError(f"--source {args.source}: {reason}")
    uri = path.as_uri() + ("/" if path.is_dir() else "")
    form = args.format or format_by_name(args.source or uri)
    stored = store.take_in(ModelFile(path.name, uri, form))
    if args.source:
        store.contents.assign(args.source, stored.digest)
    if args.output == "json":
        print(json.dumps({"formatVersion": 1, "models": [entry(stored)]}))
    else:
        print(stored.digest)
        tell(f"{stored.path}: a Model with this sha256 needs no download")
    return Exit.OK


def _push(args: argparse.Namespace, store: ModelStore, state: StateDir) -> int:
    from reconciler.models.oci_push import PushedFile, push

    (model,) = by_names([args.name], store)
    files = [PushedFile(f.path, model.base / f.path, f.size_bytes, f.sha256) for f in model.files]
    source = push(args.target, files, lambda line: print(line, file=sys.stderr, flush=True))
    if args.output == "json":
        print(json.dumps({"formatVersion": 1, "models": [entry(model) | {"source": source}]}))
    else:
        print(source)
        model_fields = (
            f"a Model with this source, sha256: {model.digest} and format: {model.format} is it"
        )
        tell(model_fields)
    return Exit.OK


def _rm(args: argparse.Namespace, store: ModelStore, state: StateDir) -> int:
    """All that are named, or none: who typed them took all of them for needless."""
    from agent.node.recorded import needers

    models, who = by_names(args.names, store), partial(needers, state=state, store=store)
    digests = [model.digest for model in models]
    needed = who(digests) if args.dry_run else store.remove(digests, who)
    gone = () if needed else models
    if args.output == "json":
        held = [entry(m) | {"neededBy": [*needed[m.digest]]} for m in models if m.digest in needed]
        report = {"formatVersion": 1, "dryRun": args.dry_run, "models": [*map(entry, gone)]}
        print(json.dumps(report | {"needed": held}))
    elif not needed:
        show_gone(gone, dry_run=args.dry_run)
    else:
        for model in models:
            if model.digest in needed:
                show(f"{row(model)}  needed by {', '.join(needed[model.digest])}")
        tell(_NEEDED)
    return Exit.BLOCKED if needed else Exit.OK


def _gc(args: argparse.Namespace, store: ModelStore, state: StateDir) -> int:
    from agent.node.recorded import needed_digests

    holder = state.holder()
    if holder is not None and not args.dry_run:
        raise StateError(
            f"{state.root}: the agent with pid {holder} runs, and removes by itself what nothing"
            " needs; --dry-run shows what that would be"
        )
    with contextlib.ExitStack() as locks:
        if not args.dry_run and state.root.is_dir():
            # An agent that began now could bring what we are about to remove. Whoever has the lock
            # is sent SIGHUP, to look: before it, there must be something that heeds that.
            locks.enter_context(hangups(lambda: None))
            state.lock()
            locks.callback(state.unlock)
        keep = store.kept(needed_digests(state, store))
        sizes = {model.digest: model for model in store.contents.all()}
        gone = [sizes[digest] for digest in store.contents.unneeded(keep) if digest in sizes]
        if not args.dry_run:
            store.collect(keep)
            store.contents.drop_corrupt()
    if args.output == "json":
        report = {"formatVersion": 1, "dryRun": args.dry_run, "models": [entry(m) for m in gone]}
        print(json.dumps(report))
        return Exit.OK
    show_gone(gone, dry_run=args.dry_run)
    return Exit.OK
