"""Playing a room's tests against its faults, each in a copy of the repository."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from coverage import CoverageData

from tests.mutants.faults import Fault, faults_of
from tests.mutants.rooms import ROOT, Room
from tests.mutants.verdicts import Judged, why_equivalent

_FAST = "not e2e and not cluster"
_WITH_PROCESSES = "not llama_server and not cluster"
# Several times what a room takes. Of the processor: beside other work everything takes longer, and
# what was cut short would count as noticed. By the clock, for what waits and computes nothing.
_MOST_COMPUTED_S = 120
_LONGEST_S = 900.0
_BOUND = ("sh", "-c", f'ulimit -t {_MOST_COMPUTED_S} && exec "$@"', "sh")
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


class RoomFailsError(Exception):
    """A room's tests do not pass as it is: nothing can be said of faults in it."""


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


def chosen(room: Room, count: int, seed: int) -> Sequence[Fault]:
    """So many of a room's faults; the same ones for the same seed."""
    everything = every_fault(room)
    return random.Random(seed).sample(everything, min(count, len(everything)))


def every_fault(room: Room) -> Sequence[Fault]:
    return [f for path in room.files() for f in faults_of(path, (ROOT / path).read_bytes())]


def can_seal() -> bool:
    """Whether this machine lets tests be shut in, as a room with processes needs it."""
    if shutil.which(_SEALED[0]) is None:
        return False
    return subprocess.run((*_SEALED, "true"), capture_output=True).returncode == 0


class Copies:
    """Copies of the repository, in which faults can be planted side by side."""

    def __init__(self, folder: Path, count: int) -> None:
        self._count = count
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            to = folder / str(number)
            shutil.copytree(ROOT, to, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
            self._free.put(to)

    @classmethod
    @contextmanager
    def made(cls, count: int) -> Iterator[Copies]:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            yield cls(Path(folder), count)

    def judged(self, room: Room, faults: Iterable[Fault]) -> Iterator[Judged]:
        """Each with what became of it, in their order. Raises RoomFailsError."""
        lines = self._lines(room)
        with ThreadPoolExecutor(self._count) as pool:
            yield from pool.map(lambda fault: self._judge(room, fault, lines), faults)

    def _lines(self, room: Room) -> Lines:
        copy = self._free.get()
        data = copy / ".coverage"
        data.unlink(missing_ok=True)
        code = f"--source={','.join(sorted({str(path.parent) for path in room.files()}))}"
        measuring = ("-m", "coverage", "run", code, "-m", "pytest", "-p", "tests.mutants.plugin")
        if ended := _python(copy, room, (*measuring, *_words(room, room.tests)), None):
            raise RoomFailsError(f"the tests of {room.name} fail without a fault: exit {ended}")
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

    def _judge(self, room: Room, fault: Fault, lines: Lines) -> Judged:
        if why_equivalent(fault):
            return Judged(fault, "equivalent")
        tests = lines.of(fault)
        if tests is not None and not tests:
            return Judged(fault, "not run")
        copy = self._free.get()
        path = copy / fault.path
        before = path.read_bytes()
        path.write_bytes(fault.planted(before))
        try:
            words = ("-m", "pytest", *_words(room, _in_order(room, tests)))
            code = _python(copy, room, words, _LONGEST_S)
        finally:
            path.write_bytes(before)
            self._free.put(copy)
        return Judged(fault, "lives" if code == 0 else "fell")


def _in_order(room: Room, tests: Iterable[str] | None) -> Sequence[str]:
    """The room's tests, the quick ones first; or some of them, by their ids."""
    if tests is None:
        return room.tests
    places = {place: number for number, place in enumerate(room.tests)}
    return sorted(tests, key=lambda test: (places.get(test.partition("::")[0], 0), test))


def _words(room: Room, tests: Iterable[str]) -> tuple[str, ...]:
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
        _WITH_PROCESSES if room.has_processes else _FAST,
        *tests,
    )


def _python(folder: Path, room: Room, words: Iterable[str], longest_s: float | None) -> int:
    """The exit code; what takes longer ends as a failure does."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    changed = {"CI": "true", "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(home)}
    try:
        return subprocess.run(
            (
                *(_BOUND if longest_s else ()),
                *(_SEALED if room.has_processes else ()),
                *(sys.executable, *words),
            ),
            cwd=folder,
            env=os.environ | changed,
            timeout=longest_s,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).returncode
    except subprocess.TimeoutExpired:
        return 1
