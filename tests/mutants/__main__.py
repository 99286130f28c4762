"""The command line; what it does is said in the package's docstring."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tests.mutants
from tests.mutants.faults import Fault, faults_of
from tests.mutants.rooms import ROOMS, ROOT, Room
from tests.mutants.run import Copies, Judged, Verdict

_ENOUGH = 0.9


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", usage=tests.mutants.__doc__)
    parser.add_argument("rooms", nargs="*", choices=[*ROOMS, []], default=[])
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--at", metavar="FILE:LINE")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args(argv)
    rooms = [ROOMS[name] for name in asked.rooms or ROOMS]
    is_enough = True
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = Copies(Path(folder), asked.workers)
        for room in rooms:
            chosen = _chosen(room, asked.at, asked.faults, random.Random(asked.seed))
            judged = _judged(room, chosen, copies, asked.workers)
            is_enough &= _told(room, judged)
    print(f"seed {asked.seed}")
    return 0 if is_enough else 1


def _chosen(room: Room, at: str | None, count: int, chance: random.Random) -> Sequence[Fault]:
    everything = [f for path in room.files() for f in faults_of(path, (ROOT / path).read_bytes())]
    if at is not None:
        return [f for f in everything if f"{f.path}:{f.line}" == at]
    return chance.sample(everything, min(count, len(everything)))


def _judged(room: Room, faults: Sequence[Fault], copies: Copies, workers: int) -> Iterator[Judged]:
    lines = copies.lines(room)
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(lambda fault: copies.judge(room, fault, lines), faults)


def _told(room: Room, judged: Iterable[Judged]) -> bool:
    """Whether the room's tests see enough."""
    counts = Counter[Verdict]()
    for each in judged:
        counts[each.verdict] += 1
        if each.verdict in ("lives", "not run"):
            print(f"    {each.verdict:8} {each.fault}", flush=True)
    seen = counts["fell"] / max(1, counts.total() - counts["equivalent"])
    print(f"{room.name:14} {counts.total():4} faults  {seen:4.0%} fell ", dict(counts), flush=True)
    return seen >= _ENOUGH


if __name__ == "__main__":
    sys.exit(main())
