"""LLMKube's ModelPool, which becomes a service of ours, and its ModelRouter, which does not."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.api.problem import Severity
from reconciler.placement.assignment import assign
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import Loaded, load
from reconciler.source.slice import each_alone
from tests.capacity.test_pools import LARGE
from tests.support.fleets import MemoryCheckout, document, model, node, service

_CODER = "1.yaml"  # where the second member is


def pool(*names: str, **spec: Any) -> str:
    members = [{"inferenceServiceRef": {"name": name}} for name in names]
    return document("ModelPool", "slot", {"members": members, **spec})


def router(*backends: dict[str, Any], **spec: Any) -> str:
    return document("ModelRouter", "front", {"backends": list(backends), **spec})


def loaded(*texts: str, judge: dict[str, Any] | None = None, **coder: Any) -> Loaded:
    """Two services, each with a model of its own, and what is given."""
    judge = {"modelRef": "judge-8b", **(judge or {})}
    services = [service("judge", None, **judge), service("coder", "coder-9b", **coder)]
    both = [*services, model("judge-8b"), model("coder-9b"), node(), *texts]
    files = {f"{index}.yaml": text for index, text in enumerate(both)}
    return load(MemoryCheckout(files), RUNTIMES)


def the_pool(revision: Loaded) -> InferenceService:
    assert not revision.errors, revision.errors
    assert revision.fleet
    (made,) = revision.fleet.all(InferenceService)
    assert made.metadata.name == "slot"
    return made


def test_a_pool_is_one_service_that_serves_the_models_of_its_members_in_turn() -> None:
    judge = {"contextSize": 4096, "replicas": 0, "devices": 2}

    revision = loaded(
        pool("judge", "coder", default="coder", swapPolicy="sticky", swapBudget="300s", gpu=1),
        judge=judge,
        extraArgs=["--temp", "0.3"],
    )

    made = the_pool(revision).spec
    assert (made.runtime, made.router.resident, made.replicas) == ("llamacpp-router", 1, 1)
    assert [(m.name, m.context_size, m.extra_args, m.preload) for m in made.models or ()] == [
        ("judge-8b", 4096, (), False),
        ("coder-9b", None, ("--temp", "0.3"), True),
    ]
    assert made.devices == 2
    assert not [p for p in revision.problems if p.path == "5.yaml"]
    assert revision.origins[the_pool(revision).ref].path == "5.yaml"
    assert revision.files["5.yaml"] == (the_pool(revision).ref,)


@pytest.mark.parametrize(
    ("spec", "judge", "rule", "says"),
    [
        ({"gpu": 2}, {}, "FieldAnswered", "how many devices"),
        ({"swapBudget": "900s"}, {}, "FieldAnswered", "as long as its model takes to load"),
        ({}, {"image": "a/b:1"}, "FieldIgnored", "image of coder has no effect"),
        ({}, {"promptCache": "1Gi"}, "FieldIgnored", "promptCache of coder"),
    ],
)
def test_what_a_pool_does_otherwise_is_said_at_its_line(
    spec: dict[str, Any], judge: dict[str, Any], rule: str, says: str
) -> None:
    other = {"image": "a/b:2", "promptCache": "2Gi"}

    revision = loaded(
        pool("judge", "coder", **spec), judge=judge, **{key: other[key] for key in judge}
    )

    assert the_pool(revision)
    (problem,) = (p for p in revision.problems if p.path == "5.yaml")
    assert (problem.rule, says in problem.message) == (rule, True), problem


@pytest.mark.parametrize(
    ("text", "judge", "field", "says"),
    [
        (pool("judge", "codr"), {}, "spec.members[1]", 'no InferenceService named "codr"'),
        (pool("judge", "judge"), {}, "spec.members[1]", "a member twice"),
        (pool("judge", "coder", default="x"), {}, "spec.default", "one of judge, coder"),
        (pool("judge", "coder"), {"modelRef": "coder-9b"}, "spec.members[1]", "as judge does"),
        (pool(), {}, "spec.members", ""),
        (pool("judge", "coder", swapPolicy="lifo"), {}, "spec.swapPolicy", "sticky"),
        (pool("judge", "coder", swapbudget="1s"), {}, "spec.swapbudget", "swapBudget"),
        (
            pool("judge").replace('"slot"', '"coder"'),
            {},
            "metadata.name",
            "a service that is no member",
        ),
        (
            f"{pool('judge', 'coder')}---\n{pool('judge').replace('slot', 'other')}",
            {},
            "spec.members[0]",
            "a member of slot too",
        ),
    ],
)
def test_a_pool_with_a_mistake_is_refused_at_its_line_and_holds_its_members(
    text: str, judge: dict[str, Any], field: str, says: str
) -> None:
    revision = loaded(text, judge=judge)

    (problem, *members) = sorted(revision.errors, key=lambda p: p.path != "5.yaml")
    assert problem.path == "5.yaml"
    assert problem.field.startswith(field)
    assert says in problem.message
    assert {p.path for p in members} <= {"0.yaml", _CODER}
    followed = each_alone(revision, None).fleet
    assert followed
    named = {m.ref for m in members}
    assert {problem.ref, *named} <= {finding.ref for finding in followed.held}


def test_a_pool_with_another_engine_leaves_its_members_as_they_are_declared() -> None:
    spec = {"default": "coder", "swapBudget": "900s", "gpu": 1, "nodeSelector": {"gpu": "big"}}

    revision = loaded(pool("judge", "coder", **spec), judge={"runtime": "vllm"})

    assert revision.fleet is not None
    assert {s.metadata.name for s in revision.fleet.all(InferenceService)} == {"judge", "coder"}
    said = {p.field: (p.severity, p.message) for p in revision.problems if p.path == "5.yaml"}
    assert {field: severity for field, (severity, _) in said.items()} == {
        "spec.members[0].inferenceServiceRef.name": Severity.WARNING,
        "spec.default": Severity.NOTE,
        "spec.swapBudget": Severity.NOTE,
        "spec.nodeSelector": Severity.WARNING,
    }
    assert "has runtime vllm" in said["spec.members[0].inferenceServiceRef.name"][1]
    assert "write it in each member" in said["spec.nodeSelector"][1]


def test_a_pool_with_another_engine_and_a_mistake_holds_its_members() -> None:
    """Whoever mends the mistake sees at once that there is no pool then."""
    revision = loaded(pool("judge", "coder", default="x"), judge={"runtime": "vllm"})

    assert revision.fleet is None
    assert {(p.path, p.field) for p in revision.errors} == {
        ("5.yaml", "spec.default"),
        ("0.yaml", "metadata.name"),
        (_CODER, "metadata.name"),
    }
    assert "spec.members[0].inferenceServiceRef.name" in {p.field for p in revision.problems}


@pytest.mark.parametrize(
    ("memory", "together", "rules"),
    [("48Gi", True, []), ("48Gi", False, ["MemoryFits"]), ("8Gi", True, ["MemoryFits"])],
)
def test_a_pool_takes_the_memory_of_its_largest_member(
    memory: str, *, together: bool, rules: list[str]
) -> None:
    """Members that do not fit together are what a pool is for; one that never fits alone holds
    it before anything stops."""
    texts = [node("box", hardware={"memory": memory}), model("judge-8b"), model("coder-9b")]
    texts += [service("judge", "judge-8b"), service("coder", "coder-9b")]
    texts += [pool("judge", "coder")] if together else []
    files = {f"{index}.yaml": text for index, text in enumerate(texts)}
    revision = load(MemoryCheckout(files), RUNTIMES)
    assert revision.fleet, revision.problems
    known = {ObjectRef("Model", "default", name): LARGE for name in ("judge-8b", "coder-9b")}

    holds = assign(revision.fleet, known).holds

    assert [hold.finding.rule for hold in holds] == rules


def test_a_router_is_read_and_each_part_of_it_answered() -> None:
    local = {"name": "local", "inferenceServiceRef": {"name": "judge"}, "tier": "local"}
    gone = {"name": "gone", "inferenceServiceRef": {"name": "jugde"}}
    cloud = {"name": "cloud", "external": {"provider": "openai", "model": "gpt-5"}}
    rule = {"name": "pii", "match": {"dataClassification": ["pii"]}, "failClosed": True}

    revision = loaded(
        router(local, gone, cloud, defaultRoute="else", rules=[rule]), pool("judge", "coder")
    )

    assert the_pool(revision)
    said = {p.field: (p.severity, p.message) for p in revision.problems if p.path == "5.yaml"}
    assert {field: severity for field, (severity, _) in said.items()} == {
        "spec.backends[0].inferenceServiceRef.name": Severity.NOTE,
        "spec.backends[1].inferenceServiceRef.name": Severity.WARNING,
        "spec.backends[2].external": Severity.WARNING,
        "spec.defaultRoute": Severity.WARNING,
        "spec.rules[0]": Severity.WARNING,
    }
    assert "ask slot, the pool of judge" in said["spec.backends[0].inferenceServiceRef.name"][1]
    assert "failClosed" in said["spec.rules[0]"][1]


def test_a_service_outside_pools_stays_the_object_that_it_was() -> None:
    with_pool, without = loaded(pool("judge")), loaded()
    ref = ObjectRef("InferenceService", "default", "coder")

    assert with_pool.standing.objects[ref] == without.standing.objects[ref]
