"""JSON Schemas of every kind, from the kinds themselves and the table of runtimes. Pure.

They are data for others too (editors, CI, any validator), so the exclusion rule of modelRef and
models[] is in them, and comes from each runtime row's `serves_many`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue

from reconciler.api.kinds import KINDS, schema_file
from reconciler.api.meta import API_VERSION
from reconciler.api.nodestate import NodeState
from reconciler.api.quantity import format_bytes, format_duration
from reconciler.foreign.schema import add_fields
from reconciler.llmkube.project import LLMKUBE
from reconciler.runtimes.fields import DEFAULTS, OVERRIDDEN_FIELDS

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import core_schema

    from reconciler.runtimes.runtime import Runtime

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ANY_KIND = "fleet.json"  # dispatches on `kind`: the one to give an editor


def schemas(runtimes: Mapping[str, Runtime]) -> dict[str, str]:
    """File name -> text of every schema: one a kind, and one that dispatches on `kind`."""
    kinds = {kind: kind_schema(kind, runtimes) for kind in KINDS}
    files = {schema_file(kind): schema for kind, schema in kinds.items()}
    files[ANY_KIND] = _any_kind(kinds)
    return {name: schema_document(name, schema) for name, schema in sorted(files.items())}


def answer_schema() -> dict[str, Any]:
    """The JSON Schema of NodeState, which agents answer."""
    return _json_schema(NodeState)


def kind_schema(kind: str, runtimes: Mapping[str, Runtime]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one kind, its parts under $defs."""
    schema = own_schema(kind, runtimes)
    add_fields(LLMKUBE, kind, schema["$defs"])
    return schema


def own_schema(kind: str, runtimes: Mapping[str, Runtime]) -> dict[str, Any]:
    """The same without the fields that are LLMKube's alone."""
    schema = _json_schema(KINDS[kind])
    stitch = _STITCHES.get(kind)
    if stitch:
        stitch(schema["$defs"], runtimes)
    for part in schema["$defs"].values():
        for field in part.get("properties", {}).values():
            _say_default(field)
    return schema


def _say_default(field: dict[str, Any]) -> None:
    """Behind what the field does: clusters have no other place for it, and editors show the
    description alone."""
    default = field.get("default")
    if default in (None, "") or "description" not in field:
        return
    if isinstance(default, int) and not isinstance(default, bool) and "anyOf" in field:
        default = format_bytes(default)
    shown = str(default).lower() if isinstance(default, bool) else default
    field["description"] += f" Default {shown}."


def options_name(runtime: str) -> str:
    """The definition of a runtime's options in the schema of InferenceService."""
    return f"{''.join(part.title() for part in runtime.split('-'))}Options"


def names_of(rows: Iterable[Runtime]) -> list[str]:
    """Every name and alias by which a manifest may call these rows, sorted."""
    return sorted({name for row in rows for name in (row.name, *row.aliases)})


def _stitch_service(definitions: dict[str, Any], runtimes: Mapping[str, Runtime]) -> None:
    """The runtime's names, what it serves, and its options, into InferenceService.spec."""
    spec = definitions["InferenceServiceSpec"]
    for path in OVERRIDDEN_FIELDS:
        own = definitions["ModelEntry"]["properties"][path.partition(".")[0]]
        description = own["description"].partition(" Unset: ")[0]
        own["description"] = f"{description} Unset: the service's."
        if DEFAULTS[path] is not None:
            _property(definitions, spec, path)["default"] = DEFAULTS[path]
    rows = sorted(runtimes.values(), key=lambda row: row.name)
    spec["properties"]["runtime"]["enum"] = names_of(rows)
    many = names_of(row for row in rows if row.serves_many)
    rules = [_exclusion(many, names_of(row for row in rows if not row.needs_model))]
    for row in rows:
        name = options_name(row.name)
        options = _json_schema(row.options)
        definitions |= options.pop("$defs", {})
        definitions[name] = options
        rules.append(
            {
                "if": _runtime_is([row.name, *row.aliases]),
                "then": {"properties": {"runtimeOptions": {"$ref": f"#/$defs/{name}"}}},
            }
        )
    spec["allOf"] = rules


def _property(definitions: dict[str, Any], part: dict[str, Any], path: str) -> dict[str, Any]:
    """The schema of a field of a part, by its path."""
    name, _, inner = path.partition(".")
    own: dict[str, Any] = part["properties"][name]
    below = definitions[own["$ref"].rpartition("/")[2]] if inner else {}
    return _property(definitions, below, inner) if inner else own


def _exclusion(many: list[str], free: list[str]) -> dict[str, Any]:
    """A runtime that serves many needs models[] and no modelRef; any other, or none, vice versa.
    Those that are `free` may have no modelRef either."""
    needed = {"required": ["modelRef"]}
    unless_free = {"if": _runtime_is(free), "else": needed} if free else needed
    needs_one = {"properties": {"models": False}, **unless_free}
    if not many:
        return needs_one
    return {
        "$comment": "modelRef and models[] exclude each other; the runtime decides which it is.",
        "if": _runtime_is(many),
        "then": {"required": ["models"], "properties": {"modelRef": False}},
        "else": needs_one,
    }


def _runtime_is(names: list[str]) -> dict[str, Any]:
    # `required` matters: without it a document that names no runtime would match too.
    return {"properties": {"runtime": {"enum": sorted(names)}}, "required": ["runtime"]}


def _stitch_node(definitions: dict[str, Any], runtimes: Mapping[str, Runtime]) -> None:
    """Exactly one of agent and kubernetes; runtimes that exist; a default that serves one model."""
    spec = definitions["FleetNodeSpec"]
    spec["oneOf"] = [{"required": ["agent"]}, {"required": ["kubernetes"]}]
    properties = spec["properties"]
    properties["runtimes"]["items"]["enum"] = names_of(runtimes.values())
    one = (row for row in runtimes.values() if row.needs_model and not row.serves_many)
    properties["defaultRuntime"]["enum"] = names_of(one)


_STITCHES: Mapping[str, Callable[[dict[str, Any], Mapping[str, Runtime]], None]] = {
    "InferenceService": _stitch_service,
    "FleetNode": _stitch_node,
}


def _any_kind(kinds: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    for kind, schema in kinds.items():
        body = {key: value for key, value in schema.items() if key != "$defs"}
        definitions |= schema.get("$defs", {}) | {kind: body}
    return {
        "description": "One document of a fleet repository, of any kind.",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {"apiVersion": {"const": API_VERSION}, "kind": {"enum": list(kinds)}},
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"$ref": f"#/$defs/{kind}"},
            }
            for kind in kinds
        ],
        "$defs": definitions,
    }


def schema_document(name: str, schema: Mapping[str, Any]) -> str:
    """A schema as its file holds it."""
    whole = {"$schema": DIALECT, "$id": f"urn:fleet-reconciler:schema:{name}", **schema}
    return json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _json_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=_Generator)
    schema.pop("description", None)  # the class's docstring is for those who read the code
    for part in schema.get("$defs", {}).values():
        part.pop("description", None)
    return schema


class _Generator(GenerateJsonSchema):
    """pydantic's generator without titles, null branches and defaults that say nothing."""

    def generate(
        self, schema: core_schema.CoreSchema, mode: JsonSchemaMode = "validation"
    ) -> JsonSchemaValue:
        made = super().generate(schema, mode)
        _drop_titles(made)
        return made

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """In YAML, None is a field that is not there; a written `null` is refused."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Keep defaults that are words or numbers; `{}`, `[]` and null tell a reader nothing."""
        made = super().default_schema(schema)
        default = made.get("default")
        if not isinstance(default, (str, int, float)):
            made.pop("default", None)
        elif made.get("type") == "string" and not isinstance(default, str):
            made["default"] = format_duration(default)  # the one type that is text in YAML only
        return made

    def get_union_of_schemas(self, schemas: list[JsonSchemaValue]) -> JsonSchemaValue:
        """Alternatives that differ in their type alone are one list of types."""
        if all(set(schema) == {"type"} for schema in schemas):
            return {"type": [schema["type"] for schema in schemas]}
        return super().get_union_of_schemas(schemas)


def _drop_titles(node: object) -> None:
    """Titles that repeat the field's name. A field that is itself called `title` stays."""
    if isinstance(node, list):
        for item in node:
            _drop_titles(item)
    elif isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        for item in node.values():
            _drop_titles(item)
