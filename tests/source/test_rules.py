"""The rule table: every rule of the loader fires, and none fires for a fleet that is right."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.meta import GROUP
from reconciler.api.problem import RULES
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from reconciler.source.own_names import READ, WRITTEN
from reconciler.source.suggest import closest, did_you_mean
from tests.support.fleets import MemoryCheckout, document, load_texts, model, node, service

CASES = Path(__file__).parents[1] / "cases" / "invalid"
OF_PLACEMENT = {  # what only a node can decide: reconciler.placement
    "PlacementNotStated",
    "NodeUnavailable",
    "NodeCapability",
    "FormatMismatch",
    "DraftMismatch",
    "ProjectorMismatch",
    "PortConflict",
    "MemoryFits",
    "ModelNotReachable",
    "MemoryUnknown",
    "MemoryOverridden",
    "ContextTooLong",
    "NoChatTemplate",
    "SizeUnknown",
    "PoolFull",
    "DeviceShared",  # by test_pods
    "ObjectName",
    "CacheNotShared",
    "HostCacheRefused",
    "DefaultTaken",  # by test_defaults
    "ImageMismatch",
    "LoadUnmeasured",  # by test_load
    "DevicesUnknown",  # by test_gpus
    "HeaderNeeded",  # by test_counting
    "NumberCounted",
}
IN_CODE = {
    "FileUnreadable",  # shown by test_documents and test_load: no YAML file
    "HeaderLost",
    "TooLarge",  # by test_tenants: an object of a cluster
    "NothingToCheck",  # by test_cli: there is no file
    "AgentTooOld",  # by test_slice
    "NoNodeSelected",  # by test_cluster_rights: a cluster is asked
    "ClaimIsShared",
    "InternalError",  # by test_internal_errors: a bug in this program
    "NotFollowed",  # by the tests of links and submodules: a work tree has them, and no case
}


def rules(*texts: str) -> list[tuple[str, str]]:
    return [(p.rule, p.field) for p in load_texts(*texts).problems]


def test_every_rule_of_the_loader_has_a_case() -> None:
    shown = "".join(path.read_text() for path in CASES.glob("*/expected.txt"))

    missing = [id for id in RULES if f" {id})" not in shown]
    assert set(missing) <= OF_PLACEMENT | IN_CODE


def test_a_right_fleet_breaks_no_rule() -> None:
    router = service("r", None, runtime="llamacpp-router", models=[{"name": "gemma"}])

    assert rules(node(), model(), service(), router) == []


def test_a_reference_stays_in_its_namespace() -> None:
    far = document("InferenceService", "chat", {"modelRef": "gemma"}, namespace="team")

    assert rules(node(), model(), far) == [("DanglingReference", "spec.modelRef")]


@pytest.mark.parametrize("default", [None, "llama-server"])
def test_arguments_are_judged_by_the_default_runtime(default: str | None) -> None:
    spec = {"defaultRuntime": default} if default else {}
    chat = service(extraArgs=["--rpc", "x"], placement={"nodes": ["mac"]})

    assert rules(node(**spec), model(), chat) == [("ForbiddenFlag", "spec.extraArgs[0]")]


def test_a_nodes_default_runtime_judges_what_a_service_leaves_open() -> None:
    chat = service(extraArgs=["--verbose-prompt"], placement={"nodes": ["mac"]})

    under_mlx = rules(node(defaultRuntime="mlx-server"), model(), chat)

    assert ("ForbiddenFlag", "spec.extraArgs[0]") in under_mlx


def test_a_runtimes_own_check_is_asked() -> None:
    from reconciler.api.problem import Finding

    row = replace(
        RUNTIMES["llama-server"],
        check=lambda s: (Finding("NameNotRoutable", s.ref, "spec.modelRef", "not today"),),
    )
    files = {"m.yaml": model(), "s.yaml": service()}

    loaded = load(MemoryCheckout(files), {**RUNTIMES, "llama-server": row})

    assert [(p.rule, p.message) for p in loaded.problems] == [("NameNotRoutable", "not today")]


def test_sources_are_judged_by_the_table_that_is_given() -> None:
    files = {"m.yaml": model(source="s3://x/y.gguf")}

    loaded = load(MemoryCheckout(files), RUNTIMES, check_source=lambda source: None)

    assert loaded.problems == ()


@pytest.mark.parametrize(
    ("nodes", "wrong"),
    [
        (["mac"], False),
        (["mac", "pc"], False),
        (["pool"], False),
        (["mac", "pool"], True),
        (["pool", "pool2"], True),
    ],
)
def test_a_placement_is_agent_nodes_or_one_pool(nodes: list[str], wrong: bool) -> None:
    pools = [document("FleetNode", name, {"kubernetes": {}}) for name in ("pool", "pool2")]
    chat = service(placement={"nodes": nodes})

    found = rules(node("mac"), node("pc"), *pools, model(), chat)

    assert found == ([("PlacementMixed", "spec.placement.nodes")] if wrong else [])


def test_options_of_an_unnamed_runtime_are_checked_too() -> None:
    assert rules(node(), model(), service(runtimeOptions={"embeddings": True})) == []
    assert rules(node(), model(), service(runtimeOptions={"embeddings": "x", "y": 1})) == [
        ("RuntimeOptions", "spec.runtimeOptions.embeddings"),
        ("RuntimeOptions", "spec.runtimeOptions.y"),
    ]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("contextsize", "contextSize"),
        ("CONTEXT_SIZE", "contextSize"),
        ("modleRef", "modelRef"),
        ("zzz", None),
    ],
)
def test_a_suggestion_is_near_or_absent(wrong: str, right: str | None) -> None:
    assert closest(wrong, ["contextSize", "modelRef", "models"]) == right


def test_suggestions_among_very_many_names_stay_quick_and_right() -> None:
    names = [f"model-{n:05}" for n in range(20_000)]

    assert did_you_mean("model-0123", names) != ""
    assert closest("modle-04321", names) == "model-04321"
    for wrong, right, is_near in (
        ("zap-sxort", "zip-SHORT", True),  # only ends alike
        ("quortz-l0ng", "QUARTZ-long", True),  # only begins alike
        ("quatz-long", "QUARTZ-long", True),
        ("zebra-x", "zebra-xtra", True),
        ("zebra-x", "zebra-xtras", False),  # too long
    ):
        assert closest(wrong, [*names, right]) == (right if is_near else None)


@pytest.mark.parametrize("value", [1, None, "", "x" * 101])
def test_nothing_is_suggested_for_what_is_no_name(value: Any) -> None:
    assert did_you_mean(value, ["x" * 100]) == ""
    assert closest("x" * 100, ["X" * 100]) == "X" * 100


@pytest.mark.parametrize(
    ("requirement", "fits"),
    [
        (">=0.0.1", True),
        (">=99", False),
        ("<99, >=0", True),
        (">=0.1,!=0.1.0", False),
        ("~=0.1", True),
        ("~=1.0", False),
        ("~=0.0.1", False),
        ("~=1", False),
        ("==0.1", True),
    ],
)
def test_a_required_version_means_what_pep_440_says(requirement: str, fits: bool) -> None:
    fleet = document("Fleet", "home", {"requires": requirement})

    assert rules(fleet) == ([] if fits else [("VersionRequired", "spec.requires")])


def test_a_clusters_secret_is_of_no_use_where_only_agents_fetch_the_model() -> None:
    secret = model(sourceSecretRef={"name": "hub-token"})
    pool = document("FleetNode", "pool", {"kubernetes": {"cluster": "prod"}})
    by_agent = service("a", placement={"nodes": ["mac"]})
    by_pods = service("b", placement={"nodes": ["pool"]})

    warned = [("FieldIgnored", "spec.sourceSecretRef")]
    assert rules(node(), secret, by_agent) == warned
    assert rules(node(), pool, secret, by_agent, by_pods) == []
    assert rules(pool, secret, by_pods) == []
    assert rules(pool, secret) == []


def test_how_to_measure_a_service_has_an_effect_on_machines_and_in_clusters() -> None:
    pool = document("FleetNode", "pool", {"kubernetes": {"cluster": "prod"}})
    measured = {"benchmark": {"iterations": 3}}

    by_agent = service("a", placement={"nodes": ["mac"]}, **measured)
    by_pods = service("b", placement={"nodes": ["pool"]}, **measured)
    assert rules(node(), model(), by_agent) == []
    assert rules(pool, model(), by_pods) == []


def test_the_cost_of_a_node_counts_in_a_cluster_alone() -> None:
    pool = document("FleetNode", "pool", {"kubernetes": {"cluster": "prod"}, "costPerHour": 0.5})
    machine = document("FleetNode", "mac", {"agent": {}, "costPerHour": 0.5})

    assert rules(pool) == []
    assert rules(machine) == [("FieldIgnored", "spec.costPerHour")]


def test_no_name_that_we_write_ourselves_is_unknown_to_the_rules() -> None:
    """Else a document that `kubectl get -o yaml` printed would be warned of."""
    root = Path(__file__).parents[2]
    texts = (
        p.read_text() for folder in ("reconciler", "agent") for p in (root / folder).rglob("*.py")
    )
    names = {name for text in texts for name in re.findall(r'f"\{GROUP\}/([a-z-]+)"', text)}

    assert {"applied", "memory-budget"} <= names
    assert {f"{GROUP}/{name}" for name in names} <= WRITTEN | set(READ)
