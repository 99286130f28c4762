"""What a pass makes of itself in events."""

from __future__ import annotations

import logging
import secrets
from typing import Any

import pytest

from reconciler.core.plan import Action, Blocked, Change, FieldChange, ObjectName
from reconciler.core.target import Outcome, Result
from reconciler.kube.event_note import EventNote
from reconciler.kube.status.events import (
    MOST_NOTE,
    EventWriter,
    event,
    happenings,
)
from tests.support.cluster import Cluster
from tests.support.cluster_views import desired, fleet, live_service, nothing_to_do, service_ref
from tests.support.fault_proxy import FaultProxy

CHAT = desired(fleet(chat={}))
NOW = "2026-01-01T00:00:00.000000Z"


def change(action: Action, **overrides: Any) -> Change:
    values: dict[str, Any] = {
        "target": "cluster/prod",
        "ref": service_ref(),
        "reason": "ObjectChanged",
        "source": None,
        "object": ObjectName("apps/v1", "Deployment", "default", "chat"),
        "fields": (FieldChange("spec.template.env", "s3cret", "other", True),),
    }
    return Change(action, **values | overrides)


def told(*outcomes: Outcome, **plan: Any) -> list[tuple[str, bool, str]]:
    found = happenings(nothing_to_do(CHAT, **plan), outcomes, "prod")
    return [(h.reason, h.is_bad, h.note.partition(": ")[2]) for h in found]


def test_each_step_has_its_word_and_names_fields_without_values() -> None:
    steps = (Action.UPDATE, Action.DELETE, Action.DRIFT)

    said = told(*(Outcome(change(action), Result.APPLIED) for action in steps))

    assert said == [
        ("Applied", False, "update Deployment chat (spec.template.env)"),
        ("Pruned", False, "delete Deployment chat (spec.template.env)"),
        ("DriftReverted", False, "drift Deployment chat (spec.template.env)"),
    ]


def test_what_was_taken_back_names_who_had_changed_it() -> None:
    drift = change(Action.DRIFT, by="kubectl-edit")

    ((_, _, said),) = told(Outcome(drift, Result.APPLIED))

    assert said == "drift Deployment chat (spec.template.env) by kubectl-edit"


def test_the_steps_of_one_service_are_one_event() -> None:
    other = change(Action.CREATE, object=ObjectName("v1", "Service", "default", "chat"), fields=())

    said = told(Outcome(change(Action.CREATE), Result.APPLIED), Outcome(other, Result.APPLIED))

    assert said == [
        ("Applied", False, "create Deployment chat (spec.template.env); create Service chat")
    ]


def test_what_failed_is_a_warning_and_what_was_skipped_or_is_elsewhere_is_nothing() -> None:
    elsewhere = change(Action.UPDATE, target="cluster/other")

    said = told(
        Outcome(change(Action.UPDATE), Result.FAILED, "quota exceeded"),
        Outcome(change(Action.UPDATE), Result.SKIPPED, "stands by"),
        Outcome(elsewhere, Result.APPLIED),
    )

    assert said == [("ApplyFailed", True, "update Deployment chat (quota exceeded)")]


def test_a_blocked_service_and_a_fight_are_warnings() -> None:
    blocked = Blocked(service_ref(), "MemoryFits", "24 of 22 GiB", None)
    fight = change(Action.DRIFT, reason="Fight", by="other-controller")

    said = told(blocked=(blocked,), changes=(fight,))

    assert said == [
        ("Fight", True, "spec.template.env by other-controller"),
        ("Blocked", True, "24 of 22 GiB"),
    ]


def test_the_same_event_has_the_same_name_and_another_has_another() -> None:
    def name(note: str, uid: str = "uid-chat") -> str:
        live = live_service()
        live["metadata"]["uid"] = uid
        made = event(EventNote(service_ref(), "Applied", "Apply", note), live, "pod", NOW)
        return str(made["metadata"]["name"])

    assert name("a") == name("a")
    assert len({name("a"), name("b"), name("a", uid="another")}) == 3


def test_a_note_of_any_length_and_alphabet_is_taken() -> None:
    happening = EventNote(service_ref(), "Applied", "Apply", "ü\n" * 5_000)

    made = event(happening, live_service(), "x" * 500, NOW)

    assert len(made["note"].encode()) <= MOST_NOTE
    assert len(made["reportingInstance"]) == 128


@pytest.mark.cluster
@pytest.mark.e2e
def test_an_event_that_could_not_be_written_is_written_the_next_time(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = cluster.namespace(f"events-{secrets.token_hex(3)}")
    live = live_service()
    live["metadata"] |= {"namespace": namespace, "uid": secrets.token_hex(8)}
    blocked = (EventNote(service_ref(), "Blocked", "Plan", "why", True),)
    client = cluster.client()
    with FaultProxy(client.grant()) as proxy, caplog.at_level(logging.WARNING):
        events = EventWriter(proxy.api(), "us")

        proxy.resets.add("events")
        written = [events.write(blocked, {service_ref(): live}) for _ in range(2)]
        proxy.resets.clear()
        written += [events.write(blocked, {service_ref(): live}) for _ in range(2)]

    client.close()
    listed = cluster.json("get", "events.events.k8s.io", "-n", namespace)["items"]
    assert written == [0, 0, 1, 0], "not again while it is fresh"
    assert [found["note"] for found in listed] == ["why"]
    assert len(caplog.records) == 1, "the same failure is said once"
