"""The simulation that docs/scale.md rests on: who asks when."""

from __future__ import annotations

import itertools
import statistics

import pytest

from bench.scale.polls import INTERVAL_S, poll_pause_s, renewal, simulate


def test_the_same_seed_gives_the_same_questions() -> None:
    first = simulate(50, poll_pause_s, 100.0, seed=1)

    assert first == simulate(50, poll_pause_s, 100.0, seed=1)
    assert first != simulate(50, poll_pause_s, 100.0, seed=2)


def test_every_agent_asks_as_it_starts_and_no_two_intervals_pass_without_a_question() -> None:
    questions = simulate(200, poll_pause_s, 600.0, started_within_s=5.0)

    for times in questions.of:
        assert times[0] <= 5.0
        assert times[1] - times[0] <= INTERVAL_S
        assert max(b - a for a, b in itertools.pairwise(times)) <= 1.5 * INTERVAL_S


def test_agents_that_started_in_one_second_are_spread_over_the_interval_two_minutes_later() -> None:
    questions = simulate(3_000, poll_pause_s, 600.0)

    assert questions.peak(0, 2) >= 3_000
    assert questions.mean(120, 600) == pytest.approx(3_000 / INTERVAL_S, rel=0.02)
    assert questions.peak(120, 600) < 1.6 * questions.mean(120, 600)


def test_a_push_is_found_after_half_an_interval_by_half_of_the_agents() -> None:
    waits = simulate(2_000, poll_pause_s, 600.0).after(300.0)

    assert len(waits) == 2_000
    assert statistics.median(waits) == pytest.approx(INTERVAL_S / 2, rel=0.1)
    assert waits[-1] <= 1.5 * INTERVAL_S


def test_heartbeats_of_agents_that_started_together_come_apart() -> None:
    renewals = simulate(1_000, renewal, 600.0)

    assert renewals.peak(0, 1) == 1_000
    assert renewals.peak(300, 600) < 1.5 * renewals.mean(300, 600)
