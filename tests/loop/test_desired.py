"""One revision, decided: what is held and why, and what a plan of it may say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.api.problem import Finding
from reconciler.core.observation import Instance, Location, Observation, ObservedPool, TargetState
from reconciler.core.plan import Plan
from reconciler.fleet.fleet import Fleet
from reconciler.loop.desired import CachedFacts, Desired, no_facts, used_by_others
from reconciler.memory import ModelFacts
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from tests.support.builders import GIB, instance, observed, ref
from tests.support.fleets import MemoryCheckout, document, model, node, service, small_fleet

MEMORY = {"os": "linux", "memory": "16Gi"}
SOURCE = "https://models.test/gemma.gguf"


def decided(
    files: Mapping[str, str], cached: CachedFacts = no_facts, before: Desired | None = None
) -> Desired:
    checkout = MemoryCheckout(files)
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None, loaded.problems
    return Desired.of(checkout, loaded, loaded.fleet, cached, before)


def sized(weights_bytes: int) -> CachedFacts:
    """A llama of two layers whose weights are nearly everything, for every model."""
    keys: dict[str, Any] = {
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 2,
        "llama.feed_forward_length": 128,
        "llama.context_length": 32768,
    }
    facts = ModelFacts("llama", weights_bytes, weights_bytes, 0, 20, 512, keys)
    return lambda _, models: {model.ref: facts for model in models}


def running(desired: Desired, name: str = "chat", **changes: Any) -> Instance:
    """A service as a target has it that was given exactly this."""
    every = (*desired.assignment.workloads, *desired.assignment.contested)
    of = next(w for w in every if w.ref.name == name)
    return instance(name, of, **{"pid": 7, "port": of.port, "models": ("gemma",)} | changes)


def told(plan: Plan) -> list[tuple[str, str]]:
    return [(item.ref.name, item.reason) for item in plan.blocked]


@pytest.mark.parametrize(
    ("spec", "runs", "cached", "blocked"),
    [
        pytest.param({}, None, (), True, id="it would have to be fetched"),
        pytest.param({}, {}, (), False, id="it runs from it"),
        pytest.param({}, {"gone": True}, (), True, id="it ran, and has to start again"),
        pytest.param({}, {"inputs_digest": "before"}, (), True, id="it runs as it was before"),
        pytest.param({}, None, (SOURCE,), False, id="it is on the disk"),
        pytest.param({}, None, ("https://else.where/x",), True, id="others are on the disk"),
        pytest.param({"suspend": True}, None, (), False, id="nothing is to start"),
    ],
)
def test_a_model_that_its_host_does_not_give_holds_only_what_needs_it_from_there(
    spec: dict[str, Any], runs: dict[str, Any] | None, cached: tuple[str, ...], blocked: bool
) -> None:
    desired = decided(small_fleet() | {"service.yaml": service(**spec)})
    (want,) = desired.assignment.workloads
    refused = {want.model_files[0].origin: "401: it wants a token"}
    instances = () if runs is None else (running(desired, **runs),)

    plan = desired.plan(observed(*instances, cached=frozenset(cached)), refused=refused)

    (item,) = plan.blocked if blocked else (None,)
    assert len(plan.blocked) == blocked
    if item is not None:
        assert (item.ref.name, item.reason) == ("gemma", "ModelUnavailable")
        assert (item.message, item.target) == ("401: it wants a token", "node/mac")
        assert item.holds == (ref(),)
        assert item.source == Location("model.yaml", 5, None)
        assert all(change.ref != ref() for change in plan.changes)


def test_a_model_that_its_host_does_not_give_holds_nothing_on_nodes_that_were_not_looked_at() -> (
    None
):
    desired = decided(small_fleet())
    (want,) = desired.assignment.workloads
    elsewhere = Observation({"node/pc": TargetState("node/pc", reachable=True)}, ())

    plan = desired.plan(elsewhere, refused={want.model_files[0].origin: "404"})

    assert plan.blocked == ()


PC = node("pc")


@pytest.mark.parametrize(
    ("placement", "runs_on", "looked_at", "is_said"),
    [
        pytest.param(["mac", "pc"], None, "mac", True, id="it names this node"),
        pytest.param(["pc", "box"], None, "mac", False, id="it names others"),
        pytest.param(["pc", "box"], "mac", "mac", True, id="it runs here all the same"),
        pytest.param([], None, "mac", True, id="it may mean any node"),
    ],
)
def test_what_is_held_is_said_where_it_runs_or_may_be_meant_to_run(
    placement: list[str], runs_on: str | None, looked_at: str, is_said: bool
) -> None:
    files = {"mac.yaml": node("mac"), "pc.yaml": PC, "box.yaml": node("box"), "m.yaml": model()}
    chat = service(placement={"nodes": placement}, replicas=3 if placement else 1)
    desired = decided(files | {"service.yaml": chat})
    state = TargetState(f"node/{looked_at}", reachable=True)
    runs = (instance(target=f"node/{runs_on}"),) if runs_on else ()

    plan = desired.plan(Observation({state.target: state}, runs))

    assert told(plan) == ([("chat", "PlacementNotStated")] if is_said else [])
    assert plan.changes == ()  # what is held stays as it runs
    assert all(item.holds == (ref(),) for item in plan.blocked)


def test_what_another_machine_is_held_for_is_said_here_only_where_it_runs() -> None:
    desired = decided(small_fleet())
    why = Finding("AgentTooOld", ref(), "spec.zzz", "a newer field")
    elsewhere = replace(desired.fleet, held=(why,), elsewhere=frozenset({ref()}))
    desired = Desired.of(desired.checkout, desired.loaded, elsewhere, no_facts)

    assert told(desired.plan(observed())) == []
    assert told(desired.plan(observed(instance()))) == [("chat", "AgentTooOld")]


def test_a_node_is_a_target_of_its_own_or_that_of_its_cluster() -> None:
    pool = document("FleetNode", "gpus", {"kubernetes": {"cluster": "home"}})
    desired = decided(small_fleet() | {"pool.yaml": pool})

    targets = [desired.target(name) for name in ("mac", "gpus", "left")]

    assert targets == ["node/mac", "cluster/home", "node/left"]


@pytest.mark.parametrize(
    ("runs", "says_it_stays"),
    [
        pytest.param({}, True, id="it runs as it was refused"),
        pytest.param({"inputs_digest": "before"}, False, id="it runs as it was before"),
        pytest.param({"target": "node/pc"}, False, id="on another node"),
        pytest.param({"ref": ref("other")}, False, id="another runs"),
    ],
)
def test_who_runs_where_there_is_no_room_for_all_stays_as_it_runs(
    runs: dict[str, Any], says_it_stays: bool
) -> None:
    files = {
        "node.yaml": node(hardware=MEMORY),
        "pc.yaml": PC,
        "model.yaml": model(),
        "more.yaml": model("phi"),
        "a.yaml": service("a", "phi", placement={"nodes": ["mac"]}),
        "chat.yaml": service("chat", placement={"nodes": ["mac"]}),
    }
    desired = decided(files, sized(9 * GIB))
    (admission,) = (a for a in desired.assignment.admissions if a.refused)
    refused = admission.refused[0].workload
    seen = observed(instance("chat", refused, **runs))

    item = next(item for item in desired.plan(seen).blocked if item.ref == ref())

    assert item.reason == "MemoryFits"
    assert ("it runs, and stays as it runs" in item.message) == says_it_stays


@pytest.mark.parametrize(
    ("has", "blocked", "changes"),
    [
        pytest.param({}, ["b"], [], id="it has the port"),
        pytest.param({"inputs": {}}, ["b"], ["a"], id="it has it, and is changed"),
        pytest.param({"port": 8099}, ["a", "b"], [], id="another port"),
        pytest.param({"pid": None, "reason": "PortInUse"}, ["a", "b"], [], id="it waits for it"),
        pytest.param({"target": "node/pc"}, ["a", "b"], [], id="on another node"),
    ],
)
def test_of_services_that_state_one_port_the_one_that_has_it_goes_on(
    has: dict[str, Any], blocked: list[str], changes: list[str]
) -> None:
    files = {"node.yaml": node(), "pc.yaml": PC, "model.yaml": model()}
    for name in ("a", "b"):
        stated: dict[str, Any] = {"placement": {"nodes": ["mac"]}, "endpoint": {"port": 8080}}
        files[f"{name}.yaml"] = service(name, **stated)
    desired = decided(files)
    digest = {"inputs_digest": "before"} if "inputs" in has else {}

    plan = desired.plan(
        observed(running(desired, "a", **has, **digest), cached=frozenset({SOURCE}))
    )

    assert sorted(told(plan)) == [(name, "PortConflict") for name in blocked]
    assert [change.ref.name for change in plan.changes] == changes


def test_memory_of_others_counts_on_the_nodes_that_have_any() -> None:
    def pool(name: str, others_bytes: int | None) -> ObservedPool:
        return ObservedPool(name, 16 * GIB, 15 * GIB, others_bytes)

    def state(target: str, *pools: ObservedPool) -> tuple[str, TargetState]:
        return target, TargetState(target, reachable=True, pools=pools)

    seen = Observation(
        dict(
            (
                state("node/mac", pool("host", GIB), pool("device0", None), pool("device1", 0)),
                state("node/idle", pool("host", 0)),
                state("cluster/home", pool("host", GIB)),
            )
        ),
        (),
    )

    assert used_by_others(seen) == {"mac": {"host": GIB}}


def test_what_does_not_fit_is_explained_with_what_others_take_of_the_memory() -> None:
    files = small_fleet() | {"node.yaml": node(hardware=MEMORY)}
    desired = decided(files, sized(30 * GIB))
    taken = (ObservedPool("host", 16 * GIB, 15 * GIB, 2 * GIB),)

    (alone,) = desired.plan(observed()).blocked
    (beside,) = desired.plan(observed(pools=taken)).blocked

    assert alone.reason == beside.reason == "MemoryFits"
    assert alone.message != beside.message
    assert "2.0 GiB" in beside.message


def test_who_does_not_fit_is_offered_less_of_what_it_asked_itself() -> None:
    chat, base = service("chat", contextSize=2048), service("base", contextSize=1_000_000)
    files = small_fleet() | {"node.yaml": node(hardware=MEMORY)}
    desired = decided(files | {"service.yaml": chat, "base.yaml": base}, sized(7 * GIB))
    taken = (ObservedPool("host", 16 * GIB, 15 * GIB, 2 * GIB),)

    (blocked,) = desired.plan(observed(pools=taken)).blocked

    assert blocked.ref == ref("base")
    assert "with contextSize: 32768 it fits" in blocked.message


def test_a_download_that_ended_decides_the_same_revision_anew_and_nothing_else_does() -> None:
    files = small_fleet() | {"node.yaml": node(hardware=MEMORY)}
    before = decided(files)

    same = before.refreshed(no_facts)
    known = before.refreshed(sized(30 * GIB))

    assert same is before
    assert [w.ref.name for w in before.assignment.workloads] == ["chat"]
    assert known.assignment.workloads == ()
    assert known.facts.keys() == {ObjectRef("Model", "default", "gemma")}


def test_models_whose_headers_are_in_the_repository_are_looked_for_nowhere_else() -> None:
    asked: list[list[str]] = []

    def cached(_: Fleet, models: Any) -> Any:
        asked.append([model.ref.name for model in models])
        return {}

    desired = decided(small_fleet() | {"more.yaml": model("phi")}, cached)
    facts = sized(GIB)(desired.fleet, desired.fleet.all(Model))
    replace(desired, loaded=replace(desired.loaded, facts=facts)).refreshed(cached)
    some = {r: f for r, f in facts.items() if r.name == "phi"}
    replace(desired, loaded=replace(desired.loaded, facts=some)).refreshed(cached)

    assert asked == [["gemma", "phi"], ["gemma"]]


def test_a_revision_in_the_place_of_an_observation_runs_all_that_it_declares() -> None:
    files = small_fleet() | {
        "off.yaml": service("off", suspend=True),
        "code.yaml": service("code"),
    }

    declared = decided(files).instances()

    assert [i.ref.name for i in declared] == ["chat", "code"]
    assert all(i.ready and i.target == "node/mac" and i.models == ("gemma",) for i in declared)
    assert decided(files).plan(observed(*declared)).changes == ()


@pytest.mark.parametrize(
    ("spec", "waits"),
    [
        ({"agent": {}, "drain": True}, True),
        ({"agent": {}, "drain": False}, False),
        ({"kubernetes": {"cluster": "home"}, "drain": True}, False),  # its pods are drained there
    ],
)
def test_only_machines_with_an_agent_have_their_services_kept_while_they_are_drained(
    spec: dict[str, Any], waits: bool
) -> None:
    desired = decided({"pc.yaml": document("FleetNode", "pc", spec), "model.yaml": model()})

    assert desired.policy().drained == (frozenset({"node/pc"}) if waits else frozenset())


@pytest.mark.parametrize("stated", ["enforce", "report"])
def test_the_fleets_own_rules_are_those_of_its_plans(stated: str) -> None:
    rules = {"drift": stated, "confirm": ["default/a"], "prune": {"maxCount": 3, "maxShare": 0.5}}
    desired = decided(small_fleet() | {"fleet.yaml": document("Fleet", "home", rules)})

    policy = desired.policy(("prune-1",))

    assert policy.drift_enforced == (stated == "enforce")
    assert policy.prune.confirmed == {"default/a", "prune-1"}
    assert (policy.prune.max_count, policy.prune.max_share) == (3, 0.5)
