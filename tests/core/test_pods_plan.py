"""What a change of a service does to its pods in a cluster, in a plan."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.core.observation import Observation, TargetState
from reconciler.core.plan import Action, Blocked, Change, Plan, Restart
from reconciler.core.planner import Policy, make_plan
from reconciler.fleet.workload import NodePool, Workload
from tests.support.builders import (
    GIB,
    FixedCauses,
    instance,
    model_file,
    need,
    ref,
    workload,
)

PROD = "cluster/prod"


def in_pool(name: str = "chat", node: str = "edge", **overrides: Any) -> Workload:
    placed = {"node": node, "cluster": "prod", "pool": NodePool("cpu", cache="models")}
    return workload(name, **(placed | overrides))


def plan(have: Workload | None, want: Workload | None, *more: Workload, **state: Any) -> Plan:
    running = [w for w in (have, *more) if w is not None]
    seen = Observation(
        {PROD: TargetState(PROD, reachable=True, **state)},
        tuple(instance(w.ref.name, of=w, target=PROD) for w in running),
    )
    wanted = [w for w in (want, *more) if w is not None]
    return make_plan("r", wanted, [], seen, Policy(), FixedCauses())


def change(have: Workload | None, want: Workload | None, **state: Any) -> Change:
    (only,) = plan(have, want, **state).changes
    return only


def test_what_a_pod_is_made_from_rolls() -> None:
    found = change(in_pool(), in_pool(settings={"contextSize": 16384}))

    assert (found.action, found.impact.restart) == (Action.UPDATE, Restart.ROLL)
    assert [(f.path, f.forces_restart) for f in found.fields] == [("contextSize", True)]
    assert found.impact.downtime_seconds == 0
    assert found.impact.download_bytes == 0  # the claim has the model


def test_pods_that_have_the_device_are_down_for_a_time_that_nobody_knows() -> None:
    gpu = {"pool": NodePool("cuda")}

    found = change(in_pool(**gpu), in_pool(settings={"contextSize": 16384}, **gpu))

    assert found.impact.downtime_seconds is None
    assert found.impact.download_bytes == 1000  # each pod has a volume of its own


@pytest.mark.parametrize("field", ["replicas", "endpoint.type", "autoscaling"])
def test_what_only_scales_rolls_nothing(field: str) -> None:
    found = change(in_pool(lifecycle={field: 1}), in_pool(lifecycle={field: 2}))

    assert (found.action, found.impact.restart) == (Action.UPDATE, Restart.NONE)
    assert [(f.path, f.forces_restart) for f in found.fields] == [(field, False)]


def test_another_pool_of_the_cluster_rolls_and_says_from_where_to_where() -> None:
    found = change(in_pool(), in_pool(node="far"))

    assert found.impact.restart is Restart.ROLL
    assert [(f.path, f.before, f.after) for f in found.fields] == [
        ("placement.nodes", ["edge"], ["far"])
    ]


def test_a_pool_that_is_unschedulable_takes_nothing_from_another() -> None:
    made = plan(in_pool(), in_pool(node="far", takes_new=False))

    (held,) = made.blocked
    assert held.reason == "NodeTakesNothingNew"
    assert "pool far of cluster/prod" in held.message


def test_a_new_rendering_waits_and_rolls_only_when_asked() -> None:
    renders = {ref(): "newer"}
    asked = {"rollout.onUpgrade": "restart"}

    waits = change(in_pool(), in_pool(), renders=renders)
    rolls = change(in_pool(lifecycle=asked), in_pool(lifecycle=asked), renders=renders)

    assert waits.action is Action.DEFERRED
    assert (rolls.action, rolls.impact.restart) == (Action.UPDATE, Restart.ROLL)


def test_pods_are_weighed_each_alone() -> None:
    big = need(9 * GIB)
    others = [in_pool(name, needs=big) for name in ("a", "b", "c")]

    made = plan(None, in_pool(needs=big), *others)

    assert made.blocked == ()
    (found,) = made.changes
    (memory,) = found.impact.memory
    assert (memory.before_bytes, memory.after_bytes) == (0, 9 * GIB)


def test_a_service_that_leaves_for_a_node_is_a_move_from_the_cluster() -> None:
    found = change(in_pool(), workload(models=(model_file(),)))

    assert (found.action, found.target, found.home) == (Action.MOVE, PROD, "node/mac")


def test_a_suspended_service_without_pods_needs_nothing() -> None:
    assert plan(None, in_pool(suspended=True)).changes == ()


def test_a_cluster_that_is_silent_is_unknown_and_nothing_is_made() -> None:
    seen = Observation({PROD: TargetState(PROD, reachable=False, message="timed out")}, ())

    made = make_plan("r", [in_pool()], [], seen, Policy(), FixedCauses())

    assert [c.action for c in made.changes] == [Action.UNKNOWN]
    assert made.exit_code == 3
    assert not [b for b in made.blocked if isinstance(b, Blocked)]
