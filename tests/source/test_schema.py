"""The JSON Schemas: fresh, tidy, and as strict for anybody else's validator as for ours."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from jsonschema import Draft202012Validator

from reconciler.api.kinds import KINDS, schema_file
from reconciler.runtimes import RUNTIMES
from reconciler.schema import ANY_KIND, kind_schema, schemas
from reconciler.source.documents import read_documents
from reconciler.source.mistakes import explain
from reconciler.source.validators import schema_text, validator
from reconciler.source.value_text import _PATTERN_WORDS
from tests.support.fleets import model, node, service

REPOSITORY = Path(__file__).parents[2]
COMMITTED = REPOSITORY / "schemas"
FILES = sorted(schemas(RUNTIMES))


def parsed(text: str) -> dict[str, Any]:
    """A document as data, read as the loader reads it."""
    return read_documents("x.yaml", text.encode()).documents[0].content


def accepts(schema_file: str, document: dict[str, Any]) -> bool:
    """Does a third-party validator accept it, with nothing but the committed file?"""
    return Draft202012Validator(json.loads(schema_text(schema_file))).is_valid(document)


def nodes_of(schema: object) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for item in (
        schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    ):
        yield from nodes_of(item)


@pytest.mark.parametrize("name", FILES)
def test_the_committed_schemas_are_fresh(name: str) -> None:
    stale = "stale: run `reconcile schema`"

    assert (COMMITTED / name).read_text() == schemas(RUNTIMES)[name], stale


@pytest.mark.parametrize("name", FILES)
def test_every_schema_is_a_valid_2020_12_schema(name: str) -> None:
    schema = json.loads(schema_text(name))

    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:fleet-reconciler:schema:{name}"


@pytest.mark.parametrize("name", FILES)
def test_no_schema_has_titles_or_null_or_open_objects(name: str) -> None:
    for part in nodes_of(json.loads(schema_text(name))):
        assert not isinstance(part.get("title"), str)
        assert part.get("type") != "null"
        if "properties" in part and part.get("type") == "object" and "allOf" not in part:
            is_kubernetes = set(part["properties"]) in _KUBERNETES_OWN
            assert part["additionalProperties"] is is_kubernetes


# Parts of which we read some and hand on the rest: of an affinity, volumes and their mounts. What
# else a security context says is refused by a rule, which says what to do.
_KUBERNETES_OWN = (
    {"nodeAffinity"},
    {"requiredDuringSchedulingIgnoredDuringExecution"},
    {"name", "emptyDir"},
    {"name", "mountPath"},
    {
        "allowPrivilegeEscalation",
        "capabilities",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "seccompProfile",
    },
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_schema_with_words_for_every_pattern(kind: str) -> None:
    schema = json.loads(schema_text(schema_file(kind)))

    patterns = {
        part["pattern"] for part in nodes_of(schema) if isinstance(part.get("pattern"), str)
    }
    unexplained = {p for p in patterns - set(_PATTERN_WORDS) if "runtimeOptions" not in kind}
    assert unexplained <= KNOWN_RAW_PATTERNS


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_kind_has_a_description_in_sentences(kind: str) -> None:
    schema = json.loads(schema_text(schema_file(kind)))

    words = {
        f"{name}.{field}": made.get("description", "")
        for name, part in {kind: schema, **schema["$defs"]}.items()
        for field, made in part.get("properties", {}).items()
    }

    unfinished = {field for field, text in words.items() if not text.endswith(".")}
    assert unfinished == set()


# Shown as they are: they belong to one runtime's options, or say themselves what they are.
KNOWN_RAW_PATTERNS = {
    r"^[A-Za-z0-9:/.,*\[\]-]{1,1000}$",
    r"^[a-z0-9][a-z0-9_-]{0,63}$",
}

EXCLUSION = [
    ({"modelRef": "a"}, True),
    ({"models": [{"name": "a"}]}, False),
    ({"modelRef": "a", "models": [{"name": "a"}]}, False),
    ({}, False),
    ({"runtime": "llama-server", "modelRef": "a"}, True),
    ({"runtime": "llamacpp", "modelRef": "a"}, True),
    ({"runtime": "mlx-server", "models": [{"name": "a"}]}, False),
    ({"runtime": "llamacpp-router", "models": [{"name": "a"}]}, True),
    ({"runtime": "llamacpp-router", "modelRef": "a"}, False),
    ({"runtime": "llamacpp-router", "modelRef": "a", "models": [{"name": "a"}]}, False),
    ({"runtime": "llamacpp-router"}, False),
    ({"runtime": "llamacpp-router", "models": []}, False),
    ({"runtime": "custom"}, True),
    ({"runtime": "generic", "modelRef": "a"}, True),
    ({"runtime": "custom", "models": [{"name": "a"}]}, False),
    ({"runtime": "custom", "modelRef": "a", "models": [{"name": "a"}]}, False),
]


@pytest.mark.parametrize(("spec", "valid"), EXCLUSION)
@pytest.mark.parametrize("name", [schema_file("InferenceService"), ANY_KIND])
def test_the_schema_alone_enforces_modelref_xor_models(
    name: str, spec: dict[str, Any], valid: bool
) -> None:
    document = parsed(service(model=None, **spec))

    assert accepts(name, document) is valid


@pytest.mark.parametrize(("spec", "valid"), EXCLUSION)
def test_our_reader_and_a_third_party_agree_on_it(spec: dict[str, Any], valid: bool) -> None:
    document = parsed(service(model=None, **spec))

    check = validator("InferenceService")

    assert check.is_valid(document) is valid
    rules = [mistake.rule for mistake in explain(check, document)]
    assert rules == [] if valid else rules in (["ModelsRule"], ["Schema"])


def test_the_rule_follows_the_runtimes_row() -> None:
    many = replace(RUNTIMES["mlx-server"], name="mlx-router", serves_many=True, aliases=("mr",))

    schema = kind_schema("InferenceService", {**RUNTIMES, "mlx-router": many})

    check = Draft202012Validator(schema)
    for name in ("mlx-router", "mr"):
        assert check.is_valid(parsed(service(model=None, runtime=name, models=[{"name": "a"}])))
        assert not check.is_valid(parsed(service(runtime=name)))


def test_no_schema_has_a_default_for_the_runtime() -> None:
    for name in FILES:
        for part in nodes_of(json.loads(schema_text(name))):
            runtime = part.get("properties", {}).get("runtime", {})
            assert "default" not in runtime


@pytest.mark.parametrize(
    ("spec", "valid"),
    [
        ({"agent": {}}, True),
        ({"kubernetes": {}}, True),
        ({}, False),
        ({"agent": {}, "kubernetes": {}}, False),
    ],
)
def test_a_node_is_an_agent_or_a_kubernetes_pool(spec: dict[str, Any], valid: bool) -> None:
    document = {**parsed(node()), "spec": spec}

    assert accepts("fleetnode.json", document) is valid


def test_a_runtimes_options_are_checked_under_its_name_and_its_aliases() -> None:
    for name in ("llama-server", "llama.cpp", "llamacpp"):
        right = parsed(service(runtime=name, runtimeOptions={"embeddings": True}))
        wrong = parsed(service(runtime=name, runtimeOptions={"embedings": True}))

        assert accepts("inferenceservice.json", right)
        assert not accepts("inferenceservice.json", wrong)


def test_fleet_json_checks_every_kind() -> None:
    for text in (node(), model(), service()):
        document = parsed(text)

        assert accepts(ANY_KIND, document)
        assert not accepts(ANY_KIND, {**document, "spec": {"nonsense": 1}})
    assert not accepts(ANY_KIND, {"apiVersion": "v1", "kind": "Pod"})


@pytest.mark.parametrize("value", [None, "", [], {}])
def test_an_empty_value_is_not_taken_for_an_absent_one(value: object) -> None:
    document = parsed(service(contextSize=value))

    assert not accepts("inferenceservice.json", document)


def test_no_other_room_lists_the_kinds() -> None:
    """One that does would have to be found by whoever adds a kind."""
    own = REPOSITORY / "reconciler/api/kinds.py"
    modules = [p for room in ("reconciler", "agent") for p in (REPOSITORY / room).rglob("*.py")]

    found = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path in modules
        if path != own
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict)
        and {c.value for c in ast.iter_child_nodes(node) if isinstance(c, ast.Constant)}
        >= set(KINDS)
    ]

    assert len(modules) > 300
    assert found == []
