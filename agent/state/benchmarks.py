"""The measurements of this machine, in one file of the state directory."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from agent.state.directory import StateDir
from reconciler.api.benchmark import BenchmarkResult, readable
from reconciler.api.errors import BenchmarkError, StateError
from reconciler.atomic import atomic_write
from reconciler.ownfile import Damaged, move_aside, read_json

_MOST = 500  # of what was measured once and never again; the newest stay


def results_file(root: Path) -> Path:
    return root / "benchmarks.json"


def read_results(root: Path) -> tuple[BenchmarkResult, ...]:
    """What was measured here, oldest first. Entries that cannot be read are left out."""
    return tuple(_read(results_file(root))[0])


class ResultsWatch:
    """The results, read again when their file has changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: tuple[object, tuple[BenchmarkResult, ...]] = (None, ())

    def read(self) -> tuple[BenchmarkResult, ...]:
        try:
            status = results_file(self._root).stat()
        except OSError:
            return ()
        version = (status.st_ino, status.st_size, status.st_mtime_ns)
        if version != self._known[0]:
            self._known = (version, read_results(self._root))
        return self._known[1]


def keep(state: StateDir, result: BenchmarkResult) -> None:
    """Put a result in the place of the earlier one for the same model and settings. One with a
    problem takes no place from one without. StateError if the disk does not take it."""
    file = results_file(state.root)
    results, wrong = _read(file)
    if wrong:
        move_aside(file, wrong)
    try:
        kept = [old for old in results if _place(old) != _place(result)]
        shown = [
            r.model_dump(mode="json", by_alias=True, exclude_none=True) for r in (*kept, result)
        ]
        atomic_write(file, json.dumps(shown[-_MOST:], indent=1).encode())
    except OSError as error:
        raise StateError(f"{file}: cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def alone(state: StateDir) -> Iterator[None]:
    """One measurement at a time on this machine: two would slow each other down. Raises
    BenchmarkError."""
    descriptor = os.open(state.root / "bench.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BenchmarkError(
                "another fleet-agent bench runs here, and two would slow each other down; wait for"
                " its end"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _place(result: BenchmarkResult) -> tuple[str, bool]:
    return result.key.short, result.problem is None


def _read(file: Path) -> tuple[list[BenchmarkResult], str]:
    """What can be read, and what is wrong with the rest."""
    try:
        entries = read_json(file, list) or []
    except Damaged as error:
        return [], str(error)
    results = readable(entries)
    return list(results), "" if len(results) == len(entries) else "not all of it is a result"
