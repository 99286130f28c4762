"""Which of many models are left out, and what people are shown: alone, without a process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.process import events, supervisor
from agent.process.events import Answered, Effect, ProcessTiming, Rewrite
from agent.process.launch import Child, Identity, Launch, Listening, Phase
from agent.process.model_state import Failure
from agent.process.unit import Unit
from agent.system.clock import Moment
from reconciler.fleet.command import ServedModel
from tests.support.owner import launch

TIMING = ProcessTiming()
LAUNCH = replace(launch("chat", 20000), models=("a", "b"))
CHILD = Child(Identity(7, "1", "b"), "m", 0.0)
PROOF = Listening(7, 20000)
WALL = 5e8


def feed(unit: Unit | None, event: events.Event, at: float) -> tuple[Unit, tuple[Effect, ...]]:
    after, effects = supervisor.step(unit, event, Moment(at, WALL + at), TIMING)
    assert after is not None
    return after, effects


def hear(
    unit: Unit,
    at: float,
    *,
    failures: tuple[Failure, ...] = (),
    silent: frozenset[str] = frozenset(),
    **states: str,
) -> tuple[Unit, tuple[Effect, ...]]:
    """Let the unit ask, and answer it."""
    unit, _ = feed(replace(unit, wake_at=at), events.Tick(), at)
    served = tuple(ServedModel(name, state) for name, state in states.items())
    ready = "loaded" in states.values()
    reason = "Ready" if ready else "Loading"
    answer = Answered(unit.question, ready, reason, "", PROOF, served, failures, silent)
    return feed(unit, answer, at)


def serving() -> Unit:
    unit, _ = feed(None, events.Run(LAUNCH), 0.0)
    unit, _ = feed(unit, events.Spawned(CHILD), 0.0)
    unit, _ = hear(unit, 1.0, a="loaded", b="unloaded")
    assert unit.phase is Phase.READY
    return unit


def reread(unit: Unit, at: float, *loading: str) -> Unit:
    unit, _ = feed(unit, events.Rewritten(unit.question, True, "", loading), at)
    return unit


def rewrites(effects: tuple[Effect, ...]) -> list[frozenset[str]]:
    return [effect.without for effect in effects if isinstance(effect, Rewrite)]


def failed(times: int, reason: str = "Crashed") -> tuple[Failure, ...]:
    return (Failure("b", times, reason, "why"),)


def shown(unit: Unit) -> dict[str, tuple[str, str]]:
    return {m.name: (m.state, m.reason) for m in supervisor.show(unit, TIMING).served}


@pytest.mark.parametrize(
    ("failure", "out"),
    [
        (failed(1), False),
        (failed(2), False),
        (failed(3), True),
        (failed(1, "ModelCorrupt"), True),
        (failed(0, "ModelCorrupt"), True),
    ],
)
def test_a_model_is_left_out_after_three_failures_or_one_that_must_come_again(
    failure: tuple[Failure, ...], out: bool
) -> None:
    unit, effects = hear(serving(), 2.0, failures=failure, a="loaded", b="failed")

    assert rewrites(effects) == ([frozenset({"b"})] if out else [])
    assert shown(unit)["b"][0] == ("quarantined" if out else "failed")
    assert unit.is_ready(TIMING)


def test_it_is_let_in_again_after_the_longest_pause() -> None:
    unit, _ = hear(serving(), 2.0, failures=failed(3), a="loaded", b="failed")
    unit = reread(unit, 3.0)
    unit, _ = hear(unit, 3.0, a="loaded", b="unloaded")

    early, nothing = hear(unit, 301.0, a="loaded", b="unloaded")
    _, effects = hear(early, 303.0, a="loaded", b="unloaded")

    assert rewrites(nothing) == []
    assert rewrites(effects) == [frozenset()]


def test_what_must_fail_again_is_not_let_in_by_time() -> None:
    unit, _ = hear(serving(), 2.0, failures=failed(1, "ModelCorrupt"), a="loaded", b="failed")
    unit = reread(unit, 3.0)
    unit, _ = hear(unit, 3.0, a="loaded", b="unloaded")

    _, effects = hear(unit, 1e6, a="loaded", b="unloaded")

    assert rewrites(effects) == []


def test_a_crash_of_the_whole_process_does_not_let_it_in() -> None:
    unit, _ = hear(serving(), 2.0, failures=failed(3), a="loaded", b="failed")

    unit, _ = feed(unit, events.Exited("Crashed", "", 1), 3.0)
    _, effects = feed(replace(unit, wake_at=4.0), events.Tick(), 4.0)

    assert effects == (events.Spawn(LAUNCH, frozenset({"b"})),)


def test_a_restart_lets_it_in() -> None:
    unit, _ = hear(serving(), 2.0, failures=failed(3), a="loaded", b="failed")

    unit, _ = feed(reread(unit, 3.0), events.RestartRequested(), 4.0)
    _, effects = feed(unit, events.Exited("Exited", "", 0), 5.0)

    assert effects == (events.Spawn(LAUNCH, frozenset()),)


def test_a_change_of_its_inputs_lets_it_in() -> None:
    unit, _ = hear(serving(), 2.0, failures=failed(3), a="loaded", b="failed")
    unit = reread(unit, 3.0)
    unit, _ = hear(unit, 3.0, a="loaded", b="unloaded")
    wanted = _changed()

    unit, _ = feed(unit, events.Reload(wanted, frozenset({"b"})), 4.0)
    _, effects = feed(unit, events.SlotsAnswered(unit.question, 0), 4.0)

    assert rewrites(effects) == [frozenset()]


def test_a_loaded_model_that_is_silent_is_shown_after_three_probes_and_left_alone() -> None:
    unit, told = serving(), []
    for at in (2.0, 3.0, 4.0):
        unit, effects = hear(unit, at, silent=frozenset({"b"}), a="loaded", b="loaded")
        told.append(shown(unit)["b"])
        assert not any(isinstance(e, events.Signal | Rewrite) for e in effects)

    assert told == [("loaded", ""), ("loaded", ""), ("failed", "NotResponding")]
    assert unit.is_ready(TIMING)
    again, _ = hear(unit, 5.0, a="loaded", b="loaded")
    assert shown(again)["b"] == ("loaded", "")


def test_with_only_silent_models_it_does_not_answer() -> None:
    unit = serving()
    for at in (2.0, 3.0, 4.0, 5.0, 6.0, 7.0):
        unit, _ = hear(unit, at, silent=frozenset({"a"}), a="loaded", b="unloaded")

    assert not unit.is_ready(TIMING)
    assert (unit.phase, unit.reason) == (Phase.READY, "NotResponding")


def test_a_change_that_the_process_did_not_read_is_not_called_off_by_wanting_it_again() -> None:
    wanted = _changed()
    unit, _ = feed(serving(), events.Reload(wanted, frozenset({"a"})), 2.0)
    unit, _ = feed(unit, events.SlotsAnswered(unit.question, 0), 2.0)
    unit, _ = feed(unit, events.Rewritten(unit.question, False, "answers 500"), 2.0)
    assert unit.phase is Phase.DRAINING

    unit, _ = feed(unit, events.Run(wanted), 2.0)

    assert (unit.phase, unit.successor) == (Phase.DRAINING, wanted)


def test_a_reload_that_is_taken_back_while_it_drains_touches_nothing() -> None:
    unit, _ = feed(serving(), events.Reload(_changed(), frozenset({"a"})), 2.0)

    unit, effects = feed(unit, events.Run(LAUNCH), 2.0)

    assert (unit.phase, unit.launch, unit.reloading) == (Phase.READY, LAUNCH, None)
    assert rewrites(effects) == []


def test_a_process_that_dies_in_a_reload_starts_as_it_was_to_be() -> None:
    wanted = _changed()
    unit, _ = feed(serving(), events.Reload(wanted, frozenset({"a"})), 2.0)

    unit, _ = feed(unit, events.Exited("Crashed", "", 1), 2.0)

    assert (unit.phase, unit.launch) == (Phase.WAITING, wanted)


def test_a_second_reload_waits_until_the_first_is_read_and_keeps_its_models() -> None:
    first, second = _changed(1), _changed(2)
    unit, _ = feed(serving(), events.Reload(first, frozenset({"a"})), 2.0)
    unit, _ = feed(unit, events.SlotsAnswered(unit.question, 0), 2.0)
    unit, effects = feed(unit, events.Reload(second, frozenset({"b"})), 2.0)
    assert effects == ()

    unit, _ = feed(unit, events.Rewritten(unit.question, True), 2.0)

    assert unit.reloading is not None
    assert unit.reloading.launch == second
    assert unit.reloading.models == {"a", "b"}


def test_other_arguments_cannot_be_reloaded_and_start_it_anew() -> None:
    other = replace(_changed(), command=replace(LAUNCH.command, argv=("other",)))

    unit, _ = feed(serving(), events.Reload(other, frozenset({"a"})), 2.0)

    assert (unit.phase, unit.successor) == (Phase.DRAINING, other)


def _changed(number: int = 1) -> Launch:
    command = replace(LAUNCH.command, files={"preset.ini": str(number)})
    return replace(LAUNCH, inputs_digest=f"changed {number}", command=command)
