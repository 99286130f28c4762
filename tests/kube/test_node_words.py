"""What an agent writes into a cluster, and what a plan made elsewhere reads out of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cluster.status import (
    ServiceTrouble,
    instance_entry,
    is_news,
    is_node_news,
    node_observed,
    trouble_entry,
)
from reconciler.agents.nodes import AgentReport
from reconciler.api.meta import HOLD_ANNOTATION
from reconciler.api.nodestate import NodeOverrides, NodeState
from reconciler.core.observation import (
    Drift,
    DriftKind,
    Instance,
    Location,
    ObservedPool,
    Pending,
    RevisionState,
    RuntimeFound,
    TargetState,
)
from reconciler.fleet.workload import PoolNeed
from reconciler.kube.crd.status import status_schema
from reconciler.kube.crsource.nodes import entries_by_node, heard
from reconciler.kube.endpoints.heartbeat import LeaseState, lease_name
from reconciler.kube.endpoints.heartbeats import AgentHeartbeat, Heartbeats
from reconciler.kube.endpoints.slices import NODE_LABEL
from reconciler.kube.instance_entry import pool_entry
from reconciler.kube.nearby import agents_nearby
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import MANAGED_BY_LABEL, MANAGER
from reconciler.report.nodestate import read_node_state, verdicts_of
from tests.support.builders import GIB, NODE, instance, need, ref, workload
from tests.support.cluster_views import desired
from tests.support.few_objects import FewObjects
from tests.support.fleets import node

Fields = dict[str, Any]
RENEWED = AgentHeartbeat(LeaseState.RENEWED, "2026-01-02T03:04:05Z", 1_000.0)
STALE = AgentHeartbeat(LeaseState.STALE, "2026-01-02T03:04:05Z", 900.0)
SERVICE = jsonschema_rs.validator_for(status_schema("InferenceService"))
OF_NODE = jsonschema_rs.validator_for(status_schema("FleetNode"))


def document(name: str, *entries: Mapping[str, Any]) -> Fields:
    metadata = {"name": name, "namespace": "default"}
    group = "inference.llmkube.dev/v1alpha1"
    status = {"instances": [dict(entry) for entry in entries]}
    return {
        "apiVersion": group,
        "kind": "InferenceService",
        "metadata": metadata,
        "status": status,
    }


def wrote(state: TargetState | None = None, **more: Any) -> Fields:
    """`status.observed` of the node `mac`."""
    words = {"host_ip": None, "unpublished": {}, "overrides": {}} | more
    known = state or TargetState(NODE, True, revision=RevisionState("r1", "r1"))
    return node_observed(known, known.revision or RevisionState(), agent_version="1.0", **words)


def reads(
    *documents: Fields,
    observed: Fields | None = None,
    beat: AgentHeartbeat = RENEWED,
    desired: str = "r1",
    stood: Mapping[Any, Location] | None = None,
) -> AgentReport:
    status = {"observed": wrote() if observed is None else observed}
    node = {"metadata": {"name": "mac"}, "status": {**status, "desired": {"revision": desired}}}
    return heard(node, entries_by_node(documents).get("mac", {}), beat, stood or {})


def seen(found: AgentReport) -> tuple[TargetState, tuple[Instance, ...]]:
    assert found.answer is not None, found.message
    return read_node_state(found.answer.state)


RUNNING = instance(
    of=workload(needs=need(3 * GIB, weights=(("ab" * 32, 2 * GIB),))),
    pid=17,
    port=20_001,
    endpoint="http://192.0.2.7:20001",
    since=1_700_000_000.0,
    models=("gemma",),
    measured=(("host", 3 * GIB),),
    drifts=(Drift(DriftKind.DEFERRED, "built by an older engine", 1_700_000_100.0),),
    pending=Pending("DownloadFailed", "models.test gives 404"),
)


def test_a_service_is_read_as_its_node_runs_it() -> None:
    entry = instance_entry(RUNNING, "mac", "r1")

    stood = {ref(): Location("services/chat.yaml", 1, None)}
    _, (read,) = seen(reads(document("chat", entry), stood=stood))

    assert read == replace(RUNNING, render_digest=None, source=stood[ref()])
    assert list(SERVICE.iter_errors({"instances": [entry]})) == []


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_somebody_annotated_is_the_fleets_word_only_in_documents_of_another_program(
    is_ours: bool,
) -> None:
    declared = workload()
    held = replace(declared, lifecycle={**declared.lifecycle, "hold": "true"})
    live = document("chat", instance_entry(instance(of=held), "mac", "r1"))
    live["metadata"]["annotations"] = {HOLD_ANNOTATION: "true"}
    live["metadata"]["labels"] = {MANAGED_BY_LABEL: MANAGER} if is_ours else {}

    _, (read,) = seen(reads(live))

    assert read.inputs_digest == (declared if is_ours else held).inputs_digest


def test_a_node_is_read_as_its_agent_sees_it() -> None:
    state = TargetState(
        NODE,
        True,
        seen_at=1_000.0,
        missing={"mlx-server": "pip install mlx-lm"},
        runtimes=(RuntimeFound("llama-server", ""),),
        pools=(ObservedPool("unified", 16 * GIB, 10 * GIB, GIB),),
        revision=RevisionState("r2", "r1", "r2", ("x.yaml:1 is wrong",), "waits for a person"),
        stopped={ref(): "0" * 64},
    )
    observed = wrote(state)

    read, _ = seen(reads(observed=observed))

    assert read == state
    assert list(OF_NODE.iter_errors({"observed": observed})) == []


def test_a_service_that_is_not_run_as_declared_says_why() -> None:
    full = ServiceTrouble(ref(), "MemoryFits", "needs 9 GiB of 8")
    waits = trouble_entry(ServiceTrouble(ref("embed"), "MemoryFits", "needs 9 GiB of 8"), "mac")

    found = reads(
        document("chat", instance_entry(RUNNING, "mac", "r1", full)), document("embed", waits)
    )

    assert found.answer is not None
    why = ("MemoryFits", "needs 9 GiB of 8")
    assert verdicts_of(found.answer.state) == {ref(): why, ref("embed"): why}
    assert [i.ref for i in seen(found)[1]] == [ref()]


def test_only_its_own_entries_are_a_nodes() -> None:
    other = instance_entry(RUNNING, "studio", "r1")
    of_pods = pool_entry("mac", 12.5)  # left of a time when a pool had that name

    found = reads(document("chat", other, of_pods))

    assert seen(found)[1] == ()
    assert found.answer is not None
    assert found.answer.state.blocked == ()


def test_how_fast_a_service_writes_is_read_with_the_rest() -> None:
    found = reads(document("chat", instance_entry(RUNNING, "mac", "r1", speed=12.5)))

    assert found.answer is not None
    assert [i.tokens_per_second for i in found.answer.state.instances] == [12.5]


def test_a_node_whose_lease_is_stale_is_not_known_and_since_when() -> None:
    found = reads(document("chat", instance_entry(RUNNING, "mac", "r1")), beat=STALE)

    assert found.answer is None
    assert found.seen_at == 900.0
    assert "was heard of last at 2026-01-02T03:04:05Z" in found.message


def test_an_agent_that_said_nothing_yet_is_not_a_node_without_services() -> None:
    assert reads(observed={}).answer is None
    assert heard(None, {}, RENEWED, {}).answer is None
    assert heard(None, {}, None, {}).seen_at is None


def test_where_kinds_are_not_installed_a_node_with_a_lease_is_told_that_and_no_other_one() -> None:
    """Its FleetNode went with the definition, and so all that said that it is near."""
    metadata = {"name": lease_name("mac"), "labels": {NODE_LABEL: "mac"}}
    lease = {"kind": "Lease", "metadata": metadata, "spec": {"renewTime": "2026-01-02T03:04:05Z"}}
    hardware: dict[str, Any] = {"memory": "8Gi"}
    want = desired(
        {f"{name}.yaml": node(name, agent={}, hardware=hardware) for name in ("mac", "elsewhere")}
    )

    with FewObjects([lease]) as server:
        words = (Heartbeats(server.api), "prod", want, ObjectSet({}), {})
        found = agents_nearby(*words, not_installed="FleetNode is not installed")

    told = found.report("mac")
    assert told
    assert "FleetNode is not installed" in told.message
    assert found.report("elsewhere") is None


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("r1", "r1"),
        ("r1+objects.0123abcd", "r1"),
        ("r1+dirty.0123abcd", "r1"),
        ("r0", "r0"),
        ("r10", "r10"),
    ],
)
def test_a_revision_that_the_agent_marked_is_the_one_that_it_was_given(
    said: str, read: str
) -> None:
    observed = wrote(TargetState(NODE, True, revision=RevisionState(said, said)))

    revision = seen(reads(observed=observed))[0].revision

    assert revision == RevisionState(read, read)


def test_inputs_that_are_too_long_are_left_out_and_known_by_their_digest() -> None:
    long = workload(settings={"extraArgs": ["--x" * 20_000]})
    entry = instance_entry(instance(of=long), "mac", "r1")

    (read,) = seen(reads(document("chat", entry)))[1]

    assert "inputs" not in entry
    assert read.inputs_digest == long.inputs_digest


def test_an_estimate_is_whole_or_absent() -> None:
    many = tuple((f"{i:064}", 1) for i in range(513))
    large = instance(of=workload(needs=(PoolNeed("host", 513, GIB, many),)))

    assert "needs" not in instance_entry(large, "mac", "r1")


@pytest.mark.parametrize(("moved", "news"), [(GIB, False), (2 * GIB, True)])
def test_what_others_take_is_written_when_it_moved_far(moved: int, *, news: bool) -> None:
    def observed(used: int) -> Fields:
        pools = (ObservedPool("unified", 16 * GIB, 10 * GIB, used),)
        return wrote(TargetState(NODE, True, pools=pools))

    assert is_node_news(observed(GIB), observed(GIB + moved)) is news


def test_an_entry_is_written_again_when_its_process_is_another() -> None:
    before = instance_entry(RUNNING, "mac", "r1")

    assert not is_news(before, instance_entry(RUNNING, "mac", "r2"))
    assert is_news(before, instance_entry(replace(RUNNING, pid=18), "mac", "r1"))


@pytest.mark.parametrize(
    ("was", "is_now", "since_s", "news"),
    [
        (None, 0.0, 0.0, True),
        (12.5, None, 0.0, True),
        (12.5, 0.0, 0.0, True),
        (0.0, 12.5, 59.0, False),
        (0.0, 12.5, 60.0, True),
        (10.0, 20.0, 59.0, False),
        (10.0, 20.0, 60.0, True),
        (20.0, 19.0, 3600.0, False),
        (0.0, 0.0, 3600.0, False),
    ],
)
def test_a_speed_is_written_when_it_begins_ends_or_has_changed_for_a_minute(
    was: float | None, is_now: float | None, since_s: float, *, news: bool
) -> None:
    before = instance_entry(RUNNING, "mac", "r1", speed=was)
    after = instance_entry(RUNNING, "mac", "r1", speed=is_now)

    assert is_news(before, after, since_s) is news


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
_OBSERVED = ("revision", "fetched", "refused", "held", "overrides", "missing", "runtimes", "pools")
_ENTRY = ("inputs", "needs", "drift", "blocked", "pid", "since", "memory", "reason", "runtime")


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys((*_OBSERVED, "stopped"), junk)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(_ENTRY, junk)),
)
def test_whatever_stands_in_a_status_is_an_answer_or_none(observed: Fields, entry: Fields) -> None:
    words = {"node": "mac", "ready": True, "inputsDigest": "0" * 64} | entry

    found = reads(document("chat", words), observed={"agentVersion": "1.0"} | observed)

    assert found.answer is not None or found.message


@pytest.mark.parametrize("name", ["overrides", "said"])
def test_what_is_stated_on_a_machine_is_read_by_its_name_and_by_its_older_one(name: str) -> None:
    observed = wrote(TargetState(NODE, True), overrides={"memoryFraction": 0.5})
    older = {name if key == "overrides" else key: value for key, value in observed.items()}

    report = reads(observed=older)

    assert report.answer
    assert report.answer.state.overrides == NodeOverrides(memory_fraction=0.5)
    stated = {
        "node": "mac",
        "agentVersion": "0.1",
        "observedAt": 1.0,
        name: {"memoryFraction": 0.5},
    }
    assert NodeState.model_validate(stated).overrides == report.answer.state.overrides
