"""Measure how fast models answer on this machine, against the processes that serve them.

Without names, everything that runs here, one after the other. The results are kept, and shown by
`fleet-agent status`; `reconcile bench --write DIR` makes evidence of them in a clone of the fleet.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from agent.cli.download_options import MODEL_STORE
from reconciler.api.errors import BenchmarkError, UsageError
from reconciler.console.edge import Exit, show, tell
from reconciler.console.option import add
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.bench.measure import Rules
    from agent.process.records import ProcessRecord, Records
    from agent.state.directory import StateDir
    from reconciler.api.benchmark import BenchmarkResult

EXAMPLES = {
    "fleet-agent bench": "everything that runs here",
    "fleet-agent bench chat -o json": "one service, for a program",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="NAME or NAMESPACE/NAME")
    parser.add_argument(
        "--wait",
        metavar="TIME",
        default="30s",
        help="for requests in flight to end (default: 30s)",
    )
    parser.add_argument(
        "--beside-traffic",
        action="store_true",
        help="measure although it serves requests; such a result is shown and not used",
    )
    parser.add_argument(
        "--max-variation",
        metavar="PERCENT",
        default="10",
        help="how far the runs of a result that counts may differ (default: 10)",
    )
    add(parser, (MODEL_STORE,))


def run(args: argparse.Namespace) -> int:
    """Exit 0: every result counts; 3: one does not, or could not be had. Raises UsageError,
    StateError."""
    results, is_well = measured(args, _show if args.output == "text" else _no_line)
    if args.output == "json":
        shown = [r.model_dump(mode="json", by_alias=True, exclude_none=True) for r in results]
        print(json.dumps(shown))
    return Exit.OK if is_well else Exit.BLOCKED


def measured(
    args: argparse.Namespace, show: Callable[[BenchmarkResult], None]
) -> tuple[list[BenchmarkResult], bool]:
    """What was measured now, each given to `show` as it comes, and whether all of it counts. Raises
    UsageError, StateError."""
    from agent.bench.measure import Rules
    from agent.cli.stop import opened_at
    from agent.process.records import Records
    from agent.state.benchmarks import alone
    from agent.state.directory import state_root

    rules = Rules(
        wait_s=_seconds(args.wait),
        beside_traffic=args.beside_traffic,
        most_variation=_share(args.max_variation),
    )
    state = opened_at(state_root(args.state_dir))
    if state is None:
        return [], True
    known = Records(state)
    records = [record for record in known.read_all() if record.wanted]
    chosen = _chosen(args.names, records)
    if not chosen:
        tell("nothing runs here to measure")
    with alone(state):
        return _measure(args, state, known, chosen, rules, show)


def _measure(
    args: argparse.Namespace,
    state: StateDir,
    known: Records,
    chosen: list[ProcessRecord],
    rules: Rules,
    show: Callable[[BenchmarkResult], None],
) -> tuple[list[BenchmarkResult], bool]:
    from agent.bench.measure import measure
    from agent.bench.subject import subjects
    from agent.models.store import ModelStore
    from agent.state.benchmarks import keep
    from agent.state.node_name import remembered_node

    results, is_well = [], True
    node = remembered_node(state.root) or "this"
    with closing(ModelStore(args.model_store or state.models, read_only=True)) as store:
        for record in chosen:
            try:
                for subject in subjects(record, store, rules.machine):
                    say = partial(_progress, subject.label)
                    result = measure(subject, known.read_all, node, rules, say)
                    keep(state, result)
                    results.append(result)
                    is_well = is_well and result.problem is None
                    _progress("", "")
                    show(result)
            except BenchmarkError as error:
                is_well = False
                _progress("", "")
                tell(printable(str(error)))
    _progress("", "")
    return results, is_well


def _chosen(names: list[str], records: list[ProcessRecord]) -> list[ProcessRecord]:
    from agent.cli.stop import unknown
    from reconciler.console.named import named_service

    if not names:
        return records
    wanted = {named_service(name) for name in names}
    here = {record.launch.ref for record in records}
    if strange := wanted - here:
        raise unknown(strange, here)
    return [record for record in records if record.launch.ref in wanted]


def _progress(label: str, text: str) -> None:
    """One live line on a terminal; none elsewhere."""
    if sys.stderr.isatty():
        line = printable(f"{label}: {text}") if text else ""
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


def _no_line(_: BenchmarkResult) -> None:
    """They are printed together."""


def _show(result: BenchmarkResult) -> None:
    from reconciler.report.speeds import result_lines

    for line in result_lines(result):
        show(printable(line))


def _seconds(text: str) -> float:
    from reconciler.api.quantity import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--wait {text}: {error}") from error


def _share(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 < percent <= 1000:
        raise UsageError(f"--max-variation {text}: give a percentage, such as 10")
    return percent / 100
