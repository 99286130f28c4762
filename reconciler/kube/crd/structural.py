"""One of our JSON Schemas -> the structural schema that an API server requires. Pure.

A structural schema has one type at each place and no references. Three constructs need another
form: sizes (`x-kubernetes-int-or-string`), alternatives of different types (a place without a type,
restricted from outside) and fields that exclude each other (CEL, in `definitions.py`). Defaults are
dropped: a default that the server fills in would hide the node's or the service's own defaults, and
would differ from the repository. Unknown fields need no keyword: in strict mode a server refuses
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

_COPIED = (
    "description", "type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "required", "format",
)  # fmt: skip
_DROPPED = {"default", "$comment", "title"}
_HANDLED = {
    "$ref", "anyOf", "const", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems", "items",
    "properties", "additionalProperties",
}  # fmt: skip


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """The structural form of one schema. ValueError if a keyword has no such form."""
    if "$ref" in schema:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **beside}
    unknown = schema.keys() - _HANDLED - _DROPPED - set(_COPIED)
    if unknown:
        raise ValueError(f"no structural form of {', '.join(sorted(unknown))}")
    if "anyOf" in schema:
        return _described(schema, _alternatives(list(_flat(schema, definitions))))
    if isinstance(schema.get("type"), list):
        return _described(schema, _alternatives([{"type": name} for name in schema["type"]]))
    made = {key: schema[key] for key in _COPIED if key in schema}
    if "const" in schema:
        made["enum"] = [schema["const"]]
    for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in schema:
            made |= {limit: schema[exclusive], exclusive: True}
    return made | _inside(schema, definitions)


def _inside(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """The schema of the items of a list or the values of a mapping."""
    made: Schema = {}
    if "items" in schema:
        made["items"] = structural(schema["items"], definitions)
        made["x-kubernetes-list-type"] = "set" if schema.get("uniqueItems") else "atomic"
    if "properties" in schema:
        properties = schema["properties"]
        made["properties"] = {k: structural(v, definitions) for k, v in properties.items()}
    elif isinstance(schema.get("additionalProperties"), Mapping):
        made["additionalProperties"] = structural(schema["additionalProperties"], definitions)
    if schema.get("additionalProperties") is True:
        made["x-kubernetes-preserve-unknown-fields"] = True
    return made


def _described(schema: Mapping[str, Any], made: Schema) -> Schema:
    return {key: schema[key] for key in ("description",) if key in schema} | made


def _flat(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[Schema]:
    """The alternatives of an anyOf, including those of a nested anyOf."""
    if "anyOf" in schema:
        return [one for each in schema["anyOf"] for one in _flat(each, definitions)]
    return [structural(schema, definitions)]


def _alternatives(schemas: list[Schema]) -> Schema:
    """One place that accepts several types."""
    types = {schema.get("type") for schema in schemas}
    if types == {"integer", "string"}:
        return _int_or_string(schemas)
    scalars = {"boolean", "integer", "number", "string"}
    if not types <= scalars:
        raise ValueError(f"no structural form of one of {sorted(map(str, types))}")
    return {"x-kubernetes-preserve-unknown-fields": True} | _narrowed(schemas, types)


def _int_or_string(schemas: list[Schema]) -> Schema:
    """`minimum` applies to numbers only and `pattern` to text only, so both may be given."""
    numbers = [schema for schema in schemas if schema["type"] == "integer"]
    patterns = [_text_pattern(schema) for schema in schemas if schema["type"] == "string"]
    made: Schema = {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
    }
    for schema in numbers:
        made |= {key: schema[key] for key in ("minimum", "maximum") if key in schema}
    if all(patterns):
        made["pattern"] = "|".join(filter(None, patterns))
    return made


def _text_pattern(schema: Schema) -> str | None:
    """A pattern, or a short enum as a pattern; None: any text."""
    if "enum" in schema:
        return "|".join(f"^{word}$" for word in schema["enum"])
    pattern = schema.get("pattern")
    return pattern if pattern is None else str(pattern)


def _narrowed(schemas: list[Schema], types: set[str | None]) -> Schema:
    """A place without a type accepts everything: restrict it to these types, or exclude the
    rest."""
    values = [{"boolean": [True, False]}.get(s["type"], s.get("enum")) for s in schemas]
    if all(values):
        return {"enum": [word for group in values for word in group or ()]}
    refused: list[Any] = [{}, []] + ([] if "boolean" in types else [True, False])
    return {"not": {"enum": refused}, "maxProperties": 0, "maxItems": 0}
