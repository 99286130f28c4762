"""The state machine of one service, alone: no process, no clock, no thread."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.process import events, supervisor
from agent.process.backoff import pause_s
from agent.process.events import ProcessTiming
from agent.process.launch import Child, Identity, Launch, Listening, Phase
from agent.process.model_state import Failure
from agent.process.unit import Unit
from agent.system.clock import Moment
from reconciler.fleet.command import Probe, ServedModel
from tests.support.owner import launch, service

TIMING = ProcessTiming(hung_s=60.0)
LAUNCHES = tuple(launch("chat", 20000, f"--busy={n}", drain_timeout_s=5.0) for n in range(3))
BLUNT = replace(
    LAUNCHES[0], inputs_digest="no slots", command=replace(LAUNCHES[0].command, probe=Probe())
)
HOT = tuple(
    replace(
        LAUNCHES[0],
        inputs_digest=f"hot {n}",
        command=replace(LAUNCHES[0].command, files={"preset.ini": f"{n}"}),
        models=("a", "b"),
    )
    for n in range(2)
)
LISTENING = Listening(7, 20000)


class World(RuleBasedStateMachine):
    """Commands, deaths, answers and time in any order; the effects act on a model of the world."""

    @initialize()
    def begin(self) -> None:
        self.unit: Unit | None = None
        self.now = 1000.0
        self.living: dict[int, Launch] = {}  # pid -> what it runs
        self.pids = 100
        self.wanted: Launch | None = None
        self.may_signal = False
        self.recorded = False
        self.stubborn = False
        self.spawn_fails = False
        self.asked: list[tuple[int, int]] = []  # pid and number of every question
        self.computed_s, self.computed_at = 0.0, self.now
        self.writing: events.Rewrite | None = None  # what the process is told to read

    def feed(self, event: events.Event) -> None:
        following: events.Event | None = event
        while following is not None:
            now = Moment(self.now, 5e8 + self.now)
            self.unit, effects = supervisor.step(self.unit, following, now, TIMING)
            following = None
            for effect in effects:
                following = self.perform(effect) or following

    def perform(self, effect: events.Effect) -> events.Event | None:
        match effect:
            case events.Spawn(wanted):
                assert not self.living, "two processes for one service"
                assert self.wanted is not None, "a stopped service was started"
                assert wanted.same_process(self.wanted)
                if self.spawn_fails:
                    return events.SpawnFailed("PortInUse", "port 20000 is taken by pid 1 (init)")
                self.pids += 1
                self.living[self.pids] = wanted
                self.may_signal = False
                self.writing = None
                return events.Spawned(Child(Identity(self.pids, "1", "b"), "m", self.now))
            case events.Signal(child, number):
                assert child.identity.pid in self.living, "a signal to a dead process"
                hung = self.now - self.computed_at >= TIMING.hung_s
                assert self.may_signal or hung, "a signal that nobody asked for"
                if number is signal.SIGKILL or not self.stubborn:
                    self.dying = child.identity.pid
            case events.AskReady(question, _, child, _):
                assert child.identity.pid in self.living
                self.asked.append((child.identity.pid, question))
            case events.Rewrite(_, wanted, child):
                assert child.identity.pid in self.living
                assert self.unit is not None
                assert self.unit.launch.same_process(wanted), "the record would not know of it"
                assert self.unit.reloading is not None
                assert self.unit.reloading.is_due_again
                self.writing = effect
            case events.Save():
                assert self.unit is not None
                self.recorded = True
            case events.Forget():
                self.recorded = False
        return None

    @property
    def pid(self) -> int | None:
        return next(iter(self.living), None)

    @rule(wanted=st.sampled_from((*LAUNCHES, BLUNT)))
    def run(self, wanted: Launch) -> None:
        current = self.unit.launch if self.unit else wanted
        self.may_signal = self.may_signal or not wanted.same_process(current)
        self.wanted = wanted
        self.feed(events.Run(wanted))

    @rule(wanted=st.sampled_from((*HOT, LAUNCHES[0])), models=st.sampled_from(["", "a", "ab"]))
    def reload(self, wanted: Launch, models: str) -> None:
        alive = self.unit is not None and self.unit.phase is not Phase.WAITING
        hangs = self.unit is not None and self.unit.still and self.unit.still.is_hung(TIMING)
        if not alive or hangs or (self.unit and not wanted.same_program(self.unit.launch)):
            self.may_signal = True
        self.wanted = wanted
        self.feed(events.Reload(wanted, frozenset(models)))

    @rule(done=st.booleans(), loading=st.sampled_from([(), ("a",)]))
    @precondition(lambda self: self.writing is not None)
    def read_the_files(self, done: bool, loading: tuple[str, ...]) -> None:
        assert self.writing is not None
        if done and self.living:
            self.living = dict.fromkeys(self.living, self.writing.launch)
        self.may_signal = self.may_signal or not done
        question, self.writing = self.writing.question, None
        self.feed(events.Rewritten(question, done, "", loading))

    @rule(state=st.sampled_from(["loaded", "loading", "failed"]), times=st.integers(0, 3))
    @precondition(lambda self: self.unit is not None)
    def answer_for_models(self, state: str, times: int) -> None:
        assert self.unit is not None
        served = (ServedModel("a", state), ServedModel("b", "loaded"))
        failures = (Failure("a", times, "Crashed", ""),) if state == "failed" else ()
        question = self.unit.question
        self.feed(events.Answered(question, True, "", "", LISTENING, served, failures))

    @rule()
    def stop(self) -> None:
        self.wanted, self.may_signal = None, True
        self.feed(events.Stop())

    @rule()
    def restart(self) -> None:
        self.may_signal = True
        self.feed(events.RestartRequested())

    @rule()
    def update(self) -> None:
        if self.wanted is not None:
            self.feed(events.Update(replace(self.wanted, drain_timeout_s=1.0)))

    @rule(status=st.sampled_from([None, 0, 1, -9]))
    @precondition(lambda self: self.living)
    def die(self, status: int | None) -> None:
        self.living.clear()
        self.feed(events.Exited("Crashed", "", status))

    @rule(ready=st.booleans(), late=st.booleans())
    @precondition(lambda self: self.unit is not None)
    def answer(self, ready: bool, late: bool) -> None:
        assert self.unit is not None
        self.feed(events.Answered(self.unit.question - late, ready, "Loading", ""))

    @rule(computed_s=st.sampled_from([0.0, 0.01, 9.0]))
    @precondition(lambda self: self.unit is not None)
    def answer_nothing(self, computed_s: float) -> None:
        assert self.unit is not None
        self.computed_s += computed_s
        if computed_s > 1.0:
            self.computed_at = self.now
        silence = (self.unit.question, False, "NotResponding", "")
        self.feed(events.Answered(*silence, computed_s=self.computed_s))

    @rule(data=st.data())
    @precondition(lambda self: self.asked)
    def answer_for_an_earlier_process(self, data: st.DataObject) -> None:
        pid, question = data.draw(st.sampled_from(self.asked))
        before = self.unit
        if pid != self.pid:
            self.feed(events.Answered(question, True))
            assert self.unit == before

    @rule(busy=st.sampled_from([None, 0, 2]), late=st.booleans())
    @precondition(lambda self: self.unit is not None)
    def answer_slots(self, busy: int | None, late: bool) -> None:
        assert self.unit is not None
        self.feed(events.SlotsAnswered(self.unit.question - late, busy))

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 20.0, 200.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.feed(events.Tick())

    @rule()
    def wake_from_sleep(self) -> None:
        before = self.unit
        self.feed(events.Woke())
        assert (before is None) == (self.unit is None)
        if before is not None and self.unit is not None:
            assert (before.phase, before.child) == (self.unit.phase, self.unit.child)

    @rule(fails=st.booleans(), stubborn=st.booleans())
    def weather(self, fails: bool, stubborn: bool) -> None:
        self.spawn_fails, self.stubborn = fails, stubborn

    @rule()
    def a_signal_arrives(self) -> None:
        self._let_die()

    def _let_die(self) -> None:
        pid = getattr(self, "dying", None)
        if pid in self.living:
            self.living.clear()
            self.feed(events.Exited("KilledBySignal", "", -15))

    @invariant()
    def the_unit_knows_what_lives(self) -> None:
        known = self.unit.child.identity.pid if self.unit and self.unit.child else None
        if self.unit is None or self.unit.phase is Phase.WAITING:
            known = None
        assert known == self.pid
        assert self.unit is None or self.unit.phase is not Phase.SPAWNING

    @invariant()
    def what_lives_is_recorded(self) -> None:
        assert self.recorded == (self.unit is not None)

    @invariant()
    def something_will_happen_next(self) -> None:
        if self.unit is not None and self.unit.wake_at is None:
            assert self.unit.asking, "neither a timer nor a question: stuck"

    def teardown(self) -> None:
        """Left alone by the world, it ends in what was wanted last."""
        self.spawn_fails = self.stubborn = False
        for _ in range(40):
            self._let_die()
            if self.writing is not None:
                self.read_the_files(True, ())
            self.now += 400
            self.feed(events.Tick())
            if self.unit is not None and self.unit.asking:
                if self.unit.phase is Phase.DRAINING:
                    self.feed(events.SlotsAnswered(self.unit.question, None))
                else:
                    self.feed(events.Answered(self.unit.question, True))
                    self.feed(events.SlotsAnswered(self.unit.question, 0))
        if self.wanted is None:
            assert self.unit is None
            assert not self.living
        else:
            assert self.unit is not None
            assert self.unit.is_ready(TIMING)
            assert self.pid is not None
            assert self.living[self.pid].same_process(self.wanted)


World.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyOrderOfEvents = World.TestCase


def after(unit: Unit | None, *happened: events.Event, at: float = 0.0) -> Unit | None:
    for event in happened:
        unit, _ = supervisor.step(unit, event, Moment(at, at), TIMING)
    return unit


CHILD = Child(Identity(7, "1", "b"), "m", 0.0)


def ready_unit() -> Unit:
    unit = after(None, events.Run(LAUNCHES[0]), events.Spawned(CHILD))
    unit = after(unit, events.Tick(), at=1.0)
    assert unit is not None
    unit = after(unit, events.Answered(unit.question, True), at=1.0)
    assert unit is not None
    return unit


def test_an_answer_for_a_process_that_was_stopped_is_none_for_the_next_one() -> None:
    first = after(None, events.Run(LAUNCHES[0]), events.Spawned(CHILD), events.Tick(), at=1.0)
    assert first is not None
    gone = after(first, events.Stop(), events.Exited("KilledBySignal", "", -15), at=2.0)
    other = events.Spawned(replace(CHILD, identity=Identity(8, "1", "b")))
    asked = after(gone, events.Run(LAUNCHES[1]), other, events.Tick(), at=3.0)
    assert asked is not None

    late = after(asked, events.Answered(first.question, True), at=3.0)

    assert gone is None
    assert late == asked


def test_the_pause_between_tries_doubles_up_to_five_minutes() -> None:
    pauses = [pause_s(failures, "Crashed", TIMING) for failures in range(1, 12)]

    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_what_was_refused_before_it_started_is_tried_every_half_a_minute() -> None:
    for reason in ("MemoryFits", "PortInUse", "HostIPNotLocal", "StateUnwritable"):
        pauses = [pause_s(failures, reason, TIMING) for failures in (1, 5, 6, 12)]

        assert pauses == [1, 16, 30, 30]


def test_what_must_fail_the_same_way_waits_longest_at_once() -> None:
    assert pause_s(1, "ModelCorrupt", TIMING) == 300


def test_ten_minutes_of_being_ready_forgive_earlier_failures() -> None:
    unit = replace(ready_unit(), failures=6)

    soon = after(unit, events.Exited("Crashed", ""), at=600.0)
    late = after(unit, events.Exited("Crashed", ""), at=602.0)

    assert soon is not None
    assert late is not None
    assert (soon.failures, late.failures) == (7, 1)


@pytest.mark.parametrize(
    ("drain_timeout_s", "message"),
    [
        (60.0, "waiting for 2 requests"),
        (
            86_400.0,
            "waiting for 2 requests since 1970-01-01T00:00:00Z, until 1970-01-02T00:00:00Z at most",
        ),
    ],
)
def test_a_drain_that_may_last_says_since_when_and_until_when(
    drain_timeout_s: float, message: str
) -> None:
    unit = ready_unit()
    unit = replace(unit, launch=replace(unit.launch, drain_timeout_s=drain_timeout_s))
    draining = after(unit, events.Run(LAUNCHES[1]))
    assert draining is not None

    waiting = after(draining, events.SlotsAnswered(draining.question, 2))

    assert waiting is not None
    assert waiting.message == message


def test_a_launch_that_waits_for_the_drain_of_its_predecessor_is_news_once() -> None:
    draining = after(ready_unit(), events.Run(LAUNCHES[1]))
    assert draining is not None
    draining = after(draining, events.SlotsAnswered(draining.question, 2))
    assert draining is not None

    again, effects = supervisor.step(draining, events.Run(LAUNCHES[1]), Moment(0.0, 0.0), TIMING)

    assert (again, effects) == (draining, ())
    assert draining.message == "waiting for 2 requests"
    other = after(draining, events.Run(LAUNCHES[2]))
    assert other is not None
    assert (other.successor, other.message) == (LAUNCHES[2], "waiting for 2 requests")


def test_start_seconds_are_measured_from_spawn_to_ready_and_kept_by_a_successor() -> None:
    unit = ready_unit()

    successor = after(unit, events.Run(BLUNT), events.Exited("Exited", ""), at=100.0)

    assert unit.start_seconds == 1.0
    assert successor is not None
    assert (successor.launch, successor.start_seconds) == (BLUNT, 1.0)


def test_an_answer_from_before_a_sleep_means_nothing() -> None:
    unit = after(ready_unit(), events.Tick(), at=50.0)
    assert unit is not None
    asked = unit.question

    woken = after(unit, events.Woke(), events.Answered(asked, False, "Loading", ""), at=60.0)

    assert woken is not None
    assert (woken.missed, woken.wake_at) == (0, 60.0)


def test_a_drain_that_is_called_off_goes_back_to_work() -> None:
    unit = after(ready_unit(), events.Stop(), events.Run(LAUNCHES[0]), at=2.0)

    assert unit is not None
    assert (unit.phase, unit.child, unit.launch.ref) == (Phase.READY, CHILD, service("chat"))


def test_an_answer_for_an_earlier_process_means_nothing() -> None:
    first = after(None, events.Run(LAUNCHES[0]), events.Spawned(CHILD))
    first = after(first, events.Tick(), at=1.0)
    assert first is not None
    second = after(first, events.Exited("Crashed", ""), at=1.0)
    second = after(second, events.Tick(), events.Spawned(CHILD), at=10.0)
    second = after(second, events.Tick(), at=11.0)

    third = after(second, events.Answered(first.question, True), at=11.0)

    assert second is not None
    assert second.asking
    assert third == second


def test_an_idle_process_is_not_ended_before_clients_heard_that_it_goes() -> None:
    timing = replace(TIMING, withdraw_s=2.0)
    draining, _ = supervisor.step(ready_unit(), events.Stop(), Moment(10.0, 0.0), timing)
    assert draining is not None
    idle = events.SlotsAnswered(draining.question, 0)

    early, effects = supervisor.step(draining, idle, Moment(11.0, 0.0), timing)
    late, ends = supervisor.step(draining, idle, Moment(12.0, 0.0), timing)

    assert early is not None
    assert (early.phase, effects) == (Phase.DRAINING, ())
    assert late is not None
    assert (late.phase, ends) == (Phase.TERMINATING, (events.Signal(CHILD, signal.SIGTERM),))


def test_a_process_whose_requests_nobody_can_count_waits_just_as_long() -> None:
    timing = replace(TIMING, withdraw_s=2.0)
    unit = replace(ready_unit(), launch=BLUNT)

    draining, _ = supervisor.step(unit, events.Stop(), Moment(10.0, 0.0), timing)
    woken, _ = supervisor.step(draining, events.Woke(), Moment(11.0, 0.0), timing)
    early, asked = supervisor.step(woken, events.Tick(), Moment(11.0, 0.0), timing)
    late, ends = supervisor.step(early, events.Tick(), Moment(12.0, 0.0), timing)

    assert early is not None
    assert (early.phase, early.wake_at, asked) == (Phase.DRAINING, 12.0, ())
    assert late is not None
    assert (late.phase, ends) == (Phase.TERMINATING, (events.Signal(CHILD, signal.SIGTERM),))
