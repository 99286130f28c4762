"""What was measured on the fleet's machines, and evidence of it for the fleet's repository.

This asks the fleet's agents for their results. With --local --again it measures on this machine
first, as `fleet-agent bench` does. In a cluster the reconciler measures what is not known yet;
--again has it measure once more. With --write, each that counts becomes a file `bench/KEY.yaml`, to
be committed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import StateError, UsageError
from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.console.edge import Exit, show, tell
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.api.benchmark import BenchmarkResult
    from reconciler.api.meta import ObjectRef
    from reconciler.core.plan import Plan
    from reconciler.kube.benchmarks.standing import BenchmarkStanding
    from reconciler.report.status import Status
    from reconciler.source.evidence import Evidence

EXAMPLES = {
    "reconcile bench": "what all machines have measured",
    "reconcile bench chat --local --again": "measure it on this machine, now",
    "reconcile bench chat --write .": "evidence of one service, into this clone of the fleet",
    "reconcile bench chat --cluster prod --again": "measure its pods once more, and wait for it",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="REF", help="a service: NAME or NAMESPACE/NAME")
    parser.add_argument(
        "--write",
        metavar="DIR",
        type=Path,
        help="write what counts into DIR/bench; DIR is a clone of the fleet",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="with --local: measure here first; with --cluster: have its reconciler measure the"
        " named services once more, and wait",
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        default="15m",
        help="how long --again waits (default: 15m)",
    )
    add_agent_options(parser)
    add_local_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0; 3 where a machine does not answer, or a service that was named has no result that
    counts. Raises UsageError, SourceError, InvalidFleet."""
    check_output(args, "text", "json")
    from reconciler.cli import local
    from reconciler.cli.fleet import open_planned
    from reconciler.cli.inspection import open_inspection
    from reconciler.cli.measuring import ask_again, follow
    from reconciler.cli.observed_status import status_of
    from reconciler.console.named import named_service
    from reconciler.console.statusview import chosen

    if args.write is not None and not args.write.is_dir():
        raise UsageError(f"--write {args.write}: no folder is there; name a clone of the fleet")
    measures_here = args.again and args.local is not None
    if args.again and not measures_here and not (args.names and args.cluster):
        raise UsageError(
            "--again: on this machine with --local; of a cluster name services, and with --cluster"
            " where they run"
        )
    all_count = _measure_here(args) if measures_here else True
    timeout_s, refs = _seconds(args.timeout), [named_service(name) for name in args.names]
    with open_inspection(args, open_planned(args)) as at:
        if at.fetch() is None:
            raise at.findings.failure or UsageError("the fleet has no revision to look at")
        compared = at.compare()
        everything = local.as_reported_here(args, status_of(at, compared))
        chosen(args, everything)  # an unknown name
        if args.again and not measures_here:
            ask_again(at, compared.plan, refs)
            compared = follow(at, refs, timeout_s, lambda text: tell(printable(text)))
            everything = status_of(at, compared)
    results = sorted(_results(args, everything), key=lambda r: (r.service, r.model, r.measured_at))
    code = _report(args, everything, results, compared.plan)
    return code if all_count else Exit.BLOCKED


def _measure_here(args: argparse.Namespace) -> bool:
    """Whether each that was measured now counts. Raises UsageError, StateError."""
    from agent.cli import bench as here
    from agent.cli import parser_of

    own = parser_of("bench").parse_args(args.names)
    own.state_dir = args.state_dir
    return here.measured(own, lambda result: None)[1]


def _seconds(text: str) -> float:
    from reconciler.api.quantity import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--timeout {text}: {error}") from error


def _results(args: argparse.Namespace, status: Status) -> Iterable[BenchmarkResult]:
    from reconciler.console.named import named_service

    wanted = {named_service(name).label for name in args.names}
    heard = (state.benchmarks for state in status.states.values())
    for measured in (*heard, *status.measured.values()):
        yield from (result for result in measured if not wanted or result.service in wanted)


def _report(
    args: argparse.Namespace, status: Status, results: list[BenchmarkResult], plan: Plan
) -> int:
    from reconciler.cli.measuring import standings
    from reconciler.console.named import named_service
    from reconciler.source.evidence import read_evidence

    now = time.time()
    usable = [result for result in results if result.stale(now) is None]
    written: dict[str, str] = {}
    unused: list[str] = []
    if args.write is not None:
        known = read_evidence(args.write, now)
        written = _write(args.write, known, usable)
        unused = _unused(known, written, usable)
    refs = [named_service(name) for name in args.names]
    clusters = standings(plan, refs)
    if args.output == "json":
        shown = [r.model_dump(mode="json", by_alias=True, exclude_none=True) for r in results]
        there = {r.label: {"state": s.standing, "message": s.message} for r, s in clusters.items()}
        print(
            json.dumps(
                {"results": shown, "evidence": written, "unused": unused, "clusters": there},
                indent=1,
            )
        )
    else:
        _show(results, now)
        for path, what in written.items():
            tell(f"{path}: {what}")
    for line in unused:
        tell(printable(f"not used: {line}"))
    lacking = _lacking(refs, clusters, usable)
    for line in lacking or ([] if refs else _on_their_way(clusters)):
        tell(printable(line))
    silent = [s for s in status.observed.targets.values() if not s.reachable]
    for state in silent:
        tell(printable(f"{state.target} did not answer: {state.message}"))
    is_whole = not lacking and (not silent or args.allow_unreachable)
    return Exit.OK if is_whole else Exit.BLOCKED


def _lacking(
    refs: Iterable[ObjectRef],
    clusters: Mapping[ObjectRef, BenchmarkStanding],
    usable: Iterable[BenchmarkResult],
) -> list[str]:
    """Why services that were named have no result that counts, where they run."""
    measured = {result.service for result in usable}
    lines = []
    for ref in refs:
        if ref in clusters:
            lines += [f"{ref.label}: {reason}" for reason in (clusters[ref].message,) if reason]
        elif ref.label not in measured:
            where = f"on its machine: fleet-agent bench {ref.label}; in a cluster: --cluster NAME"
            lines.append(f"{ref.label}: no result that counts; {where}")
    return lines


def _on_their_way(clusters: Mapping[ObjectRef, BenchmarkStanding]) -> list[str]:
    """What is measured soon, or was to be: of a whole fleet, what never will be is no news."""
    soon = ("waiting", "failed")
    return [f"{ref.label}: {s.message}" for ref, s in clusters.items() if s.standing in soon]


def _show(results: list[BenchmarkResult], now: float) -> None:
    from reconciler.report.spans import age
    from reconciler.report.speeds import result_lines

    if not results:
        tell("nothing was measured; on a machine: fleet-agent bench")
    for result in results:
        for line in result_lines(result):
            show(printable(line))
        stale = result.out_of_date(now)
        when = f"  on {result.node}, {age(now - result.measured_at)}"
        show(printable(f"{when}; not used: {stale}" if stale else when))


def _write(
    root: Path, evidence: Iterable[Evidence], usable: Iterable[BenchmarkResult]
) -> dict[str, str]:
    """The file of each key, and what became of it. The newest measurement of a key counts,
    whichever machine of that class made it, also one that lies there already."""
    from reconciler.kube.yaml_text import dump
    from reconciler.source.evidence import evidence_path
    from reconciler.source.folder_writer import FolderWriter

    there = {each.path: each for each in evidence}
    newest = {evidence_path(r): r for r in sorted(usable, key=lambda r: r.measured_at)}
    problems: dict[str, str] = {}
    for path, result in sorted(newest.items()):
        old = there.get(path)
        kept = old.result if old is not None and old.refused is None else None
        if kept is not None and kept.measured_at >= result.measured_at:
            problems[path] = "unchanged" if kept == result else "kept: it is newer"
            continue
        text = dump(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        try:
            with FolderWriter(root) as folder:
                folder.replace(path, text.encode(), mode=0o644)
        except OSError as error:
            raise StateError(f"{root / path}: cannot be written: {error.strerror}") from error
        problems[path] = "written" if old is None else "updated"
    return problems


def _unused(
    evidence: tuple[Evidence, ...], written: dict[str, str], usable: list[BenchmarkResult]
) -> list[str]:
    """Evidence that must not be used: unreadable, out of date, or of what no longer exists."""
    from reconciler.source.evidence import superseded

    refused = [e.refused for e in evidence if e.refused is not None and e.path not in written]
    old = superseded((e for e in evidence if e.path not in written), usable)
    return [*refused, *(f"{path}: {why}" for path, why in old)]
