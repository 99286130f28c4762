"""Say whether the engines of this machine run, without a fleet, an agent or a download.

Each engine that is here serves a tiny model, written for that, and is asked one question.
"""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.console.edge import Exit, show
from reconciler.console.option import add, program_options, programs_of

if TYPE_CHECKING:
    from agent.doctor import Diagnosis


EXAMPLES = {
    "fleet-agent doctor": "each engine that is here",
    "fleet-agent doctor -o json": "for a program",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runtime", metavar="NAME", action="append", help="only this one; may be repeated"
    )
    parser.add_argument(
        "--timeout",
        metavar="DURATION",
        default="30s",
        help="how long an engine may take to be ready (default: 30s)",
    )
    add(parser.add_argument_group("engines"), program_options())


def run(args: argparse.Namespace) -> int:
    """Exit 0: every engine that is here works; 3: one does not, or none is here, or one that was
    asked for is not."""
    from dataclasses import asdict

    from reconciler.runtimes import RUNTIMES, resolve

    names = [name for name, row in RUNTIMES.items() if row.engine.programs]
    if args.runtime:
        rows = {word: resolve(word) for word in args.runtime}
        if unknown := [word for word, row in rows.items() if row is None]:
            raise UsageError(f"no runtime {', '.join(unknown)} (known: {', '.join(names)})")
        names = list(dict.fromkeys(row.name for row in rows.values() if row))
    timeout_s = _seconds(args.timeout)
    from agent.doctor import Verdict, examine

    checks = []
    with _one_ending() as is_over:
        for diagnosis in examine(names, programs_of(args), timeout_s, is_over):
            checks.append(diagnosis)
            if args.output == "text":
                _show(diagnosis)
    if args.output == "json":
        print(json.dumps([asdict(diagnosis) for diagnosis in checks]))
    verdicts = {diagnosis.verdict for diagnosis in checks}
    wrong = {Verdict.FAILS, Verdict.ABSENT} if args.runtime else {Verdict.FAILS}
    is_well = Verdict.WORKS in verdicts and not verdicts & wrong
    return Exit.OK if is_well else Exit.BLOCKED


@contextmanager
def _one_ending() -> Iterator[Callable[[], bool]]:
    """Whether a SIGINT or SIGTERM came. None cuts anything short: an exception that comes between
    any two lines may leave a lock held, and what was started would stay."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _seconds(text: str) -> float:
    from reconciler.api.quantity import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--timeout {text}: {error}") from error


def _show(diagnosis: Diagnosis) -> None:
    from reconciler.report.terminal import printable

    version = f" ({diagnosis.version})" if diagnosis.version else ""
    program = f"; {diagnosis.program}{version}" if diagnosis.program else ""
    named = f"{diagnosis.runtime:<16} {diagnosis.verdict:<8} "
    show(printable(f"{named}{diagnosis.message}{program}"), len(named))
    for line in diagnosis.log:
        print(printable(f"{'':<25} | {line}"), flush=True)
