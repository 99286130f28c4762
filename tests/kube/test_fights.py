"""Another program that sets the same field again and again is named, and not fought for ever."""

from __future__ import annotations

import pytest

from reconciler.kube.diff.fights import FightLimits, Fights
from reconciler.kube.objects import ObjectId

CHAT = ObjectId("apps", "Deployment", "default", "chat")
FIELD = "spec.replicas"
LIMITS = FightLimits(
    most=3,
    window_s=60.0,
    most_slowly=10,
    slow_window_s=600.0,
    rest_s=100.0,
    longest_rest_s=250.0,
)


def fought(times: int, every_s: float, by: str = "argocd", start: float = 0.0) -> Fights:
    fights = Fights(LIMITS)
    for turn in range(times):
        fights.took(CHAT, FIELD, by, start + turn * every_s)
    return fights


def test_one_edit_by_a_person_is_no_fight() -> None:
    assert fought(3, 10).resting(25) == {}


def test_the_same_field_taken_again_and_again_is_named_with_how_often() -> None:
    resting = fought(4, 10).resting(31)

    assert resting[CHAT, FIELD].startswith(
        "argocd and we take spec.replicas of Deployment default/chat from each other:"
        " 4 times in 30 s"
    )


def test_slow_changes_are_a_fight_once_there_are_many() -> None:
    assert fought(4, 20).resting(60) == {}, "the first is as long ago as the window is long"
    assert fought(10, 40).resting(361) == {}
    assert "11 times in 7 min" in fought(11, 40).resting(401)[CHAT, FIELD]
    assert fought(40, 61).resting(40 * 61) == {}, "too slow for ten within the window"


def test_whoever_left_no_name_is_another_program() -> None:
    said = fought(4, 10, by="").resting(31)[CHAT, FIELD]

    assert said.startswith("another program and we take")
    assert "Left as another program wants it" in said


def test_two_managers_are_two_stories() -> None:
    fights = fought(3, 10)
    fights.took(CHAT, FIELD, "kubectl-edit", 31)

    assert fights.resting(32) == {}


def test_after_a_rest_it_is_tried_once_and_the_next_rest_is_longer() -> None:
    fights = fought(4, 10)  # rests from 30 to 130
    said = fights.resting(129)
    assert said
    assert not fights.resting(130)

    fights.took(CHAT, FIELD, "argocd", 131)

    assert fights.resting(132) == said  # what is said is how it began
    assert fights.resting(330)  # twice as long
    assert not fights.resting(332)
    fights.took(CHAT, FIELD, "argocd", 332)
    assert not fights.resting(332 + 251)  # never longer than the longest


def test_what_was_long_ago_is_forgotten() -> None:
    fights = fought(4, 10)

    for turn in range(3):
        fights.took(CHAT, FIELD, "argocd", 1000 + turn)

    assert not fights.resting(1003)


def test_a_field_that_is_taken_again_long_after_its_rest_is_no_fight_yet() -> None:
    fights = fought(4, 10)  # rests from 30 to 130

    fights.took(CHAT, FIELD, "argocd", 190)

    assert not fights.resting(191)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "1 s"), (119, "119 s"), (120, "2 min"), (149, "2 min"), (151, "3 min")],
)
def test_how_long_they_took_it_from_each_other_is_said_in_seconds_or_minutes(
    seconds: float, said: str
) -> None:
    fights = Fights(FightLimits(most=1, window_s=1000.0))
    for now in (0.0, seconds):
        fights.took(CHAT, FIELD, "argocd", now)

    assert f" 2 times in {said}. " in fights.resting(seconds)[CHAT, FIELD]


def test_usually_six_times_in_two_minutes_are_a_fight_that_rests_for_four_hours_at_most() -> None:
    fights, now = Fights(), 0.0
    for _ in range(5):
        fights.took(CHAT, FIELD, "argocd", now)
    assert not fights.resting(now)

    for _ in range(9):
        fights.took(CHAT, FIELD, "argocd", now)
        ends = next(s for s in range(10**5) if not fights.resting(now + s))
        now += ends

    assert ends == 4 * 3600
