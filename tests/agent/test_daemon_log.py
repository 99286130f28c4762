"""What the daemon says: one line an event, each thing once."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent.daemon.log import _SAID_HERE, DaemonLog, log_to, say
from reconciler.core.observation import Instance
from reconciler.core.plan import Action, Change, Plan
from reconciler.core.target import Outcome, Result
from reconciler.loop import Pass
from tests.support.builders import NODE, instance, observed, ref
from tests.support.cluster_views import desired, fleet, nothing_to_do


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """Where the lines go; logging is as it was before afterwards."""
    names = ("reconciler", "agent", *_SAID_HERE, "agent.models.downloads")
    loggers = [logging.getLogger(name) for name in names]
    before = [(x.handlers, x.propagate, x.level) for x in loggers]
    yield io.StringIO()
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def without_time(stream: io.StringIO) -> list[str]:
    return [line.partition(" ")[2] for line in stream.getvalue().splitlines()]


def test_a_value_of_several_words_is_quoted_and_control_characters_are_shown(
    said: io.StringIO,
) -> None:
    log = log_to(said, "info")

    say(log, logging.INFO, "ready", model='my "m"', path="/a b", note="x\x1b[31m\ny", empty="")

    (line,) = without_time(said)
    assert line == r'level=info msg=ready model="my \"m\"" path="/a b" note="x\\x1b[31m; y"'


def test_each_thing_is_said_once_until_it_changes(said: io.StringIO) -> None:
    report = DaemonLog(log_to(said, "info"))
    loading = instance("chat", ready=False, reason="Loading", message="10 %", pid=7)
    seen: list[Instance] = [
        loading,
        replace(loading, message="20 %"),
        instance("chat", pid=7, endpoint="http://127.0.0.1:1"),
        instance("chat", pid=7, endpoint="http://127.0.0.1:1"),
        instance("chat", ready=False, reason="PortInUse", message="taken"),
    ]

    for one in seen:
        report.on_observed(observed(one))
    report.on_observed(observed())
    for _ in range(2):
        report.on_held("an older head")
        report.on_source_lost("no route", 0.0)
    report.on_rewritten("main was rewritten; followed")

    assert without_time(said) == [
        'level=info msg="not ready" service=default/chat pid=7 reason=Loading message="10 %"',
        "level=info msg=ready service=default/chat endpoint=http://127.0.0.1:1 pid=7 seconds=2.0",
        'level=warning msg="not ready" service=default/chat reason=PortInUse message=taken',
        "level=info msg=stopped service=default/chat",
        'level=warning msg="held, what runs stays as it is" message="an older head"',
        'level=warning msg="source lost, what runs stays as it is"'
        ' since=1970-01-01T00:00:00.000Z message="no route"',
        'level=warning msg="the branch was rewritten" message="main was rewritten; followed"',
    ]


def test_what_waits_or_fails_in_each_pass_is_said_once_until_it_changes(
    said: io.StringIO,
) -> None:
    report = DaemonLog(log_to(said, "info"))
    move = Change(Action.MOVE, NODE, ref("chat"), "MovedAway", None)
    passes = [
        *[Outcome(move, Result.SKIPPED, "stays until node b answers")] * 2,
        *[Outcome(move, Result.FAILED, "disk full")] * 2,
        Outcome(move, Result.APPLIED, "drains and stops"),
    ]

    want = desired(fleet(chat={}))
    for outcome in passes:
        report.on_applied(Pass(want, observed(), nothing_to_do(want), (outcome,)))

    assert without_time(said) == [
        "level=info msg=skipped action=move service=default/chat"
        ' message="stays until node b answers"',
        'level=error msg=failed action=move service=default/chat message="disk full"',
        'level=info msg=applied action=move service=default/chat message="drains and stops"',
    ]


def test_a_stop_by_hand_is_said(said: io.StringIO) -> None:
    report = DaemonLog(log_to(said, "info"))

    for _ in range(2):
        report.on_observed(observed(stopped={ref("chat"): "digest"}))

    assert without_time(said) == ['level=info msg="stopped by hand" service=default/chat']


def test_only_what_is_as_grave_as_the_level_is_said(said: io.StringIO) -> None:
    report = DaemonLog(log_to(said, "error"))

    report.on_held("an older head")
    report.on_refused("abc", ())

    assert without_time(said) == [
        'level=error msg="refused, what runs stays as it is" revision=abc'
    ]


@pytest.mark.parametrize(("level", "lines"), [("info", 0), ("debug", 1)])
def test_what_the_reporter_says_itself_comes_from_others_for_debugging_only(
    said: io.StringIO, level: str, lines: int
) -> None:
    log_to(said, level)

    logging.getLogger("agent.process.owner").info("started pid 7")

    assert len(without_time(said)) == lines


def test_an_empty_plan_is_said_too(said: io.StringIO) -> None:
    report = DaemonLog(log_to(said, "info"))
    planned = Pass(desired(fleet()), observed(), Plan("abc", (), (), (), {NODE: 2}, {}))

    report.on_planned(planned)
    report.on_planned(planned)

    assert without_time(said) == ["level=info msg=plan revision=abc unchanged=2"]
