"""Run all tests again and again, each time in another order and with other examples.

    make soak                       until Ctrl-C
    make soak ROUNDS=10             so many times
    make soak T=tests/loop/test_loop.py  a part

A failure ends nothing: its command is printed, and again at the end with a line for each round.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

FUZZ_SECONDS = "FUZZ_SECONDS"  # the variable that says how long a round looks for odd inputs
_LONGER = {
    FUZZ_SECONDS: "120",
    "CHAOS_ROUNDS": "100",
    "CLUSTER_CHAOS_ROUNDS": "40",
    "WALK_STEPS": "40",
}


@dataclass(frozen=True, slots=True)
class Round:
    number: int
    seed: int
    code: int
    seconds: float

    def __str__(self) -> str:
        result = "passed" if self.code == 0 else f"FAILED  make test SEED={self.seed}"
        minutes, seconds = divmod(int(self.seconds), 60)
        return f"{self.number:5}  {minutes:3}:{seconds:02}  seed {self.seed:<10}  {result}"


def main() -> int:
    """Exit 1 when a round failed."""
    played: list[Round] = []
    try:
        for each in islice(_rounds(), int(os.environ.get("ROUNDS") or 0) or None):
            played.append(each)
            print(each, flush=True)
    except KeyboardInterrupt:
        print()
    print("", "round  min:s  seed", *played, sep="\n")
    return 1 if any(each.code for each in played) else 0


def _rounds() -> Iterator[Round]:
    environment = _LONGER | {name: value for name, value in os.environ.items() if name != "CI"}
    for number in count(1):
        seed = random.SystemRandom().getrandbits(32)
        began = time.monotonic()
        words = (sys.executable, "-m", "tests.suite", "--seed", str(seed))
        ended = subprocess.run(words, env=environment)  # with CI, all examples would be the same
        if ended.returncode == 130:
            raise KeyboardInterrupt
        yield Round(number, seed, ended.returncode, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
