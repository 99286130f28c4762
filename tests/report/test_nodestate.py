"""What an agent says of its node, over the wire and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs

from reconciler.api.meta import ObjectRef
from reconciler.api.model import public_source
from reconciler.api.nodestate import NodeState
from reconciler.core.observation import (
    Drift,
    DriftKind,
    Instance,
    Location,
    ObservedDisk,
    ObservedPool,
    RevisionState,
    RuntimeFound,
    TargetState,
)
from reconciler.core.plan import Action
from reconciler.core.planner import Policy, make_plan
from reconciler.fleet.command import ServedModel
from reconciler.fleet.workload import PoolNeed
from reconciler.report.nodestate import node_state, read_node_state
from tests.support.builders import FixedCauses, instance, model_file, observed, workload

SCHEMA = Path(__file__).parents[2] / "schemas" / "nodestate.json"
REF = ObjectRef("InferenceService", "default", "chat")
STATE = TargetState(
    "node/mac",
    reachable=True,
    seen_at=1000.5,
    missing={"mlx-server": "build it"},
    runtimes=(RuntimeFound("llama-server", "/bin/llama-server", "b11434"),),
    pools=(ObservedPool("unified", 2**34, 2**33, 2**30, "pid 7 (browser), 900 MiB"),),
    disk=ObservedDisk("/models", 2**40, 2**39, 2**33, {"digest": 7}, 8),
    revision=RevisionState(
        "c" * 40, "b" * 40, "c" * 40, ("a.yaml:1:1: wrong",), "held", "gone", 7.0
    ),
    stopped={REF: "ab"},
    stopped_since={REF: 8.5},
)
INSTANCE = Instance(
    ref=REF,
    target="node/mac",
    runtime="llama-server",
    inputs={"settings": {"contextSize": 512}, "models": []},
    inputs_digest="ab",
    render_digest="cd",
    source=Location("chat.yaml", 3, None),
    ready=True,
    reason="Ready",
    since=999.0,
    pid=4,
    port=20001,
    endpoint="http://127.0.0.1:20001",
    needs=(PoolNeed("unified", 100, 200, (("digest", 60),)),),
    models=("tiny",),
    start_seconds=0.5,
    drifts=(Drift(DriftKind.DEFERRED, "the engine was upgraded", 998.0),),
    served=(ServedModel("tiny", "failed", "LoadFailed", "exit code 1"),),
    measured=(("unified", 90),),
)


def test_what_an_agent_answers_is_read_as_it_was_meant() -> None:
    text = node_state(STATE, [INSTANCE], agent_version="0.1").model_dump_json(by_alias=True)

    state, instances = read_node_state(NodeState.model_validate_json(text))

    assert (state, instances) == (STATE, (INSTANCE,))


def test_the_answer_keeps_to_its_schema() -> None:
    answer = node_state(STATE, [INSTANCE], agent_version="0.1")

    validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))

    assert validator.is_valid(answer.model_dump(mode="json", by_alias=True, exclude_none=True))


def test_a_signed_url_is_told_to_nobody_and_still_the_same_model() -> None:
    signed = {"source": "https://models.test/gemma.gguf?X-Signature=c4n4ry", "sha256": None}
    have = instance("chat", of=workload("chat", models=(model_file(**signed),)))
    said = node_state(STATE, [have], agent_version="0.1").model_dump_json(by_alias=True)
    _, instances = read_node_state(NodeState.model_validate_json(said))
    cached = frozenset({public_source(signed["source"])})
    seen = observed(*instances, cached=cached)

    def step(**want: Any) -> Any:
        wanted = workload("chat", models=(model_file(**signed | want.pop("model", {})),), **want)
        policy = Policy()
        made = make_plan("rev", [wanted], (), seen, policy, FixedCauses())
        return [(c.action, c.reason, c.fields) for c in made.changes]

    assert "c4n4ry" not in said
    assert step() == []
    ((action, reason, _),) = step(lifecycle={"rollout.drainTimeout": 5.0})
    assert (action, reason) == (Action.UPDATE, "LifecycleChanged")
    other = {"source": "https://models.test/gemma.gguf?X-Signature=other"}
    ((action, reason, fields),) = step(model=other)
    assert (action, reason) == (Action.REPLACE, "ModelChanged")
    assert [f.path for f in fields] == ["model.gemma.source"]
    assert "other" not in str(fields)


def test_a_newer_agents_answer_is_read_as_far_as_it_is_known() -> None:
    answer = node_state(STATE, [INSTANCE], agent_version="9.9").model_dump(by_alias=True)
    answer |= {"mood": "good"}

    state, _ = read_node_state(NodeState.model_validate(answer))

    assert state == STATE


def test_an_older_agents_answer_says_nothing_of_its_disk() -> None:
    answer = node_state(STATE, [INSTANCE], agent_version="0.1").model_dump(by_alias=True)
    del answer["disk"]

    state, _ = read_node_state(NodeState.model_validate(answer))

    assert state == replace(STATE, disk=None)
