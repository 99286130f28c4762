"""The faults that `python -m tests.mutants` plants."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.faults import faults_of
from tests.mutants.rooms import ROOMS, ROOT, Room
from tests.mutants.verdicts import Judged, Seen, Verdict
from tests.suite.soak import Round, room_of, summary

_HERE = Path("here.py")


@pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS)
def test_each_fault_of_a_room_is_another_program(room: Room) -> None:
    assert all((ROOT / path).exists() for path in room.tests)
    for path in room.files():
        source = (ROOT / path).read_bytes()
        tree = ast.dump(ast.parse(source))
        every = faults_of(path, source)
        for fault in every[:: max(1, len(every) // 2)]:  # each costs the parsing of a file
            assert ast.dump(ast.parse(fault.planted(source))) != tree, fault


@pytest.mark.parametrize(
    ("text", "planted"),
    [
        ("x = a < b <= c", ["a <= b <= c", "a < b < c"]),
        ("x = a is not b", ["a is b"]),
        ("x = (a) not in b", ["(a) in b"]),
        ("x = a and b or c", ["a or b or c", "a and b and c"]),
        ("x = not a", ["(a)"]),
        ("x = é + 1", ["é - 1", "é + 2"]),
        ("x = True", ["False"]),
        ("def f() -> int | None:\n    return g(a)", ["return None"]),
        ("def f() -> bool:\n    return False", ["return True"]),
        ("def f() -> int | None:\n    return None", []),
        ("def f() -> int:\n    return 0", ["return 1", "return None"]),
        ("if a:\n    g()", ["if (not (a))", "pass"]),
        ("x = [y for y in z if y]", ["if (not (y))]"]),
        ("x = 'text'", []),
        ("x: int = y", []),
        ("raise E(a < b)", []),
        ("log.debug('%d', a + b)", []),
        ("assert_never(a)", []),
        ("if sys.platform == 'linux':\n    g()\nelse:\n    g()", ["if (not (sys", "pass"]),
    ],
)
def test_an_operator_a_number_a_condition_a_call_and_what_is_returned_change(
    text: str, planted: list[str]
) -> None:
    source = text.encode()

    found = [fault.planted(source).decode() for fault in faults_of(_HERE, source)]

    assert len(found) == len(planted)
    assert all(any(part in each for each in found) for part in planted)


def test_each_fault_that_is_argued_away_can_still_be_planted() -> None:
    stale = [
        (path, *row)
        for path, rows in EQUIVALENT.items()
        for row in rows.keys() - _plantable(Path(path))
    ]

    assert stale == []


def _plantable(path: Path) -> set[tuple[str, str, str]]:
    source = (ROOT / path).read_bytes() if (ROOT / path).exists() else b""
    return {(fault.line_text, *fault.change) for fault in faults_of(path, source)}


def test_what_nobody_could_see_counts_for_nothing_and_what_no_test_runs_as_missed() -> None:
    seen = _seen("fell", "equivalent", "lives", "fell", "not run")

    assert seen.share == 0.5
    assert [each.verdict for each in seen.missed] == ["lives", "not run"]
    assert _seen("equivalent").share == 1.0
    assert _seen().share == 1.0


def test_each_round_of_a_soak_plants_faults_in_the_next_room_that_can_be_shut_in() -> None:
    rooms = (Room("a", (), ()), Room("b", (), (), has_processes=True), Room("c", (), ()))

    anywhere = [room_of(n, rooms, can_seal=True).name for n in range(1, 6)]
    unsealed = [room_of(n, rooms, can_seal=False).name for n in range(1, 6)]

    assert anywhere == ["a", "b", "c", "a", "b"]
    assert unsealed == ["a", "c", "a", "c", "a"]


def test_a_soak_lists_the_faults_that_no_test_noticed_and_does_not_fail_for_them() -> None:
    noticed = Round(1, 7, 0, 60.0, _seen("fell"))
    missed = Round(2, 8, 0, 60.0, _seen("lives", "fell"))
    broken = Round(3, 9, 0, 60.0, "the tests of a fail without a fault")

    told = list(summary([noticed, missed]))

    assert not missed.is_failed
    assert broken.is_failed
    assert "here.py:1  <  ->  <=" in told[-1]
    assert "faults" not in "".join(summary([replace(noticed, seen=None)]))
    assert not any("lives" in line for line in summary([noticed, broken]))


def _seen(*verdicts: Verdict) -> Seen:
    (fault,) = faults_of(_HERE, b"x = a < b")
    return Seen("a", tuple(Judged(fault, verdict) for verdict in verdicts))
