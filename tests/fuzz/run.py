"""A target's inputs in processes that may die, and what is kept of an input that fails."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.judging import ENDED
from tests.fuzz.target import CORPUS
from tests.fuzz.worker import CURRENT, NUMBER_BYTES, Job

_ROOT = Path(__file__).parent.parent.parent
_SHRINKING_S = 20.0
_SHOWN_BYTES = 120


@dataclass(frozen=True, slots=True)
class Failure:
    """An input, and what came of it."""

    target: str
    said: str
    data: bytes

    @property
    def kind(self) -> str:
        """The same for inputs that fail in the same way at the same place."""
        return self.said.partition(": ")[0]


def explore(target: str, seed: int, seconds: float) -> tuple[int, list[Failure]]:
    """How many inputs there were, and one failure of each kind."""
    until = time.monotonic() + seconds
    found: dict[str, Failure] = {}
    job = Job(seed, seconds)
    while True:
        left = until - time.monotonic()
        ended = _worked(target, replace(job, seconds=max(0.0, left)))
        for failure in ended.failures:
            found.setdefault(failure.kind, failure)
        if ended.is_whole or left <= 0:
            return ended.reached, list(found.values())
        job = replace(job, first=ended.reached)


def replay(target: str, files: tuple[Path, ...]) -> list[Failure]:
    """The failures of these inputs."""
    found: list[Failure] = []
    rest = files
    while rest:
        ended = _worked(target, Job(files=tuple(map(str, rest))))
        found += ended.failures
        rest = () if ended.is_whole else rest[ended.reached :]
    return found


def shrunk(failure: Failure) -> Failure:
    """The same failure by a smaller input, as far as a little patience goes."""
    until = time.monotonic() + _SHRINKING_S
    best, step = failure, max(1, len(failure.data) // 2)
    while step and time.monotonic() < until:
        begin = 0
        while begin < len(best.data) and time.monotonic() < until:
            data = best.data[:begin] + best.data[begin + step :]
            if failure.kind in [f.kind for f in _of(failure.target, data)]:
                best = replace(best, data=data)
            else:
                begin += step
        step //= 2
    return best


def keep(failure: Failure) -> Path:
    """Its input in the corpus, where each later run and the tests read it."""
    folder = CORPUS / failure.target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(failure.data).hexdigest()[:12]
    path.write_bytes(failure.data)
    return path


def shown(failure: Failure, path: Path) -> Iterator[str]:
    """What is wrong, and the command that shows it again."""
    data = failure.data
    more = "..." if len(data) > _SHOWN_BYTES else ""
    yield f"FAILED  {failure.target}: {failure.said}"
    yield f"        {len(data)} bytes: {data[:_SHOWN_BYTES]!r}{more}"
    where = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path
    yield f"        again: python -m tests.fuzz --target {failure.target} --input {where}"


@dataclass(frozen=True, slots=True)
class _Ended:
    failures: list[Failure]
    reached: int  # the number of the first input that was not read
    is_whole: bool


def _of(target: str, data: bytes) -> list[Failure]:
    with TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "input"
        path.write_bytes(data)
        return replay(target, (path,))


def _worked(target: str, job: Job) -> _Ended:
    with TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "error",
                "-m",
                "tests.fuzz.worker",
                target,
                str(folder),
                job.words,
            ],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        failures = [
            Failure(target, line["said"], Path(line["path"]).read_bytes())
            for line in lines
            if "said" in line
        ]
        if lines and "count" in lines[-1]:
            return _Ended(failures, job.first + lines[-1]["count"], True)
        if not (folder / CURRENT).exists():
            raise RuntimeError(f"{target}: its process ended before the first input")
        read = (folder / CURRENT).read_bytes()
        number, data = int.from_bytes(read[:NUMBER_BYTES]), read[NUMBER_BYTES:]
        said = f"{ENDED.get(done.returncode, f'ended with {done.returncode}')}: {target}"
        return _Ended([*failures, Failure(target, said, data)], number + 1, False)
