"""What a loop says once, and what it says again."""

from __future__ import annotations

from reconciler.plan import Action, Change, ObjectName, Plan
from reconciler.report.news import News
from tests.support.builders import ref

DEPLOYMENT = ObjectName("apps/v1", "Deployment", "default", "chat")
SERVICE = ObjectName("v1", "Service", "default", "chat")


def plan(*changes: Change) -> Plan:
    return Plan("r1", changes, (), (), {}, {})


def drift(of: ObjectName | None, target: str = "cluster/prod") -> Change:
    return Change(Action.DRIFT, target, ref("chat"), "DriftedByOther", None, object=of)


def test_an_object_that_somebody_changed_again_is_told_again() -> None:
    news = News()
    news.planned(plan())

    told = [
        news.planned(plan(drift(DEPLOYMENT))),
        news.planned(plan(drift(DEPLOYMENT))),  # not taken back yet
        news.planned(plan(drift(DEPLOYMENT), drift(SERVICE))),
        news.planned(plan()),
        news.planned(plan(drift(DEPLOYMENT))),
    ]

    assert told == [True, False, True, False, True]


def test_a_process_that_is_started_again_and_again_is_told_once() -> None:
    news = News()
    news.planned(plan())
    gone = drift(None, "node/here")

    told = [news.planned(plan(*changes)) for changes in ([gone], [], [gone])]

    assert told == [True, False, False]
