"""The command line; what it does is said in the package's docstring."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable

import tests.mutants
from tests.mutants.faults import Fault
from tests.mutants.rooms import ROOMS, Room
from tests.mutants.run import Copies, RoomFailsError, chosen, every_fault
from tests.mutants.verdicts import ENOUGH, Judged, Seen


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", usage=tests.mutants.__doc__)
    parser.add_argument("rooms", nargs="*", choices=[*ROOMS, []], default=[])
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--at", metavar="FILE[:LINE]")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args(argv)
    is_enough = True
    with Copies.made(asked.workers) as copies:
        for name in asked.rooms or ROOMS:
            room = ROOMS[name]
            faults = _at(room, asked.at) if asked.at else chosen(room, asked.faults, asked.seed)
            try:
                seen = Seen(name, tuple(_told(copies.judged(room, faults))))
            except RoomFailsError as error:
                raise SystemExit(str(error)) from error
            print(seen, flush=True)
            is_enough &= seen.share >= ENOUGH
    print(f"seed {asked.seed}")
    return 0 if is_enough else 1


def _at(room: Room, place: str) -> Iterable[Fault]:
    """Every fault of a file, or of one line of it."""
    return [f for f in every_fault(room) if place in (str(f.path), f"{f.path}:{f.line}")]


def _told(judged: Iterable[Judged]) -> Iterable[Judged]:
    """Each as it comes, those that no test noticed said."""
    for each in judged:
        if each.is_missed:
            print(f"    {each}", flush=True)
        yield each


if __name__ == "__main__":
    sys.exit(main())
