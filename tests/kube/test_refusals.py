"""A write that is refused is tried again with growing pauses, and at once when it changes."""

from __future__ import annotations

import time
from dataclasses import replace

from reconciler.api.meta import API_VERSION
from reconciler.core.plan import Action, Change, ObjectName
from reconciler.core.target import Result
from reconciler.kube.apply.objects import apply_objects
from reconciler.kube.apply.refusals import Refusals, RetryPauses
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from tests.support.builders import ref

PAUSES = RetryPauses(second_s=2.0, longest_s=10.0)


def change(name: str = "chat", replicas: int = 1) -> Change:
    manifest = {"spec": {"replicas": replicas}}
    named = ObjectName("apps/v1", "Deployment", "default", name)
    return Change(
        *(Action.CREATE, "cluster/prod", ref(name), "New", None), object=named, manifest=manifest
    )


def refused(times: int) -> Refusals:
    """Each time at second 0."""
    made = Refusals(PAUSES)
    for _ in range(times):
        made.refused(change(), "no quota", 0.0)
    return made


def test_the_pauses_grow_and_the_first_refusal_is_followed_by_none() -> None:
    def waits_s(times: int) -> int:
        known = refused(times)
        return next(s for s in range(100) if not known.split([change()], float(s))[1])

    assert [waits_s(times) for times in range(1, 7)] == [0, 2, 4, 8, 10, 10]


def test_what_waits_says_what_it_was_refused_with_and_holds_nobody_else() -> None:
    due, [waiting] = refused(2).split([change("search"), change()], 1.0)

    assert due == [change("search")]
    assert (waiting.change, waiting.result, waiting.message) == (
        change(),
        Result.FAILED,
        "no quota",
    )


def test_what_is_declared_otherwise_or_to_be_removed_by_now_is_tried_at_once() -> None:
    for other in (change(replicas=2), replace(change(), action=Action.DELETE)):
        known = refused(5)

        assert known.split([other], 1.0) == ((other,), ())
        known.refused(other, "no quota", 1.0)
        assert known.split([other], 1.0) == ((other,), ())


def test_what_was_taken_or_is_not_to_be_made_any_more_is_forgotten() -> None:
    taken, left = refused(5), refused(5)
    taken.taken(change())
    left.split([change("search")], 1.0)

    assert taken.split([change()], 1.0)[1] == left.split([change()], 1.0)[1] == ()


def test_what_waits_is_told_in_its_place_among_what_is_tried() -> None:
    named = ObjectName(API_VERSION, "Model", "default", "phi")
    model = replace(change("phi"), object=named)
    known = Refusals()
    for _ in range(5):
        known.refused(change(), "no quota", time.monotonic())
    api = ApiServer.of("prod", ClusterCredentials(lambda: Grant("http://127.0.0.1:1")))

    outcomes = apply_objects(
        *(api, [change(), model], {}, "home"),
        refusals=known,
        write_refusal=lambda: "another applies",
    )

    assert [(o.change, o.message) for o in outcomes] == [
        (model, "another applies"),
        (change(), "no quota"),
    ]
