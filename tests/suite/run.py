"""One run: pytest with several workers, the builds beside it, and what is said at the end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.suite import durations
from tests.suite.builds import Build, Running, pending
from tests.suite.folder import RunFolder
from tests.suite.results import Failure, Results

_NOTHING_TO_PLAY = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
_FAST = "not e2e and not cluster and not slow"
_LOOK_S = 0.1
_REPOSITORY = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Options:
    """`words` are for pytest. `records`: note how long tests take."""

    words: tuple[str, ...]
    seed: int
    workers: int
    is_fast: bool = False
    records: bool = False

    @property
    def is_whole(self) -> bool:
        return not self.words and not self.is_fast


def play(options: Options, folder: RunFolder) -> int:
    """Run the tests to their end; the exit code. What they wrote is kept where one failed.

    Raises SystemExit with the reason: a build that they need fails, or there are none.
    """
    results = Results(folder.path)
    builds: list[Running] = []
    with _stopping(builds), _pytest(options, folder) as process:
        if options.is_whole:
            builds += _started(pending(), folder)
        is_known = options.is_whole
        while (code := process.poll()) is None:
            time.sleep(_LOOK_S)
            if not is_known and (marks := results.marks()):
                is_known = True
                needed = {name for names in marks.values() for name in names}
                builds += _started((b for b in pending() if b.name in needed), folder)
            for build in builds:
                if build.failure is not None:
                    raise SystemExit(build.failure)

    if code in _NOTHING_TO_PLAY:
        raise SystemExit(
            f"make test: no test is what these words mean: {shlex.join(options.words)}"
        )
    left = [shlex.join(process.cmdline()) for process in folder.processes()]
    if close := results.close_waits():
        print("", "took more than a tenth of its deadline:", *close[:20], sep="\n")
    if options.records and code == 0:
        durations.record(results.seconds())
    if code or left:
        folder.keep()
        print("", *_told(results.failures(), left, options.seed, folder.path), sep="\n", flush=True)
    return code or (1 if left else 0)


def _words(options: Options, folder: RunFolder) -> list[str]:
    words = [sys.executable, "-m", "pytest", "-p", "tests.suite.plugin", "-q", "--no-header"]
    words += ["-n", str(options.workers), f"--basetemp={folder.temporary}/tests"]
    words += [f"--randomly-seed={options.seed}", f"--hypothesis-seed={options.seed}"]
    words += ["--durations=20", "--durations-min=1"]
    words += ["-m", _FAST] if options.is_fast else []
    return [*words, *options.words]


@contextmanager
def _pytest(options: Options, folder: RunFolder) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own: who ends the run ends it, and not a key that both would hear."""
    process = subprocess.Popen(
        _words(options, folder), cwd=_REPOSITORY, env=folder.environment, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _started(builds: Iterable[Build], folder: RunFolder) -> list[Running]:
    return [Running.start(build, folder.path) for build in builds]


@contextmanager
def _stopping(builds: Iterable[Running]) -> Iterator[None]:
    try:
        yield
    finally:
        for build in builds:
            build.stop()


def _told(failures: Iterable[Failure], left: Iterable[str], seed: int, folder: Path) -> list[str]:
    """The last lines of a run that failed."""
    lines = [f"left behind by a test: {command}" for command in left]
    for failure in failures:
        lines += [failure.test, f"  report: {failure.details}"]
        lines += [f"  files:  {failure.folder}"] if failure.folder else []
        lines += [f"  repeat: {repeating(failure.test, seed)}"]
    lines.append(f"all that failed: {repeating('--lf', seed)}")
    return [*lines, f"everything that was kept: {folder}"]


def repeating(words: str, seed: int) -> str:
    """What to type to run a test again with the same seed. Read by a shell, by make and by us."""
    once = shlex.quote(words)
    twice = shlex.quote(once) if set(once) & set('"`$\\!') else f'"{once}"'
    return f"make test SEED={seed} T={twice.replace('$', '$$')}"
