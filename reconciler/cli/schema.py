"""Write the JSON Schemas of the kinds and of the plan, and the kinds' definitions for clusters."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from reconciler.api.errors import UsageError
from reconciler.api.plain_json import parse_json
from reconciler.console.edge import Exit, tell

EXAMPLES = {
    "reconcile schema --to schemas": "for an editor, or another validator",
    "reconcile schema --check": "in CI: whether those in the repository are current",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", metavar="DIR", default="schemas", help="the folder to write to (default: schemas)"
    )
    parser.add_argument(
        "--chart", metavar="DIR", help="write the parts of the Helm chart there that come from them"
    )
    parser.add_argument(
        "--page", metavar="FILE", help="write the reference of all fields there, as Markdown"
    )
    parser.add_argument(
        "--arguments",
        action="store_true",
        help="print which extraArgs and env each runtime takes, and write nothing",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="only say whether they are current, and JSON Schemas at all",
    )


def run(args: argparse.Namespace) -> int:
    """Exit 0 written or current, 1 stale or no schema with --check."""
    if args.arguments:
        return _arguments()
    from reconciler.kube.crd.definitions import crd_files
    from reconciler.kube.install.chart import chart_files
    from reconciler.report.field_page import field_page
    from reconciler.report.plan_schema import plan_schema
    from reconciler.runtimes import RUNTIMES
    from reconciler.schema import answer_schema, schema_document, schemas

    folder = Path(args.to)
    answers = {"plan.json": plan_schema(), "nodestate.json": answer_schema()}
    texts = schemas(RUNTIMES) | {name: schema_document(name, s) for name, s in answers.items()}
    wanted = {folder / name: text for name, text in (texts | crd_files(RUNTIMES)).items()}
    if args.chart:
        chart = chart_files(RUNTIMES).items()
        wanted |= {Path(args.chart) / name: text for name, text in chart}
    if args.page:
        wanted[Path(args.page)] = field_page(RUNTIMES)
    stale = [path for path, text in wanted.items() if _read(path) != text]
    if args.check:
        also = f" --chart {args.chart}" if args.chart else ""
        also += f" --page {args.page}" if args.page else ""
        for path in stale:
            tell(f"{path}: stale; run `reconcile schema --to {folder}{also}`")
        broken = list(_broken(path for path in wanted if path.suffix == ".json"))
        for line in broken:
            tell(line)
        return Exit.FAILED if stale or broken else Exit.OK
    for path in stale:
        _write(path, wanted[path])
    tell(f"{folder}: {len(wanted)} files, {len(stale)} written")
    return Exit.OK


def _write(path: Path, text: str) -> None:
    from reconciler.source.folder_writer import FolderWriter

    try:
        with FolderWriter(path.parent, named=False) as folder:
            folder.replace(path.name, text.encode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def _arguments() -> int:
    from reconciler.runtimes import RUNTIMES

    for name, row in RUNTIMES.items():
        print(f"{name}\n  extraArgs: {' '.join(row.arguments) or 'none'}")
        names = re.split(r"\|(?![^()]*\))", row.variables)  # the alternatives, each a pattern
        print(f"  env: {' '.join(names) or 'none'}")
    return Exit.OK


def _broken(paths: Iterable[Path]) -> Iterator[str]:
    """What other people's validators could not use of the files that are there."""
    from reconciler.source.reference import schema_mistake

    for path in paths:
        try:
            mistake = schema_mistake(parse_json(_read(path) or "{}"))
        except ValueError as error:
            mistake = f"not JSON: {error}"
        if mistake:
            yield f"{path}: {mistake}"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
