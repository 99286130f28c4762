"""Chaos, in rounds: break a few things of a world, heal them in any order, and hold its laws.

A fault is a generator: up to its `yield` it breaks something, then it heals that. What a world is,
and what may never happen in it, is in tests.support.chaos and tests.support.cluster_chaos.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

LOOK_S = 0.1  # between two looks at a world that has not converged


class World(Protocol):
    """What a round needs of it."""

    random: random.Random
    history: list[str]  # what was broken; for people
    slowest_s: float  # of all waits for convergence

    def begin_round(self) -> None:
        """Before anything is broken."""

    def end_round(self) -> None:
        """After everything is healed, for what heals of itself in a real one."""

    def converge(self) -> None:
        """Wait until everything is as declared, and hold all laws. AssertionError with why."""

    def told(self) -> str:
        """For a person who has to find out what went wrong."""


W = TypeVar("W", bound=World)
Fault = Callable[[W], Iterator[None]]


def play(
    name: str,
    rounds: int,
    opened: Callable[[int], AbstractContextManager[W]],
    faults: Sequence[Fault[W]],
    healed_first: Sequence[Fault[W]] = (),
) -> None:
    """NAME_SEED and NAME_ROUNDS in the environment say which rounds, and how many. AssertionError
    with the seed and the story."""
    seed, rounds = _seed(f"{name}_SEED"), int(os.environ.get(f"{name}_ROUNDS") or rounds)
    print(f"{name}_SEED={seed} {name}_ROUNDS={rounds}", flush=True)
    with opened(seed) as world:
        begun = time.monotonic()
        try:
            world.converge()
            deck = _dealt(world.random, faults)
            for number in range(1, rounds + 1):
                noted = len(world.history)
                _round(world, number, deck, healed_first)
                world.converge()
                story = ";".join(world.history[noted:])
                print(f"{time.monotonic() - begun:6.1f} s {story}", flush=True)
            print(f"slowest to converge: {world.slowest_s:.1f} s")
        except Exception as error:
            raise AssertionError(f"{name}_SEED={seed}: {error}\n{world.told()}") from error


def wait_converged(
    world: World,
    missing: Callable[[], str | None],
    longest_s: float,
    waits: Callable[[], None] = lambda: None,
) -> None:
    """Until nothing is missing; `waits` is called between looks. AssertionError with what is."""
    begun = time.monotonic()
    while (why := missing()) is not None:
        assert time.monotonic() - begun < longest_s, f"not within {longest_s:g} s: {why}"
        waits()
        time.sleep(LOOK_S)
    world.slowest_s = max(world.slowest_s, time.monotonic() - begun)


def story(history: Sequence[str], *files: Path) -> str:
    """The last rounds, and the ends of files."""
    parts = ["--- rounds", *history[-40:]]
    for file in files:
        parts += [f"--- {file}", file.read_text(errors="replace")[-3000:]]
    return "\n".join(parts)


def _seed(variable: str) -> int:
    """As stated; the same one each time where the result decides about a change."""
    stated = os.environ.get(variable) or ("1" if os.environ.get("CI") else "")
    return int(stated or random.SystemRandom().randrange(10_000))


def _dealt(chance: random.Random, faults: Sequence[Fault[W]]) -> Iterator[Fault[W]]:
    """Without an end; each once before any comes again."""
    while True:
        yield from chance.sample(faults, len(faults))


def _round(
    world: W, number: int, deck: Iterator[Fault[W]], healed_first: Sequence[Fault[W]]
) -> None:
    """Break one to three things, a moment apart, and heal them in any order."""
    count = world.random.choices((1, 2, 3), (5, 3, 2))[0]
    chosen = [*dict.fromkeys(islice(deck, count))]  # a new deal may begin with the last one
    world.history.append(f"round {number}: {', '.join(fault.__name__ for fault in chosen)}")
    world.begin_round()
    under_way = {}
    for fault in chosen:
        under_way[fault] = fault(world)
        next(under_way[fault])
        time.sleep(world.random.uniform(0.0, 0.5))  # at any moment of what the last one began
    first = [fault for fault in healed_first if fault in under_way]
    then = [fault for fault in under_way if fault not in first]
    world.random.shuffle(then)
    for fault in (*first, *then):
        assert next(under_way[fault], "healed") == "healed"
    world.end_round()
