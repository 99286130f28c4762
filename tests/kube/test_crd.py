"""The custom resource definitions: fresh, small, without defaults, and drawn from the kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from reconciler.api.kinds import KINDS
from reconciler.kube.crd.definitions import crd, crd_files, crds
from reconciler.kube.crd.structural import structural
from reconciler.runtimes import RUNTIMES
from reconciler.source.documents import read_documents

SCHEMAS = Path(__file__).parents[2] / "schemas"
ANNOTATION_LIMIT = 262_144  # bytes that client-side `kubectl apply` can keep of an object
BUDGET = 64_000  # with what LLMKube alone has; its own definition takes 224,098


def spec_of(made: dict[str, Any]) -> dict[str, Any]:
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec: dict[str, Any] = schema["properties"]["spec"]
    return spec


def parts_of(node: object) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for item in inside:
        yield from parts_of(item)


def test_the_committed_definitions_are_fresh() -> None:
    wanted = crd_files(RUNTIMES)

    committed = {f"crds/{path.name}": path.read_text() for path in SCHEMAS.glob("crds/*")}

    assert committed == wanted, "stale: run `reconcile schema`"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_reads_back_as_the_definition(kind: str) -> None:
    made = crd(kind, RUNTIMES)

    text = crd_files(RUNTIMES)[f"crds/{made['metadata']['name']}.yaml"]

    # Ours reads documents of any group, and is the strictest reader around.
    assert read_documents("x.yaml", text.encode()).problems == ()
    assert len(json.dumps(made)) < BUDGET < ANNOTATION_LIMIT


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_spec_and_status_has_a_description(kind: str) -> None:
    whole = crd(kind, RUNTIMES)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]

    fields = [
        (name, field)
        for part in parts_of({"spec": whole["spec"], "status": whole["status"]})
        if isinstance(part.get("properties"), dict)
        for name, field in part["properties"].items()
    ]

    assert [name for name, field in fields if not field.get("description")] == []


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_defaulted_and_nothing_refers_elsewhere(kind: str) -> None:
    for part in parts_of(crd(kind, RUNTIMES)):
        assert not {"default", "$ref", "oneOf", "allOf", "if", "const"} & part.keys()


def test_an_open_place_is_left_only_where_several_types_fit() -> None:
    spec = spec_of(crd("InferenceService", RUNTIMES))["properties"]

    assert spec["runtimeOptions"].keys() == {"description", "type", "properties"}
    assert {k: v for k, v in spec["flashAttention"].items() if k != "description"} == {
        "x-kubernetes-preserve-unknown-fields": True,
        "enum": [True, False, "auto"],
    }


def test_the_rules_follow_the_runtimes_row() -> None:
    many = replace(RUNTIMES["mlx-server"], name="mlx-router", serves_many=True, aliases=("mr",))

    made = spec_of(crd("InferenceService", {**RUNTIMES, "mlx-router": many}))

    rules = [rule["rule"] for rule in made["x-kubernetes-validations"]]
    assert any('self.runtime in ["llamacpp-router", "mlx-router", "mr"]' in rule for rule in rules)
    assert "mr" in made["properties"]["runtime"]["enum"]


def test_an_option_that_two_runtimes_know_differently_is_left_to_the_reconciler() -> None:
    class Options(BaseModel):
        embeddings: int = 0

    other = replace(RUNTIMES["mlx-server"], name="other", options=Options)

    made = spec_of(crd("InferenceService", {**RUNTIMES, "other": other}))

    options = made["properties"]["runtimeOptions"]["properties"]
    assert options["embeddings"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert options["repack"]["type"] == "boolean"


def test_a_keyword_without_a_structural_form_is_an_error_and_not_a_hole() -> None:
    with pytest.raises(ValueError, match="no structural form of dependentRequired"):
        structural({"type": "object", "dependentRequired": {"a": ["b"]}}, {})
    with pytest.raises(ValueError, match="no structural form of one of"):
        structural({"anyOf": [{"type": "object"}, {"type": "string"}]}, {})


def test_short_names_and_scopes_are_what_people_type() -> None:
    names = {c["spec"]["names"]["kind"]: c["spec"]["names"]["shortNames"] for c in crds(RUNTIMES)}
    scopes = {c["spec"]["names"]["kind"]: c["spec"]["scope"] for c in crds(RUNTIMES)}

    assert names == {
        "Fleet": ["fl"],
        "FleetNode": ["fn"],
        "Model": ["mdl"],
        "InferenceService": ["isvc"],
    }
    assert scopes == {
        "Fleet": "Cluster",
        "FleetNode": "Cluster",
        "Model": "Namespaced",
        "InferenceService": "Namespaced",
    }
