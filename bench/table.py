"""The table that every benchmark prints, and how a whole process is measured."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

RECONCILE = (sys.executable, "-m", "reconciler")
RUNS = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One measured thing. `values` and `budget` are in `unit`; `cpu` is user + system time.

    Other programs on the machine only ever add: the least value, and the least CPU time, say what
    the program itself costs.
    """

    what: str
    unit: str
    values: Sequence[float]
    how: str
    budget: float | None = None
    cpu: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took, start to end, its children included. Seconds, and MiB at most."""

    wall_s: float
    cpu_s: float
    peak_mib: float


_LINE = "{:<58} {:>9} {:>9} {:>9} {:>9}   {}"


def show(rows: Iterable[Row]) -> None:
    """Print rows as they come. `!` marks a median over its budget."""
    print(_LINE.format("what", "budget", "median", "min", "min cpu", "how"), flush=True)
    for row in rows:
        median = statistics.median(row.values)
        over = "!" if row.budget is not None and median > row.budget else ""
        cells = (
            _cell(row.budget, row.unit),
            over + _cell(median, row.unit),
            _cell(min(row.values), row.unit),
            _cell(min(row.cpu, default=None), row.unit),
        )
        print(_LINE.format(row.what, *cells, row.how), flush=True)


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def program(
    what: str, argv: Sequence[str], budget_ms: float | None, how: str, codes: Iterable[int] = (0,)
) -> Row:
    """A row of a whole process, in ms: once to warm the disk's cache, then RUNS times."""
    run(argv, codes)
    costs = [run(argv, codes) for _ in range(RUNS)]
    walls, cpus = [c.wall_s * 1e3 for c in costs], [c.cpu_s * 1e3 for c in costs]
    return Row(what, "ms", walls, how, budget_ms, cpus)


def run(argv: Sequence[str], codes: Iterable[int] = (0,)) -> Cost:
    """Run a program with its output in files. Ends this one when it ends with another code."""
    with tempfile.TemporaryFile("w+") as out:
        begin = time.perf_counter()
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in codes:
            out.seek(0)
            tail = out.read()[-2000:]
            sys.exit(f"{' '.join(argv)} ended with {process.returncode}:\n{tail}")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return Cost(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / unit)


def timed(step: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of a step in this process: wall, and CPU of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


def commit_all(folder: Path, message: str) -> None:
    """Make the folder a git repository if it is none, and commit everything in it."""
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.org")
    begin = () if (folder / ".git").exists() else (("init", "--quiet", "--initial-branch=main"),)
    for argv in (
        *begin,
        ("add", "--all"),
        (*who, "commit", "--quiet", "--message", message),
    ):
        subprocess.run(("git", "-C", str(folder), *argv), check=True)
