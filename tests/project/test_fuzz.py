"""The fuzz run itself: what it once found stays mended, and it finds what it is made to find."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.growth import Law, follow
from tests.fuzz.judging import ENDED, failure
from tests.fuzz.mutation import mutated
from tests.fuzz.readers import READERS
from tests.fuzz.target import CORPUS, Target
from tests.fuzz.targets import NAMES
from tests.fuzz.targets.growth import recipe_of
from tests.suite.soak import FUZZ_SECONDS


def test_every_input_that_once_failed_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--replay"]) == 0, capfd.readouterr().out

    assert {folder.name for folder in CORPUS.iterdir()} <= set(NAMES)


@pytest.mark.e2e
def test_a_few_seconds_find_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """A whole core for so long; `make soak` takes two minutes in each round."""
    seed, seconds = random.getrandbits(32), os.environ.get(FUZZ_SECONDS, "3")

    assert main(["--seconds", seconds, "--seed", str(seed)]) == 0, capfd.readouterr().out


@pytest.mark.e2e
def test_what_readers_cost_grows_as_their_input_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A recipe of each reader; `python -m tests.fuzz --target growth` goes on with more."""
    files = []
    for name, reader in READERS.items():
        for number, recipe in enumerate(random.sample([*reader.known()], 1)):
            files.append(tmp_path / f"{name}-{number}")
            files[-1].write_bytes(recipe_of(name, recipe))

    found = main(["--target", "growth", "--input", *map(str, files)])

    assert found == 0, capfd.readouterr().out


@pytest.mark.parametrize(
    ("work", "holds"),
    [
        (lambda size: sum(range(size << 6)), True),
        (lambda size: sum(range(size * size >> 4)), False),
        (lambda size: b"x" * (size << 13), False),
        (lambda size: b"x" * (size << 4), True),
    ],
    ids=["linear time", "quadratic time", "much memory", "little memory"],
)
def test_the_law_tells_what_grows_faster_than_its_input(
    work: Callable[[int], object], holds: bool
) -> None:
    law = Law(2**12, 2**14, free_s=0.01)

    with contextlib.nullcontext() if holds else pytest.raises(AssertionError, match=r"for \d"):
        follow(law, lambda size: size, work)


def _raises(_: bytes) -> None:
    raise LookupError("nothing expects this")


def _target(read: Callable[[bytes], None]) -> Target:
    return Target("yaml", lambda _: read, lambda: [b"a"])


def test_what_a_reader_raises_is_named_with_its_place() -> None:
    assert failure(_target(_raises), _raises, b"x").startswith(
        "LookupError at project/test_fuzz.py:"
    )
    assert failure(_target(lambda _: None), lambda _: None, b"x") == ""


@pytest.mark.parametrize(
    ("doing", "wall_s", "said"),
    [
        ("while True: pass", 60, "took too long"),
        ("import time; time.sleep(60)", 0.5, "waited too long"),
        ("import re; re.match('(a*)*b', 'a' * 40)", 60, "took too long"),
        ("bytearray(2**34)", 60, "MemoryError at"),
    ],
)
def test_what_costs_too_much_is_ended_by_the_kernel(doing: str, wall_s: float, said: str) -> None:
    program = f"""
from pathlib import Path
from tests.fuzz.judging import bound_memory, failure
from tests.fuzz.target import Target
def read(data):
    {doing}
target = Target("x", lambda _: read, list, cpu_s=0.3, wall_s={wall_s})
bound_memory(target)
print(failure(target, read, b""))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=CORPUS.parent.parent.parent, capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert ENDED.get(done.returncode, done.stdout).startswith(said)


def test_the_same_chance_makes_the_same_input() -> None:
    pool = (b'{"a": [1, null]}', b"x")

    def make(seed: int) -> list[bytes]:
        chance = random.Random(seed)
        return [mutated(chance, pool, (b"y",), is_json=True) for _ in range(50)]

    assert make(1) == make(1) != make(2)
