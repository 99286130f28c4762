"""What became of services, from what became of their objects."""

from __future__ import annotations

from reconciler.core.plan import Action, Blocked, Change, ObjectName
from reconciler.core.target import Outcome, Result
from reconciler.kube.apply.outcomes import of_services
from tests.support.builders import ref

TARGET = "cluster/prod"
SERVICE = Change(Action.UPDATE, TARGET, ref(), "SettingsChanged", None)


def of_object(kind: str, result: Result, message: str = "") -> Outcome:
    named = ObjectName("v1", kind, "default", "chat")
    change = Change(Action.UPDATE, TARGET, ref(), "ObjectChanged", None, object=named)
    return Outcome(change, result, message)


def test_a_service_is_as_far_as_the_worst_of_its_objects() -> None:
    done = of_object("Service", Result.APPLIED)
    bad = of_object("ConfigMap", Result.FAILED, "too large")
    waits = of_object("Deployment", Result.SKIPPED, "waits for ConfigMap")

    (outcome,) = of_services([SERVICE], [done, waits, bad], ())

    assert (outcome.change, outcome.result, outcome.message) == (
        SERVICE,
        Result.FAILED,
        "too large",
    )


def test_a_service_that_only_waits_has_not_failed() -> None:
    (outcome,) = of_services([SERVICE], [of_object("Service", Result.SKIPPED, "stands by")], ())

    assert (outcome.result, outcome.message) == (Result.SKIPPED, "stands by")


def test_nothing_was_applied_of_a_service_of_which_all_was_held_back() -> None:
    going = Blocked(ref(), "ObjectGoing", "it is being deleted", None, TARGET, (ref(),))

    (outcome,) = of_services([SERVICE], [], [going])

    assert outcome.result is Result.SKIPPED
    assert "ObjectGoing: it is being deleted" in outcome.message


def test_what_one_guarded_object_keeps_does_not_undo_its_siblings() -> None:
    guarded = Blocked(ref(), "Guarded", "a claim", None, TARGET, (ref(),))

    (outcome,) = of_services([SERVICE], [of_object("Service", Result.APPLIED)], [guarded])

    assert outcome.result is Result.APPLIED
