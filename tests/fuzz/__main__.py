"""Fuzz the readers of everything that others write.

    python -m tests.fuzz                            an hour, divided over the targets
    python -m tests.fuzz --seconds 60 --seed 7      a minute, with these inputs
    python -m tests.fuzz --target yaml gguf         some of them
    python -m tests.fuzz --target yaml --input FILE what was kept of a failure, again
    python -m tests.fuzz --replay                   everything that was ever kept

A failure ends nothing; its input is made smaller and kept in tests/fuzz/corpus: commit it with the
mend. Exit 1 when something failed.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.fuzz.run import Failure, explore, keep, replay, shown, shrunk
from tests.fuzz.target import kept
from tests.fuzz.targets import NAMES


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", usage=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--target", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--input", nargs="+", type=Path)
    parser.add_argument("--replay", action="store_true")
    asked = parser.parse_args(argv)
    failures: list[Failure] = []
    for name in asked.target:
        if asked.replay or asked.input:
            files = tuple(asked.input or kept(name))
            count, found = len(files), replay(name, files)
        else:
            count, found = explore(name, asked.seed, asked.seconds / len(asked.target))
        print(f"{name:12} {count:8,} inputs  {len(found)} failures", flush=True)
        for failure in found:
            if not (asked.replay or asked.input):
                failure = shrunk(failure)
            where = asked.input[0] if asked.input else keep(failure)
            print(*shown(failure, where), sep="\n", flush=True)
        failures += found
    print(f"seed {asked.seed}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
