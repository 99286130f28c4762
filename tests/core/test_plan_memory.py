"""What a plan says of a service that its node's memory does not take, and what would help."""

from __future__ import annotations

from pathlib import Path

from reconciler.api.inferenceservice import InferenceService
from reconciler.core.observation import Instance, Observation, ObservedPool, TargetState
from reconciler.core.plan import Plan
from reconciler.loop.desired import Desired, no_facts, used_by_others
from reconciler.placement.explanation import explain_service
from reconciler.runtimes import RUNTIMES
from reconciler.source.directory import DirectorySource
from reconciler.source.load import load
from tests.support.builders import GIB
from tests.support.fleets import model, node, service, write_fleet
from tests.support.gguf_models import tiny_llama

MIB = 2**20


def desired(root: Path, *services: str, context: int = 65536) -> Desired:
    """A machine of 4 GiB; 65536 tokens take 1 GiB of keys and values."""
    write_fleet(
        root,
        {
            "node.yaml": node("mac", hardware={"memory": "4Gi"}),
            "model.yaml": model("big", source="big.gguf"),
            **{f"{name}.yaml": service(name, "big", contextSize=context) for name in services},
        },
    )
    tiny_llama(root / "big.gguf", layers=16, heads=8, kv_heads=8, embedding=256)
    checkout = DirectorySource(root).fetch()
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None, loaded.problems
    return Desired.of(checkout, loaded, loaded.fleet, no_facts)


def plan(wanted: Desired, others: int, *running: Instance, largest: str = "") -> Plan:
    return wanted.plan(Observation({"node/mac": machine(others, largest)}, running))


def machine(others: int, largest: str = "") -> TargetState:
    pool = ObservedPool("host", 4 * GIB, int(4 * GIB * 0.67), others, largest)
    return TargetState("node/mac", reachable=True, pools=(pool,))


def test_a_refusal_for_memory_in_use_has_the_arithmetic_and_the_smallest_ways_out(
    tmp_path: Path,
) -> None:
    wanted = desired(tmp_path, "chat")

    (free,), (refused,) = plan(wanted, 0).changes, plan(wanted, 2 * GIB).blocked
    named = plan(wanted, 2 * GIB, largest="pid 71 (browser), 1.9 GiB").blocked[0]

    assert free.ref == refused.ref
    assert refused.reason == "MemoryFits"
    assert refused.message.startswith("needs 1.4 GiB of host memory, 696 MiB are free")
    assert (
        "(4.0 GiB x 0.67 = 2.7 GiB budget, 2.0 GiB in use by other processes); " in refused.message
    )
    assert "; with contextSize: 8192 it fits (432 MiB in all); or with" in refused.message
    assert "; or with cacheTypeK: q4_0 and cacheTypeV: q4_0 it fits" in refused.message
    assert refused.message.endswith("; or free 700 MiB of what others use there")
    assert named.message.endswith(" others use there (the largest: pid 71 (browser), 1.9 GiB)")


def test_beside_what_runs_the_neighbours_are_named_and_may_be_suspended(tmp_path: Path) -> None:
    both = desired(tmp_path, "a", "b", context=32768)
    (first, _) = both.instances()

    made = plan(both, 1536 * MIB, first)

    (refused,) = made.blocked
    assert refused.ref.name == "b"
    assert "846 MiB taken by default/a, 1.5 GiB in use by other processes); " in refused.message
    assert "; or suspend one of them; or free " in refused.message
    assert "with contextSize: 4608 it fits (372 MiB in all); " in refused.message


def test_what_no_budget_holds_is_refused_alike_by_plan_and_explain_with_others_counted_in(
    tmp_path: Path,
) -> None:
    wanted = desired(tmp_path, "chat", context=8192 * 64)
    observed = Observation({"node/mac": machine(others=2 * GIB)}, ())
    (chat,) = wanted.fleet.all(InferenceService)
    asked = (chat, wanted.fleet, wanted.facts, wanted.assignment)

    (refused,) = wanted.plan(observed).blocked
    there = explain_service(*asked, used_by_others(observed))
    elsewhere = explain_service(*asked)

    assert "696 MiB are free" in refused.message
    assert "; with contextSize: 8192 it fits (432 MiB in all)" in refused.message
    assert there.held == (f"MemoryFits: {refused.message}",)
    assert there.verdicts[0].reasons == (refused.message,)
    assert "2.7 GiB are free" in elsewhere.held[0]
