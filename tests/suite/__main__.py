"""Run the tests as `make test` does.

    python -m tests.suite                              all of them, several at a time
    python -m tests.suite tests/core/test_planner.py        a part: any words that pytest takes
    python -m tests.suite --fast                       only what is quick and starts nothing

The variables T (words for pytest), SEED and WORKERS say the same to `make`. Ctrl-C ends everything
that the tests have started and leaves nothing of them behind.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import sys
from types import FrameType

from tests.suite.folder import RunFolder
from tests.suite.run import Options, play

_INTERRUPTED = 130


def main() -> int:
    options = _options(sys.argv[1:])
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with RunFolder() as folder:
            return play(options, folder)
    except KeyboardInterrupt:
        print("\nmake test: interrupted; all that the tests had started is gone", file=sys.stderr)
        return _INTERRUPTED


def _options(argv: list[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m tests.suite",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fast", action="store_true", help="no engine, no cluster, nothing slow")
    parser.add_argument("--seed", type=int, help="of the order and of all examples")
    parser.add_argument("--workers", type=int, help="how many tests run at once")
    parser.add_argument("--record", action="store_true", help="write durations.json")
    said, words = parser.parse_known_args([*argv, *shlex.split(os.environ.get("T", ""))])
    return Options(
        words=tuple(words),
        seed=_chosen(said.seed, "SEED", random.SystemRandom().getrandbits(32)),
        workers=_chosen(said.workers, "WORKERS", _workers()),
        is_fast=said.fast,
        records=said.record,
    )


def _chosen(typed: int | None, variable: str, otherwise: int) -> int:
    if typed is not None:
        return typed
    return int(os.environ.get(variable) or otherwise)


def _workers() -> int:
    """Most of a test's time is waiting."""
    return 2 * (os.cpu_count() or 1)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
