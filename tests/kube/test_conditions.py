from __future__ import annotations

import pytest

from reconciler.api.reasons import api_reason
from reconciler.kube.status.conditions import (
    KNOWN_REASONS,
    MOST_MESSAGE,
    READY,
    STALLED,
    Condition,
    cut,
    set_conditions,
)

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def test_the_time_of_a_condition_moves_with_its_status_and_with_nothing_else() -> None:
    before = set_conditions([], [Condition(READY, "False", "NotReady", "1 of 2")], 3, THEN)

    same = set_conditions(before, [Condition(READY, "False", "Drifted", "0 of 2")], 4, NOW)
    other = set_conditions(before, [Condition(READY, "True", "Ready")], 4, NOW)

    assert same == [
        {
            "type": "Ready",
            "status": "False",
            "observedGeneration": 4,
            "lastTransitionTime": THEN,
            "reason": "Drifted",
            "message": "0 of 2",
        }
    ]
    assert other[0]["lastTransitionTime"] == NOW


def test_conditions_stand_in_one_order_and_only_those_that_are_wanted() -> None:
    wanted = [Condition(STALLED, "True", "MemoryFits"), Condition(READY, "False", "MemoryFits")]

    made = set_conditions([{"type": "Reconciling", "status": "True"}], wanted, None, NOW)

    assert [c["type"] for c in made] == ["Ready", "Stalled"]
    assert "observedGeneration" not in made[0]


def test_a_message_is_one_line_and_has_an_end() -> None:
    assert cut("a\n\tb\x1b[31mc") == "a b [31mc"
    assert len(cut("x" * 5000)) == MOST_MESSAGE


@pytest.mark.parametrize(
    ("text", "reason"),
    [("OutOfMemory", "OutOfMemory"), ("no such word", "NotReady"), ("", "NotReady")],
)
def test_a_reason_is_a_camel_case_word(text: str, reason: str) -> None:
    assert api_reason(text) == reason


def test_every_reason_of_the_tables_is_a_word_that_the_api_takes() -> None:
    assert {api_reason(reason) for reason in KNOWN_REASONS} == KNOWN_REASONS
