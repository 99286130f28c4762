"""An agent's own slice of a revision with errors: what it holds, what it goes on with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.placement.assignment import Assignment
from reconciler.source.directory import DirectorySource
from tests.support.fleets import MemoryCheckout, document, model, node, service
from tests.support.slices import NODE, applied, cases, decided, plan_of, read_slice, told

CASES = Path(__file__).parents[1] / "cases" / "slice"
UPDATE = "FLEET_UPDATE_CASES"  # =1 writes what is told now as expected; look at the diff


@pytest.mark.parametrize("case", cases(CASES))
def test_a_node_takes_a_revision_with_errors_as_expected(case: str) -> None:
    folder = CASES / case

    said = told(
        DirectorySource(folder / "before").fetch(), DirectorySource(folder / "after").fetch()
    )

    expected = folder / "expected.txt"
    if os.environ.get(UPDATE):
        expected.write_text(said)
    assert said == expected.read_text(), f"{UPDATE}=1 updates it"


FAR = {"nodes": ["pc"]}
OURS = {
    "mac.yaml": document(
        "FleetNode", "mac", {"agent": {}, "defaultRuntime": "llama-server"}, labels={"site": "lab"}
    ),
    "gemma.yaml": model("gemma"),
    "chat.yaml": service("chat", placement={"nodes": ["mac"]}),
    "any.yaml": service("any", placement={"nodeSelector": {"site": "lab"}}),
    "router.yaml": service(
        "router",
        None,
        runtime="llamacpp-router",
        models=[{"name": "gemma"}],
        placement={"nodes": ["mac"]},
    ),
    "fleet.yaml": document("Fleet", "home", {"allowedHosts": ["models.test"]}),
}
THEIRS = {
    "pc.yaml": node("pc", runtimes=["llama-server"]),
    "qwen.yaml": model("qwen"),
    "far.yaml": service("far", "qwen", placement=FAR),
    "both.yaml": service("near", "qwen", placement=FAR) + "---\n" + model("tiny"),
}
PLANTED = {
    "an unknown field": lambda text: text + "  zzz: 1\n",
    "a misspelt field": lambda text: text + "  placemnt: 1\n",
    "a syntax error": lambda text: text + "  x: [\n",
    "a repeated key": lambda text: text + "  y: 1\n  y: 2\n",
    "a lost header": lambda text: "",
    "bytes that are no text": lambda text: text.encode() + b"# \xff\n",
    "a nest too deep": lambda text: text + "  x: " + "[" * 300 + "]" * 300 + "\n",
    "an unknown version": lambda text: text.replace("v1alpha1", "v9"),
    "a misspelt version": lambda text: text.replace("v1alpha1", "alpha1"),
    "an unknown kind": lambda text: text.replace("kind: ", "kind: Zzz"),
    "no kind": lambda text: text.replace("kind: ", "king: "),
    "no name": lambda text: text.replace('"name"', '"title"'),
    "metadata that are none": lambda text: text.replace("metadata: ", "metadata: 3 #"),
    "a spec that is none": lambda text: text.replace("spec:", "spec: 3\nspecs:"),
    "a dangling reference": lambda text: text.replace('"qwen"', '"nobody"'),
    "another node": lambda text: text.replace('"pc"', '"nowhere"'),
    "a forbidden flag": lambda text: text + '  extraArgs: ["--rpc", "x"]\n',
    "a source that is none": lambda text: text.replace("https://", "nothing://"),
    "itself twice": lambda text: text + "---\n" + text,
    "a list": lambda text: "apiVersion: v1\nkind: List\nitems:\n- " + text.replace("\n", "\n  "),
}


def own(assignment: Assignment) -> list[object]:
    return [workload for workload in assignment.workloads if workload.node == NODE]


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(THEIRS)), st.sampled_from(sorted(PLANTED))))
def test_no_error_in_another_nodes_documents_changes_anything_here(wrong: dict[str, str]) -> None:
    before = MemoryCheckout(OURS | THEIRS)
    first = read_slice(before, None)
    running = decided(before, first)
    theirs = {ref for path in THEIRS for ref in first.files[path]}
    planted = {path: PLANTED[what](THEIRS[path]) for path, what in wrong.items()}
    after = MemoryCheckout(OURS | THEIRS | planted)

    second = read_slice(after, applied(first))
    third = read_slice(after, applied(second))  # the same after a restart

    for loaded in (second, third):
        desired = decided(after, loaded)
        assert own(desired.assignment) == own(running.assignment)
        made = plan_of(desired, running)
        held = {ref for item in made.blocked for ref in (item.ref, *item.holds)}
        assert made.changes == ()
        assert held.isdisjoint(first.standing.objects.keys() - theirs)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(OURS)), st.sampled_from(sorted(PLANTED)), min_size=1))
def test_no_error_in_its_own_documents_stops_or_changes_anything_that_runs(
    wrong: dict[str, str],
) -> None:
    before = MemoryCheckout(OURS | THEIRS)
    first = read_slice(before, None)
    running = decided(before, first)
    planted = {path: PLANTED[what](OURS[path]) for path, what in wrong.items()}
    after = MemoryCheckout(OURS | THEIRS | planted)

    second = read_slice(after, applied(first))
    third = read_slice(after, applied(second))

    for loaded in (second, third):
        made = plan_of(decided(after, loaded), running)
        assert made.changes == ()
        assert sum(made.unchanged.values()) == len(own(running.assignment))
