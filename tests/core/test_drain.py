"""How long a plan says that its changes wait for requests in flight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.observation import Instance
from reconciler.core.plan import Change, Plan
from reconciler.core.planner import Policy, make_plan
from reconciler.fleet.workload import Workload
from reconciler.report.plan_json import plan_json
from reconciler.report.plan_text import plan_text
from tests.support.builders import FixedCauses, instance, observed, workload

DAY_S = 86_400.0
STATED = {"rollout.drainTimeout": DAY_S}
CHANGED = {**workload("chat").settings, "contextSize": 4096}


def plan(want: Workload | None, have: Instance) -> Plan:
    wanted = [want] if want else []
    return make_plan("rev", wanted, (), observed(have), Policy(), FixedCauses())


def only(made: Plan) -> Change:
    (change,) = made.changes
    return change


def running(of: Workload, **overrides: Any) -> Instance:
    return instance(of.ref.name, of, pid=7, **overrides)


@pytest.mark.parametrize(
    ("want", "action"),
    [
        (workload("chat", lifecycle=STATED, settings=CHANGED), "replace"),
        (workload("chat", lifecycle=STATED, suspended=True), "stop"),
        (None, "delete"),
    ],
)
def test_a_change_that_ends_a_process_waits_as_it_was_started_to(
    want: Workload | None, action: str
) -> None:
    made = plan(want, running(workload("chat", lifecycle=STATED)))

    (shown,) = plan_json(made)["changes"]
    assert (only(made).action, shown["impact"]["drainSeconds"]) == (action, DAY_S)
    assert "waits until no request is in flight, for 24h at most" in plan_text(made, 0.0)


def test_a_pod_gets_no_new_requests_while_it_waits() -> None:
    made = plan(None, running(workload("chat", lifecycle=STATED)))
    target = "cluster/prod"
    change = replace(only(made), target=target)
    state = replace(made.targets["node/mac"], target=target)

    text = plan_text(replace(made, changes=(change,), targets={target: state}), 0.0)

    assert "each pod that goes gets no new requests, and waits until no request" in text


@pytest.mark.parametrize(
    ("want", "have", "longest_s"),
    [
        (workload("chat"), running(workload("chat", lifecycle={}, settings=CHANGED)), None),
        (
            workload("chat", lifecycle={"rollout.drainTimeout": 300.0}, settings=CHANGED),
            running(workload("chat", lifecycle={"rollout.drainTimeout": 60.0})),
            60.0,
        ),
        (None, running(workload("chat", lifecycle=STATED), ready=False, reason="Loading"), None),
        (None, running(workload("chat", lifecycle=STATED), reason="ScaledToZero"), None),
        (None, running(workload("chat", lifecycle=STATED), runtime="vllm"), None),
        (
            workload("chat", lifecycle={"rollout.drainTimeout": 300.0}),
            running(workload("chat", lifecycle=STATED)),
            None,
        ),  # nothing ends
    ],
)
def test_what_answers_nobody_or_cannot_be_counted_is_not_waited_for(
    want: Workload | None, have: Instance, longest_s: float | None
) -> None:
    made = plan(want, have)

    assert only(made).impact.drain_seconds == longest_s
    assert "in flight" not in plan_text(made, 0.0), "a usual wait is not worth a word"
