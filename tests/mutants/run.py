"""Playing a room's tests against its faults, each in a copy of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

from coverage import CoverageData

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.faults import Fault
from tests.mutants.rooms import ROOT, Room

Verdict = Literal["fell", "lives", "equivalent", "not run"]

_FAST = "not e2e and not cluster"
_LONGEST_S = 60.0  # ten times what a room takes
_LEFT_OUT = (".git", ".venv", ".*_cache", "__pycache__", "build", "dist", ".hypothesis", "shared")
# A fault may end the wrong process: tests of processes see none but their own.
_SEALED = (
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--mount-proc",
    "--kill-child",
)


@dataclass(frozen=True, slots=True)
class Judged:
    fault: Fault
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Lines:
    """Which tests run each line. Those of `imported` lines are all."""

    tests: Mapping[Path, Mapping[int, frozenset[str]]]
    imported: Mapping[Path, frozenset[int]]

    def of(self, fault: Fault) -> frozenset[str] | None:
        """Ids of tests; None: all."""
        if fault.line in self.imported.get(fault.path, ()):
            return None
        return self.tests.get(fault.path, {}).get(fault.line, frozenset())


class Copies:
    """Copies of the repository, in which faults can be planted side by side."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            to = folder / str(number)
            shutil.copytree(ROOT, to, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
            self._free.put(to)

    def lines(self, room: Room) -> Lines:
        """Raises SystemExit: the room's tests fail as it is."""
        copy = self._free.get()
        data = copy / ".coverage"
        data.unlink(missing_ok=True)
        code = f"--include={','.join(f'{each}*' for each in room.code)}"
        measuring = ("-m", "coverage", "run", code, "-m", "pytest", "-p", "tests.mutants.plugin")
        if ended := _python(copy, room, (*measuring, *_words(room.tests)), None):
            raise SystemExit(f"the tests of {room.name} fail without a fault: exit {ended}")
        read = CoverageData(str(data))
        read.read()
        tests: dict[Path, Mapping[int, frozenset[str]]] = {}
        imported: dict[Path, frozenset[int]] = {}
        for name in read.measured_files():
            path = Path(name).relative_to(copy)
            by_line = read.contexts_by_lineno(name)
            tests[path] = {line: frozenset(filter(None, ids)) for line, ids in by_line.items()}
            imported[path] = frozenset(line for line, ids in by_line.items() if "" in ids)
        self._free.put(copy)
        return Lines(tests, imported)

    def judge(self, room: Room, fault: Fault, lines: Lines) -> Judged:
        if (str(fault.path), fault.was, fault.text) in EQUIVALENT:
            return Judged(fault, "equivalent")
        tests = lines.of(fault)
        if tests is not None and not tests:
            return Judged(fault, "not run")
        copy = self._free.get()
        path = copy / fault.path
        before = path.read_bytes()
        path.write_bytes(fault.planted(before))
        try:
            words = ("-m", "pytest", *_words(sorted(tests or room.tests)))
            code = _python(copy, room, words, _LONGEST_S)
        finally:
            path.write_bytes(before)
            self._free.put(copy)
        return Judged(fault, "lives" if code == 0 else "fell")


def _words(tests: Iterable[str]) -> tuple[str, ...]:
    return (
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-m",
        _FAST,
        *tests,
    )


def _python(folder: Path, room: Room, words: Iterable[str], longest_s: float | None) -> int:
    """The exit code; what takes longer ends as a failure does."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    changed = {"CI": "true", "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(home)}
    try:
        return subprocess.run(
            (*(_SEALED if room.has_processes else ()), sys.executable, *words),
            cwd=folder,
            env=os.environ | changed,
            timeout=longest_s,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode
    except subprocess.TimeoutExpired:
        return 1
