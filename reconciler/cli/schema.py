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
    parser.add_argument(
        "--chart", metavar="DIR", help="write the parts of the Helm chart there that come from them"
    )
    parser.add_argument("--check", action="store_true", help="only say whether they are current")


def run(args: argparse.Namespace) -> int:
    """Exit 0 written or current, 1 stale with --check."""
    from reconciler.kube.definitions.crd import crd_files
    from reconciler.kube.installation.chart import chart_files
    from reconciler.report.plan_json import plan_schema
    from reconciler.runtimes import RUNTIMES
    from reconciler.schema import answer_schema, schema_document, schemas

    folder = Path(args.to)
    answers = {"plan.json": plan_schema(), "nodestate.json": answer_schema()}
    texts = schemas(RUNTIMES) | {name: schema_document(name, s) for name, s in answers.items()}
    wanted = {folder / name: text for name, text in (texts | crd_files(RUNTIMES)).items()}
    if args.chart:
        chart = chart_files(RUNTIMES).items()
        wanted |= {Path(args.chart) / name: text for name, text in chart}
    stale = [path for path, text in wanted.items() if _read(path) != text]
    if args.check:
        chart_words = f" --chart {args.chart}" if args.chart else ""
        for path in stale:
            print(
                f"{path}: stale; run `reconcile schema --to {folder}{chart_words}`", file=sys.stderr
            )
        return Exit.FAILED if stale else Exit.OK
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    print(f"{folder}: {len(wanted)} files, {len(stale)} written", file=sys.stderr)
    return Exit.OK


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
