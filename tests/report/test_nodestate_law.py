"""Whatever an agent sees, its answer keeps to the schema and is read as it was meant."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api import nodestate as wire
from reconciler.api.meta import ObjectRef
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
from reconciler.fleet.command import ServedModel
from reconciler.fleet.workload import PoolNeed
from reconciler.report.nodestate import node_state, read_node_state

SCHEMA = Path(__file__).parents[2] / "schemas" / "nodestate.json"
VALIDATOR = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))

# Surrogates are no text that could be sent; a child's log is decoded with `replace`.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
name = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
count = st.integers(0, 2**53)
seconds = st.floats(0, 4e9)
refs = st.builds(ObjectRef, st.just("InferenceService"), name, name)
values = st.one_of(st.none(), st.booleans(), count, text, st.lists(text, max_size=2))


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def few(values: st.SearchStrategy[Any], key: Any = None) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=3, unique_by=key).map(tuple)


instances = st.builds(
    Instance,
    ref=refs,
    target=st.just("node/mac"),
    runtime=name,
    inputs=st.dictionaries(name, values, max_size=3),
    inputs_digest=text,
    render_digest=maybe(text),
    source=maybe(st.builds(Location, text, st.integers(1, 10**6), maybe(text))),
    ready=st.booleans(),
    reason=name,
    message=text,
    since=maybe(seconds),
    pid=maybe(st.integers(1, 2**22)),
    port=maybe(st.integers(1, 65535)),
    endpoint=maybe(text),
    needs=few(
        st.builds(PoolNeed, name, count, count, few(st.tuples(text, count))), lambda n: n.pool
    ),
    models=few(name, lambda n: n),
    start_seconds=maybe(st.floats(0, 1e6)),
    gone=st.booleans(),
    drifts=few(st.builds(Drift, st.sampled_from(DriftKind), text, seconds)),
    measured=few(st.tuples(name, count), lambda pair: pair[0]),
)
revisions = st.builds(
    RevisionState,
    maybe(text),
    maybe(text),
    maybe(text),
    few(text),
    held=text,
    lost=text,
    lost_since=maybe(seconds),
).filter(
    lambda r: (r.refused is not None or not r.problems) and (r.lost_since is not None or not r.lost)
)
states = st.builds(
    TargetState,
    target=st.just("node/mac"),
    reachable=st.just(True),
    seen_at=seconds,
    missing=st.dictionaries(name, text, max_size=2),
    runtimes=maybe(few(st.builds(RuntimeFound, name, text, maybe(text)))),
    pools=few(st.builds(ObservedPool, name, maybe(count), maybe(count), maybe(count))),
    disk=maybe(
        st.builds(
            ObservedDisk, text, count, count, count, st.dictionaries(text, count, max_size=2), count
        )
    ),
    revision=revisions,
    stopped=st.dictionaries(refs, text, max_size=2),
    leaving=st.dictionaries(refs, text, max_size=2),
)
parts = st.fixed_dictionaries(
    {
        "blocked": few(
            st.builds(
                wire.BlockedState,
                ref=st.builds(wire.Ref, kind=name, namespace=name, name=name),
                reason=name,
                message=text,
            )
        ),
        "downloads": few(
            st.builds(
                wire.DownloadState,
                model=name,
                source=text,
                state=name,
                received_bytes=count,
                total_bytes=maybe(count),
                reason=maybe(name),
                message=maybe(text),
            )
        ),
        "pressure": maybe(
            st.builds(
                wire.Pressure,
                level=st.sampled_from(["normal", "warning", "critical"]),
                some_share=maybe(st.floats(0, 1)),
                full_share=maybe(st.floats(0, 1)),
            )
        ),
        "fleet": maybe(text),
    }
)


def served(instance: Instance) -> Instance:
    """With what its models answer: each declared one may."""
    answers = tuple(ServedModel(model, "loaded") for model in instance.models[::2])
    return replace(instance, served=answers)


@given(states, few(instances.map(served), lambda i: i.ref), parts)
def test_any_state_of_a_node_keeps_to_the_schema_and_comes_back(
    state: TargetState, seen: tuple[Instance, ...], rest: dict[str, Any]
) -> None:
    answer = node_state(state, seen, agent_version="0.1", **rest)
    sent = answer.model_dump_json(by_alias=True, exclude_none=True)

    read, instances_read = read_node_state(NodeState.model_validate_json(sent))

    assert [str(error) for error in VALIDATOR.iter_errors(json.loads(sent))] == []
    assert replace(read, verdicts=None) == state
    assert set(map(in_any_order, instances_read)) == set(map(in_any_order, seen))


def in_any_order(instance: Instance) -> str:
    """The pools of what was measured have no order."""
    return repr(replace(instance, measured=tuple(sorted(instance.measured))))
