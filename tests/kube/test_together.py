"""Clusters and agents looked at together, with a server that does not answer in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.agents.credentials import AgentCredentials as AgentCredentials
from reconciler.agents.lastseen import LastSeen
from reconciler.agents.nodes import AgentNodes
from reconciler.core.observation import Observation, RevisionState
from reconciler.core.target import Outcome, Result
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from reconciler.kube.informer.read_your_writes import ReadYourWritesApi
from reconciler.kube.objects import SYSTEM_NAMESPACE
from reconciler.kube.render.rendering import ObjectRenderer
from reconciler.kube.target import ClusterTarget
from reconciler.kube.together import Together
from reconciler.loop.desired import Desired
from tests.support.cluster import Cluster
from tests.support.cluster_views import CLUSTER, desired, fleet, nothing_to_do
from tests.support.fault_proxy import FaultProxy
from tests.support.fleets import document
from tests.support.http import FileServer
from tests.support.wait import wait_for

TARGET = f"cluster/{CLUSTER}"
STANDS_BY = "another reconciler applies this fleet"


@pytest.mark.cluster
@pytest.mark.e2e
def test_who_stood_by_does_not_say_so_once_the_other_has_applied_the_revision(
    installed_cluster: Cluster,
) -> None:
    api, want = (
        installed_cluster.client(CLUSTER),
        desired(fleet() | {"fleet.yaml": document("Fleet", "home", {})}),
    )
    one = ClusterTarget(api, ObjectRenderer(CLUSTER))
    why: list[str | None] = [STANDS_BY]
    other, third = (
        ClusterTarget(api, ObjectRenderer(CLUSTER), write_refusal=lambda: why[0]) for _ in range(2)
    )

    said = [_pass_of(target, want) for target in (other, third, one, other)]
    why[0] = None
    leads = third.observe(want).state.revision
    api.close()

    assert [held for _, held in said] == [STANDS_BY, STANDS_BY, "", ""]
    assert leads
    assert leads.held == "", "nor once it applies the fleet itself, before its first pass"


def _pass_of(target: ClusterTarget, want: Desired) -> tuple[tuple[Outcome, ...], str]:
    """What became of a pass without changes, and why the revision is not applied afterwards."""
    seen = target.observe(want)
    assert seen.cluster is not None
    observed = Observation({TARGET: seen.state}, seen.instances)
    planned = target.plan(want, seen.cluster, observed, nothing_to_do(want), want.policy())
    outcomes = target.apply(planned, (), want.fleet.revision)
    revision = target.observe(want).state.revision
    assert revision is not None
    return outcomes, revision.held


@pytest.mark.cluster
@pytest.mark.e2e
def test_an_inventory_that_cannot_be_written_is_said_although_nothing_else_changes(
    installed_cluster: Cluster,
) -> None:
    taken = {"metadata": {"name": "fleet-home", "namespace": SYSTEM_NAMESPACE}}
    installed_cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", **taken})
    api = installed_cluster.client(CLUSTER)
    want = desired(fleet() | {"fleet.yaml": document("Fleet", "home", {})})
    target = ClusterTarget(api, ObjectRenderer(CLUSTER))

    outcomes, held = [_pass_of(target, want) for _ in range(3)][-1]
    api.close()

    assert [(outcome.change.ref.label, outcome.result) for outcome in outcomes] == [
        ("home", Result.FAILED)
    ]
    assert (
        "ConfigMap fleet-reconciler/fleet-home is not an inventory of fleet-reconciler"
        in outcomes[0].message
    )
    assert held == outcomes[0].message, "and whoever waits is told that it does not help"


@pytest.mark.cluster
@pytest.mark.e2e
def test_what_takes_long_is_applied_a_part_a_pass(
    installed_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.kube.target.applies_s", lambda looked_s: 0.0)
    installed_cluster.namespace("default")
    files = fleet(**{f"s{n}": {} for n in range(20)})
    want = desired(files | {"fleet.yaml": document("Fleet", "home", {})})
    unfinished: list[str] = []
    done: list[Outcome] = []
    reads: list[int] = []  # before each pass
    with FaultProxy(installed_cluster.client().grant()) as proxy:
        api = ReadYourWritesApi.like(proxy.api(CLUSTER))
        target = ClusterTarget(
            *(api, ObjectRenderer(CLUSTER), lambda: None),
            unfinished=lambda: unfinished.append("more"),
        )

        while len(reads) == len(unfinished):
            reads.append(proxy.count("GET", "/namespaces/default/"))
            seen = target.observe(want)
            assert seen.cluster is not None
            assert seen.state.revision == RevisionState()
            observed = Observation({TARGET: seen.state}, seen.instances)
            plan = want.plan(observed)
            planned = target.plan(want, seen.cluster, observed, plan, want.policy())
            changes = (*plan.changes, *planned.objects.changes)
            done += target.apply(planned, changes, want.fleet.revision)
        state = target.observe(want).state
        target.close()

    objects = [outcome.change.object for outcome in done if outcome.change.object]
    assert {outcome.result for outcome in done} == {Result.APPLIED}
    assert len(set(objects)) == len(objects) > 60, "nothing is written twice"
    assert state.revision == RevisionState(applied=want.fleet.revision)
    services = [outcome.change.ref for outcome in done if outcome.change.object is None]
    assert sorted(services) == sorted(w.ref for w in want.assignment.workloads)
    assert len(reads) > 2
    assert reads[1] == reads[-1], "whose the names are is asked once"


def test_a_cluster_that_still_answers_is_asked_nothing_else(tmp_path: Path) -> None:
    with FileServer(b"{" * 100_000) as server:
        server.go_on.clear()
        api = ApiServer.of(CLUSTER, ClusterCredentials(lambda: Grant(f"{server.url}/..")))
        agents = AgentNodes(AgentCredentials(), LastSeen(tmp_path / "seen.json"))
        together = Together(agents, (ClusterTarget(api, ObjectRenderer(CLUSTER)),), look_s=0.5)
        want = desired(fleet(chat={}))

        first = together.observe(want).targets[TARGET]
        wait_for(lambda: bool(server.requests), "the first question arrives")
        asked = len(server.requests)
        second = together.observe(want).targets[TARGET]
        asked_then = len(server.requests)
        server.go_on.set()
        wait_for(lambda: "asked before" not in together.observe(want).targets[TARGET].message)
        asked_at_last = len(server.requests)
        api.close()

    assert first.message == "no answer within 0.5 s"
    assert "it has not answered what it was asked before" in second.message
    assert asked_then == asked, "the first question still goes on"
    assert asked_at_last > asked, "and then another"
