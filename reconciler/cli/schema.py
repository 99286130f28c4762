"""Write the JSON Schemas of the kinds and of the plan, and the kinds' definitions for clusters."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reconciler.edge import Exit


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", metavar="DIR", default="schemas", help="the folder to write to (default: schemas)"
    )
    parser.add_argument("--check", action="store_true", help="only say whether they are current")


def run(args: argparse.Namespace) -> int:
    """Exit 0 written or current, 1 stale with --check."""
    from reconciler.kube.crd import FOLDER, crd_files
    from reconciler.report.plan_json import plan_schema
    from reconciler.runtimes import RUNTIMES
    from reconciler.schema import answer_schema, schema_document, schemas

    folder = Path(args.to)
    answers = {"plan.json": plan_schema(), "nodestate.json": answer_schema()}
    wanted = schemas(RUNTIMES) | {name: schema_document(name, s) for name, s in answers.items()}
    wanted |= crd_files(RUNTIMES)
    stale = [name for name, text in wanted.items() if _read(folder / name) != text]
    if args.check:
        for name in stale:
            print(f"{folder / name}: stale; run `reconcile schema --to {folder}`", file=sys.stderr)
        return Exit.FAILED if stale else Exit.OK
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for name in stale:
        (folder / name).write_text(wanted[name], encoding="utf-8")
    print(f"{folder}: {len(wanted)} schemas, {len(stale)} written", file=sys.stderr)
    return Exit.OK


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
