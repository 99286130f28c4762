"""What was measured on the fleet's machines, and evidence of it for the fleet's repository.

Machines are measured by `fleet-agent bench`, on each of them. This asks their agents for the
results. With --write, each that counts becomes a file `bench/KEY.yaml`, to be committed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.console.edge import Exit, tell
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.api.benchmark import BenchmarkResult
    from reconciler.report.status import Status
    from reconciler.source.evidence import Evidence

EXAMPLES = {
    "reconcile bench": "what all machines have measured",
    "reconcile bench chat --write .": "evidence of one service, into this clone of the fleet",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="REF", help="a service: NAME or NAMESPACE/NAME")
    parser.add_argument(
        "--write",
        metavar="DIR",
        type=Path,
        help="write what counts into DIR/bench; DIR is a clone of the fleet",
    )
    add_agent_options(parser)
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0; 3 where a machine does not answer, or a service that was named has no result that
    counts. Raises UsageError, SourceError, InvalidFleet."""
    check_output(args, "text", "json")
    from reconciler.cli import local
    from reconciler.cli.fleet import open_fleet
    from reconciler.cli.look import look
    from reconciler.cli.passes import open_pass
    from reconciler.console.statusview import chosen

    if args.write is not None and not args.write.is_dir():
        raise UsageError(f"--write {args.write}: no folder is there; name a clone of the fleet")
    with open_pass(args, open_fleet(args, working_tree=True)) as at:
        if at.fetch() is None:
            raise at.report.failure or UsageError("the fleet has no revision to look at")
        everything = local.with_measured(args, look(at))
    chosen(args, everything)  # an unknown name
    results = sorted(_results(args, everything), key=lambda r: (r.service, r.model, r.measured_at))
    return _report(args, everything, results)


def _results(args: argparse.Namespace, status: Status) -> Iterable[BenchmarkResult]:
    from reconciler.api.meta import service_ref

    wanted = {service_ref(name).label for name in args.names}
    heard = (state.benchmarks for state in status.states.values())
    for found in (*heard, *status.measured.values()):
        yield from (result for result in found if not wanted or result.service in wanted)


def _report(args: argparse.Namespace, status: Status, results: list[BenchmarkResult]) -> int:
    from reconciler.api.meta import service_ref
    from reconciler.source.evidence import read_evidence

    now = time.time()
    usable = [result for result in results if result.stale(now) is None]
    written: dict[str, str] = {}
    unused: list[str] = []
    if args.write is not None:
        found = read_evidence(args.write, now)
        written = _write(args.write, found, usable)
        unused = _unused(found, written, usable)
    if args.output == "json":
        shown = [r.model_dump(mode="json", by_alias=True, exclude_none=True) for r in results]
        print(json.dumps({"results": shown, "evidence": written, "unused": unused}, indent=1))
    else:
        _show(results, now)
        for path, what in written.items():
            tell(f"{path}: {what}")
    for line in unused:
        tell(printable(f"not used: {line}"))
    measured = {result.service for result in usable}
    lacking = [ref for ref in map(service_ref, args.names) if ref.label not in measured]
    for ref in lacking:
        tell(f"{ref.label}: no result that counts; on its machine: fleet-agent bench {ref.label}")
    silent = [s for s in status.observed.targets.values() if not s.reachable]
    for state in silent:
        tell(printable(f"{state.target} did not answer: {state.message}"))
    is_whole = not lacking and (not silent or args.allow_unreachable)
    return Exit.OK if is_whole else Exit.BLOCKED


def _show(results: list[BenchmarkResult], now: float) -> None:
    from reconciler.report.spans import age
    from reconciler.report.speeds import result_lines

    if not results:
        print("nothing was measured; on a machine: fleet-agent bench", file=sys.stderr)
    for result in results:
        for line in result_lines(result):
            print(printable(line))
        stale = result.out_of_date(now)
        when = f"  on {result.node}, {age(now - result.measured_at)}"
        print(printable(f"{when}; not used: {stale}" if stale else when))


def _write(
    root: Path, found: Iterable[Evidence], usable: Iterable[BenchmarkResult]
) -> dict[str, str]:
    """The file of each key, and what became of it. The newest measurement of a key counts,
    whichever machine of that class made it, also one that lies there already."""
    from reconciler.atomic import atomic_write
    from reconciler.kube.yaml_text import dump
    from reconciler.source.evidence import FOLDER, evidence_path

    there = {each.path: each for each in found}
    newest = {evidence_path(r): r for r in sorted(usable, key=lambda r: r.measured_at)}
    told: dict[str, str] = {}
    for path, result in sorted(newest.items()):
        old = there.get(path)
        kept = old.result if old is not None and old.refused is None else None
        if kept is not None and kept.measured_at >= result.measured_at:
            told[path] = "unchanged" if kept == result else "kept: it is newer"
            continue
        (root / FOLDER).mkdir(exist_ok=True)
        text = dump(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        atomic_write(root / path, text.encode(), mode=0o644)
        told[path] = "written" if old is None else "updated"
    return told


def _unused(
    found: tuple[Evidence, ...], written: dict[str, str], usable: list[BenchmarkResult]
) -> list[str]:
    """Evidence that must not be used: unreadable, out of date, or of what no longer exists."""
    from reconciler.source.evidence import superseded

    refused = [e.refused for e in found if e.refused is not None and e.path not in written]
    old = superseded((e for e in found if e.path not in written), usable)
    return [*refused, *(f"{path}: {why}" for path, why in old)]
