"""Whole passes over a cluster without a server: revisions as files, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.meta import HOLD_ANNOTATION, PRUNE_ANNOTATION
from reconciler.api.model import Model
from reconciler.capacity.admission import Facts
from reconciler.core.plan import Action, Plan, Restart
from reconciler.fleet.fleet import Fleet
from reconciler.kube.objects import NEEDS_ANNOTATION, ObjectId
from reconciler.report.plan_text import plan_text
from tests.memory.test_memory import GEMMA
from tests.support.builders import ref
from tests.support.cluster_views import CLUSTER, fleet, pool
from tests.support.fleets import document, model
from tests.support.gguf_models import tiny_llama
from tests.support.pure_cluster import PureCluster

CHAT = ObjectId("inference.llmkube.dev", "InferenceService", "default", "chat")
DEPLOYMENT = ObjectId("apps", "Deployment", "default", "chat")


def a_fleet(**services: Any) -> dict[str, str]:
    return {**fleet(**services), "fleet.yaml": document("Fleet", "home", {})}


def everything_is_gemma(_: Fleet, models: Sequence[Model]) -> Facts:
    return dict.fromkeys((model.ref for model in models), GEMMA)


def said(plan: Plan, action: Action) -> list[str]:
    return sorted(
        f"{c.object.kind} {c.object.name}" if c.object else c.ref.label
        for c in plan.changes
        if c.action is action
    )


def test_a_second_plan_of_the_same_revision_is_empty() -> None:
    cluster = PureCluster()

    cluster.bring_to(a_fleet(chat={}, embed={"replicas": 2}))
    again = cluster.plan(a_fleet(chat={}, embed={"replicas": 2}))

    assert (again.changes, again.blocked) == ((), ())


def test_a_service_whose_models_a_job_fetches_waits_for_no_upgrade() -> None:
    cluster = PureCluster()
    shared = {"kubernetes": {"cluster": CLUSTER, "count": 2, "cache": "pvc:20Gi,RWX"}}
    files = a_fleet(chat={}) | {"l4.yaml": pool(**shared)}

    cluster.bring_to(files)
    again = cluster.plan(files)

    assert "Job" in {oid.kind for oid in cluster.live}
    assert again.changes == ()


def test_a_service_that_no_longer_fits_keeps_all_that_it_has() -> None:
    """Also its documents, where nothing in it names its pool."""
    cluster = PureCluster()
    anywhere: dict[str, Any] = {"placement": {}}
    files = {k: v for k, v in a_fleet(chat=anywhere).items() if k != "mac.yaml"}
    cluster.bring_to(files)
    before = dict(cluster.live)
    assert CHAT in before

    tight = {"l4.yaml": pool(runtimes=["vllm"])}
    plan = cluster.bring_to(files | tight)

    assert plan.blocked
    assert said(plan, Action.DELETE) == []
    assert before.keys() == cluster.live.keys()


def test_each_change_of_a_document_says_its_line() -> None:
    cluster = PureCluster()
    files = a_fleet(chat={})

    first = cluster.bring_to(files)
    second = cluster.plan(files | {"l4.yaml": pool(costPerHour=0.5)})

    assert {(c.object.kind, c.reason) for c in first.changes if c.object} >= {
        ("Fleet", "Added"),
        ("FleetNode", "Added"),
        ("Model", "Added"),
        ("Deployment", "Added"),
    }
    assert all(change.source for change in first.changes)
    (changed,) = second.changes
    assert changed.source is not None
    stated = files["l4.yaml"].splitlines(), pool(costPerHour=0.5).splitlines()
    assert changed.source.file == "l4.yaml"
    assert "costPerHour" in stated[1][changed.source.line - 1]


def test_a_document_that_goes_names_the_line_on_which_it_stood() -> None:
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={}, embed={}))

    plan = cluster.plan(a_fleet(chat={}))

    gone = [c for c in plan.changes if c.action is Action.DELETE]
    assert gone
    assert {c.source.file for c in gone if c.source} == {"embed.yaml"}
    assert all(c.source for c in gone)


def test_a_document_that_somebody_deleted_is_missing_and_not_new() -> None:
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={}))
    del cluster.live[CHAT]

    (change,) = cluster.plan(a_fleet(chat={})).changes

    assert (change.action, change.reason) == (Action.CREATE, "ObjectMissing")


def test_a_hold_that_the_fleet_takes_back_holds_nothing_any_more() -> None:
    cluster = PureCluster()
    spec = {"modelRef": "gemma", "placement": {"nodes": ["l4"]}}
    held = document("InferenceService", "chat", spec, annotations={HOLD_ANNOTATION: "true"})
    cluster.bring_to(a_fleet() | {"chat.yaml": held})

    plan = cluster.bring_to(a_fleet(chat={"contextSize": 16384}))

    assert plan.blocked == ()
    assert HOLD_ANNOTATION not in cluster.live[CHAT]["metadata"].get("annotations", {})


@pytest.mark.parametrize("on", [CHAT, DEPLOYMENT], ids=lambda oid: oid.kind)
def test_a_hold_that_somebody_put_on_what_runs_holds_the_whole_service(on: ObjectId) -> None:
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={}))
    cluster.annotate(on, HOLD_ANNOTATION, "true")
    before = dict(cluster.live)

    changed = cluster.bring_to(a_fleet(chat={"contextSize": 16384}))
    gone = cluster.bring_to(a_fleet(embed={}))

    for plan in (changed, gone):
        assert [b.reason for b in plan.blocked] == ["Held"]
        assert not [c for c in plan.changes if c.ref == ref("chat")]
    assert before.items() <= cluster.live.items()


@pytest.mark.parametrize("on", [CHAT, DEPLOYMENT], ids=lambda oid: oid.kind)
def test_what_somebody_keeps_from_being_pruned_keeps_all_its_objects(on: ObjectId) -> None:
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={}, embed={}))
    cluster.annotate(on, PRUNE_ANNOTATION, "disabled")
    before = dict(cluster.live)

    plan = cluster.bring_to(a_fleet(embed={}))

    assert [b.reason for b in plan.blocked] == ["PruneDisabled"]
    assert before.keys() == cluster.live.keys()


def test_nothing_goes_from_a_cluster_of_which_no_node_is_declared_any_more() -> None:
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={}))
    before = dict(cluster.live)

    plan = cluster.bring_to({"fleet.yaml": document("Fleet", "home", {})})

    assert plan.summary["delete"] == 0
    assert {b.reason for b in plan.blocked} == {"RevisionIncomplete"}
    assert before.keys() <= cluster.live.keys()


def test_the_last_service_goes_while_its_node_stays_and_then_the_node() -> None:
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={}))

    cluster.bring_to(a_fleet())
    services = [oid for oid in cluster.live if oid.group != CHAT.group]
    cluster.bring_to({"fleet.yaml": document("Fleet", "home", {})})

    assert services == []
    assert {oid.kind for oid in cluster.live} == {"Fleet"}


def test_a_change_shows_the_memory_of_the_pods_before_and_after(tmp_path: Path) -> None:
    stored = tiny_llama(tmp_path / "tiny.gguf").read_bytes()
    files = {"model.yaml": model(source="tiny.gguf"), "tiny.gguf": stored}
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={"contextSize": 1024}) | files)

    plan = cluster.bring_to(a_fleet(chat={"contextSize": 4096}) | files)
    again = cluster.plan(a_fleet(chat={"contextSize": 4096}) | files)

    (service,) = [change for change in plan.changes if change.object is None]
    grown = {m.pool: (m.before_bytes, m.after_bytes) for m in service.impact.memory}
    assert grown
    for before, after in grown.values():
        assert before is not None
        assert after is not None
        assert 0 < before <= after
    assert any(before != after for before, after in grown.values())
    assert again.changes == ()


@pytest.mark.parametrize("noted", ["", "[]", '{"host": 3}', '{"host": [null, 1]}', "no"])
def test_a_note_of_memory_that_somebody_broke_is_no_memory(noted: str) -> None:
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={}))
    cluster.annotate(DEPLOYMENT, NEEDS_ANNOTATION, noted)

    plan = cluster.plan(a_fleet(chat={"contextSize": 16384}))

    assert [c.action for c in plan.changes if c.object is None] == [Action.UPDATE]


def test_that_we_know_better_what_the_same_pods_take_rolls_none_of_them() -> None:
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={}))

    cluster.known = everything_is_gemma
    plan = cluster.bring_to(a_fleet(chat={}))

    assert all(c.impact.restart is Restart.NONE for c in plan.changes)
    said = cluster.live[DEPLOYMENT]["metadata"]["annotations"]
    assert NEEDS_ANNOTATION in said  # noted beside pods that stay
    assert all(c.is_shown_only for c in cluster.plan(a_fleet(chat={})).changes)


def test_pods_that_nobody_had_sized_take_an_unknown_amount_and_not_nothing() -> None:
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={"contextSize": 1024}))

    cluster.known = everything_is_gemma
    plan = cluster.plan(a_fleet(chat={"contextSize": 4096}))

    (service,) = [change for change in plan.changes if change.object is None]
    assert {m.before_bytes for m in service.impact.memory} == {None}
    assert "device0 ? -> " in plan_text(plan, 0.0)


def test_another_time_to_drain_rolls_the_pods_as_the_plan_says() -> None:
    cluster = PureCluster()
    cluster.bring_to(a_fleet(chat={}))
    was = cluster.live[DEPLOYMENT]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]

    plan = cluster.bring_to(a_fleet(chat={"rollout": {"drainTimeout": "90s"}}))

    (service,) = [change for change in plan.changes if change.object is None]
    assert service.impact.restart is Restart.ROLL
    template = cluster.live[DEPLOYMENT]["spec"]["template"]["spec"]
    assert (was, template["terminationGracePeriodSeconds"]) == (75, 105)
