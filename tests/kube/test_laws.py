"""Laws of passes over a cluster, for fleets and clusters that nobody chose."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.meta import HOLD_ANNOTATION, PRUNE_ANNOTATION
from reconciler.core.plan import Action, Plan
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import Manifest
from tests.support.cluster_views import fleet, pool
from tests.support.fleets import document
from tests.support.kube_live import edited
from tests.support.pure_cluster import PureCluster

NAMES = ("chat", "embed", "rerank", "search")
SPECS = st.fixed_dictionaries(
    {"modelRef": st.just("gemma"), "placement": st.sampled_from([{}, {"nodes": ["l4"]}])},
    optional={
        "contextSize": st.sampled_from([1024, 4096]),
        "replicas": st.integers(0, 2),
        "suspend": st.booleans(),
        "priority": st.sampled_from(["normal", "high"]),
        "endpoint": st.sampled_from([{"port": 9000}, {"type": "NodePort"}]),
        "rollout": st.just({"drainTimeout": "30s"}),
        "autoscaling": st.just({"minReplicas": 1, "maxReplicas": 3}),
    },
).map(lambda spec: {k: v for k, v in spec.items() if k != "autoscaling" or "replicas" not in spec})
WORDS = st.sampled_from([{}, {}, {HOLD_ANNOTATION: "true"}, {PRUNE_ANNOTATION: "disabled"}])
SERVICES = st.dictionaries(st.sampled_from(NAMES), st.tuples(SPECS, WORDS), max_size=4)


def files_of(services: dict[str, tuple[dict[str, Any], dict[str, str]]]) -> dict[str, str]:
    made = {
        f"{name}.yaml": document(
            "InferenceService", name, spec, **({"annotations": words} if words else {})
        )
        for name, (spec, words) in services.items()
    }
    policy = document("Fleet", "home", {"prune": {"maxCount": 100, "maxShare": 1.0}})
    everywhere = {k: v for k, v in fleet().items() if k != "mac.yaml"}
    return {**everywhere, "fleet.yaml": policy, "other.yaml": pool("other"), **made}


FLEETS = SERVICES.map(files_of)
laws = settings(max_examples=12, deadline=None)


def steps(plan: Plan) -> list[Any]:
    return [change for change in plan.changes if not change.is_shown_only]


@laws
@given(before=FLEETS, after=FLEETS)
def test_after_a_pass_a_second_plan_has_nothing_to_do(
    before: dict[str, str], after: dict[str, str]
) -> None:
    cluster = PureCluster()
    cluster.bring_to(before)

    cluster.bring_to(after)

    assert steps(cluster.plan(after)) == []


@laws
@given(before=FLEETS, after=FLEETS)
def test_what_a_plan_counts_is_what_changes(before: dict[str, str], after: dict[str, str]) -> None:
    cluster = PureCluster()
    cluster.bring_to(before)
    was = dict(cluster.live)

    plan = cluster.bring_to(after)

    now = cluster.live
    differ = {oid for oid in was.keys() | now.keys() if was.get(oid) != now.get(oid)}
    touched = {ObjectSet(was | now).ref(oid) for oid in differ}
    assert touched == {change.ref for change in steps(plan)}
    acted = ("create", "update", "replace", "move", "delete", "stop", "drift")
    assert sum(plan.summary[action] for action in acted) == len(touched)


@laws
@given(before=FLEETS, after=FLEETS)
def test_the_order_of_files_does_not_matter(before: dict[str, str], after: dict[str, str]) -> None:
    one, other = PureCluster(), PureCluster()
    one.bring_to(before)
    other.bring_to(dict(reversed(before.items())))

    plans = one.plan(after), other.plan(dict(reversed(after.items())))

    assert one.live == other.live
    assert plans[0].changes == plans[1].changes
    assert plans[0].blocked == plans[1].blocked


@laws
@given(files=FLEETS, name=st.sampled_from(["aaa", "zzz"]), spec=SPECS)
def test_one_more_service_leaves_the_objects_of_every_other_alone(
    files: dict[str, str], name: str, spec: dict[str, Any]
) -> None:
    more = files | {f"{name}.yaml": document("InferenceService", name, spec)}

    without, with_it = PureCluster().wanted(files), PureCluster().wanted(more)

    assert without.items() <= with_it.items()


@laws
@given(before=FLEETS, after=FLEETS, data=st.data())
def test_what_does_not_carry_our_labels_is_in_no_change(
    before: dict[str, str], after: dict[str, str], data: st.DataObject
) -> None:
    cluster = PureCluster()
    cluster.bring_to(before)
    names = sorted(cluster.live.keys() | cluster.wanted(after).keys())
    foreign = data.draw(st.sets(st.sampled_from(names)))
    for oid in foreign:
        made = copy.deepcopy(dict(cluster.live.get(oid) or cluster.wanted(after)[oid]))
        made["metadata"] = {"name": oid.name, "namespace": oid.namespace, "uid": "theirs"}
        cluster.live[oid] = made
    was = {oid: cluster.live[oid] for oid in foreign}

    cluster.bring_to(after)

    assert {oid: cluster.live[oid] for oid in foreign} == was


@laws
@given(before=FLEETS, after=FLEETS)
def test_a_cluster_that_does_not_answer_has_nothing_to_make_and_nothing_to_delete(
    before: dict[str, str], after: dict[str, str]
) -> None:
    cluster = PureCluster()
    cluster.bring_to(before)

    plan = cluster.plan(after, reachable=False)

    assert {change.action for change in plan.changes} <= {Action.UNKNOWN}


@laws
@given(before=SERVICES, after=SERVICES)
def test_nothing_that_runs_of_a_held_service_ever_changes(
    before: dict[str, tuple[dict[str, Any], dict[str, str]]],
    after: dict[str, tuple[dict[str, Any], dict[str, str]]],
) -> None:
    cluster = PureCluster()
    cluster.bring_to(files_of(before))
    held = {
        name
        for name in before.keys() | after.keys()
        if (after.get(name) or before[name])[1].get(HOLD_ANNOTATION) == "true"
    }
    was = {
        oid: m
        for oid, m in cluster.live.items()
        if _runs(m) and ObjectSet(cluster.live).ref(oid).name in held
    }

    cluster.bring_to(files_of(after))

    for oid, manifest in was.items():
        assert _pods(cluster.live[oid]) == _pods(manifest)


@laws
@given(files=FLEETS, replicas=st.integers(3, 9))
def test_what_somebody_edited_is_taken_back_and_stays_so(
    files: dict[str, str], replicas: int
) -> None:
    cluster = PureCluster()
    cluster.bring_to(files)
    was = dict(cluster.live)
    for oid, live in was.items():
        if oid.kind == "Deployment" and "replicas" in live["spec"]:
            cluster.live[oid] = edited(live, "kubectl-edit", replicas=replicas)

    plan = cluster.bring_to(files)

    assert {c.action for c in plan.changes if c.object} <= {Action.DRIFT}
    kept = {b.ref for b in plan.blocked}
    for oid, manifest in cluster.live.items():
        if ObjectSet(cluster.live).ref(oid) not in kept:
            assert manifest.get("spec") == was[oid].get("spec")
    assert steps(cluster.plan(files)) == []


def _runs(manifest: Manifest) -> bool:
    """A hold keeps what runs: of a suspended service nothing does."""
    return manifest["kind"] == "Deployment" and manifest["spec"].get("replicas") != 0


def _pods(manifest: Any) -> Any:
    return manifest["spec"]["template"]
