"""What a loop says once, and what it says again."""

from __future__ import annotations

from reconciler.core.observation import Pending
from reconciler.core.plan import Action, Change, ObjectName, Plan
from reconciler.core.target import Outcome, Result
from reconciler.report.news import News
from tests.support.builders import instance, model_file, ref, workload

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


def test_what_fails_in_each_pass_is_told_once_of_each_object_of_a_service() -> None:
    news = News()
    failed = [
        Outcome(Change(Action.CREATE, "cluster/prod", ref("chat"), "Added", None, object=of),
                Result.FAILED, f"no namespace for {of.kind}")
        for of in (DEPLOYMENT, SERVICE)
    ]  # fmt: skip

    told = [news.applied(failed), news.applied(failed), news.applied(failed[1:])]

    assert told == [tuple(failed), (), ()]


def test_an_update_that_waits_for_the_same_is_told_once_and_a_download_is_no_news() -> None:
    news = News()
    full = instance("chat", pending=Pending("DiskFull", "3 GiB are needed"))
    coming = instance("chat", pending=Pending("Downloading", "12 %"))

    told = [news.pending([found]) for found in (coming, full, coming, full, instance("chat"), full)]

    waits = ((full, full.pending),)
    assert told == [(), waits, (), (), (), waits]


def test_a_process_that_is_started_again_and_again_is_told_once() -> None:
    news = News()
    news.planned(plan())
    gone = drift(None, "node/here")

    told = [news.planned(plan(*changes)) for changes in ([gone], [], [gone])]

    assert told == [True, False, False]


def test_a_second_replaced_model_file_in_one_revision_is_told_too() -> None:
    def replaced(sha256: str) -> Change:
        want = workload(models=(model_file(sha256=sha256),))
        return Change(Action.REPLACE, "node/here", ref("chat"), "Changed", None, desired=want)

    news = News()
    first, second = replaced("a" * 64), replaced("b" * 64)

    told = [news.planned(plan(*changes)) for changes in ([first], [first], [], [second])]

    assert told == [True, False, False, True]
