"""Whole passes over a cluster without a server: revisions as files, and what becomes of it."""

from __future__ import annotations

from typing import Any

from reconciler.kube.objects import ObjectId
from reconciler.plan import Action, Plan
from tests.support.cluster_views import fleet, pool
from tests.support.fleets import document
from tests.support.pure_cluster import PureCluster

CHAT = ObjectId("inference.llmkube.dev", "InferenceService", "default", "chat")


def a_fleet(**services: Any) -> dict[str, str]:
    return {**fleet(**services), "fleet.yaml": document("Fleet", "home", {})}


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
