"""The faults that `python -m tests.mutants` plants."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.faults import faults_of
from tests.mutants.rooms import ROOMS, ROOT, Room

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
        ("if a:\n    g()", ["if (not (a))", "pass"]),
        ("x = [y for y in z if y]", ["if (not (y))]"]),
        ("x = 'text'", []),
        ("x: int = y", []),
        ("raise E(a < b)", []),
    ],
)
def test_an_operator_a_number_a_condition_a_call_and_what_is_returned_change(
    text: str, planted: list[str]
) -> None:
    source = text.encode()

    found = [fault.planted(source).decode() for fault in faults_of(_HERE, source)]

    assert len(found) == len(planted)
    assert all(any(part in each for each in found) for part in planted)
