"""The process that reads the inputs of one target, and may die of one:
`python -m tests.fuzz.worker TARGET FOLDER JOB`, with a Job as JSON.

The input that is read lies in FOLDER/current, so that whoever started us knows what ended us. Each
failure is a line of JSON on stdout; the last line says how many inputs there were.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from random import Random

from tests.fuzz.judging import bound_memory, failure
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target, kept
from tests.fuzz.targets import target_of

CURRENT, NUMBER_BYTES = "current", 8  # the number of the input stands before it
_MOST_FAILURES = 20  # of one kind each: the rest is the same again


@dataclass(frozen=True, slots=True)
class Job:
    """`files`: read these and no others. Else what is known, and then what chance makes of it for
    `seconds`, beginning with the input number `first`."""

    seed: int = 0
    seconds: float = 0.0
    first: int = 0
    files: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return json.dumps(asdict(self))


def main(name: str, folder: Path, job: Job) -> None:
    target = target_of(name)
    (folder / "own").mkdir(exist_ok=True)
    read = target.prepare(folder / "own")
    seeds = tuple(target.seeds())
    bound_memory(target)
    seen: set[str] = set()
    number = job.first
    with (folder / CURRENT).open("wb", buffering=0) as current:
        for number, data in _inputs(target, seeds, job):
            current.seek(0)
            current.truncate(current.write(number.to_bytes(NUMBER_BYTES) + data))
            said = failure(target, read, data)
            if said and said.partition(": ")[0] not in seen and len(seen) < _MOST_FAILURES:
                seen.add(said.partition(": ")[0])
                path = folder / f"failed-{number}"
                path.write_bytes(data)
                print(json.dumps({"said": said, "path": str(path), "number": number}), flush=True)
    print(json.dumps({"count": number + 1 - job.first}), flush=True)


def _inputs(target: Target, seeds: tuple[bytes, ...], job: Job) -> Iterator[tuple[int, bytes]]:
    if job.files:
        yield from enumerate(Path(path).read_bytes() for path in job.files)
        return
    pool = [*seeds, *(path.read_bytes() for path in kept(target.name))]
    until = time.monotonic() + job.seconds
    for number in count(job.first):
        if time.monotonic() > until:
            return
        if number < len(pool):
            yield number, pool[number]
            continue
        chance = Random(f"{job.seed}/{target.name}/{number}")
        if target.make is not None:
            yield number, target.make(chance)
        else:
            yield number, mutated(chance, pool, target.pieces, is_json=target.is_json)


if __name__ == "__main__":
    words = json.loads(sys.argv[3])
    main(sys.argv[1], Path(sys.argv[2]), Job(**words | {"files": tuple(words["files"])}))
