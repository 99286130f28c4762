"""Run all tests again and again, each time in another order and with other examples.

    make soak                       until Ctrl-C
    make soak ROUNDS=10             so many times
    make soak FAULTS=50             with more faults planted in a round; 0: none
    make soak T=tests/loop/test_loop.py  a part, without faults

A failure ends nothing: its command is printed, and again at the end with a line for each round.
After its tests a round plants some faults in one room of decisions (`tests/mutants`), the next
round in the next room. Those that the room's tests do not notice are listed at the end: tests are
missing, and nothing failed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

from tests.mutants.rooms import ROOMS, Room
from tests.mutants.verdicts import Seen

FUZZ_SECONDS = "FUZZ_SECONDS"  # the variable that says how long a round looks for odd inputs
_LONGER = {
    FUZZ_SECONDS: "120",
    "CHAOS_ROUNDS": "100",
    "CLUSTER_CHAOS_ROUNDS": "40",
    "FIELD_HISTORIES": "200",
    "WALK_STEPS": "40",
    "WRONG_DOCUMENTS": "20000",
}
_FAULTS = 20
_WORKERS = 2  # of faults


@dataclass(frozen=True, slots=True)
class Round:
    """`seen`: what became of the planted faults, or why nothing can be said of them. None:
    none were."""

    number: int
    seed: int
    code: int
    seconds: float
    seen: Seen | str | None = None

    @property
    def is_failed(self) -> bool:
        return self.code != 0 or isinstance(self.seen, str)

    def __str__(self) -> str:
        result = "passed" if self.code == 0 else f"FAILED  make test SEED={self.seed}"
        minutes, seconds = divmod(int(self.seconds), 60)
        line = f"{self.number:5}  {minutes:3}:{seconds:02}  seed {self.seed:<10}  {result}"
        return f"{line}  {self.seen}" if self.seen else line


def main() -> int:
    """Exit 1 when a round failed."""
    played: list[Round] = []
    try:
        for each in islice(_rounds(), int(os.environ.get("ROUNDS") or 0) or None):
            played.append(each)
            print(each, flush=True)
    except KeyboardInterrupt:
        print()
    print(*summary(played), sep="\n")
    return 1 if any(each.is_failed for each in played) else 0


def summary(played: Sequence[Round]) -> Iterator[str]:
    yield from ("", "round  min:s  seed", *map(str, played))
    told = [each.seen for each in played if isinstance(each.seen, Seen)]
    if missed := [each for seen in told for each in seen.missed]:
        yield from (
            "",
            "faults that no test of their room notices (CONTRIBUTING.md says what to do):",
        )
        yield from map(str, missed)


def room_of(number: int, rooms: Iterable[Room], *, can_seal: bool) -> Room:
    """The room of a round, counted from 1. Tests that start processes need a machine that can shut
    them in: a fault may end the wrong one."""
    playable = [room for room in rooms if can_seal or not room.has_processes]
    return playable[(number - 1) % len(playable)]


def _rounds() -> Iterator[Round]:
    environment = _LONGER | {name: value for name, value in os.environ.items() if name != "CI"}
    for number in count(1):
        seed = random.SystemRandom().getrandbits(32)
        began = time.monotonic()
        words = (sys.executable, "-m", "tests.suite", "--seed", str(seed))
        ended = subprocess.run(words, env=environment)  # with CI, all examples would be the same
        if ended.returncode == 130:
            raise KeyboardInterrupt
        seen = _planted(number, seed, 0 if os.environ.get("T") else _number_of_faults())
        yield Round(number, seed, ended.returncode, time.monotonic() - began, seen)


def _number_of_faults() -> int:
    return int(os.environ.get("FAULTS") or _FAULTS)


def _planted(number: int, seed: int, faults: int) -> Seen | str | None:
    from tests.mutants import run  # needs what only who plants faults has to have

    if not faults:
        return None
    room = room_of(number, ROOMS.values(), can_seal=run.can_seal())
    with run.Copies.made(_WORKERS) as copies:
        try:
            return Seen(room.name, tuple(copies.judged(room, run.chosen(room, faults, seed))))
        except run.RoomFailsError as error:
            return str(error)


if __name__ == "__main__":
    sys.exit(main())
