"""LLMKube's fields in the JSON Schemas of our kinds, so that any validator takes them. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.llmkube.field import LlmkubeField
from reconciler.llmkube.translate import TABLES

PART = "A part of LLMKube's documents."
MARK = "LLMKube's field"  # $comment of each: it is no field that a message should propose


def add_fields(kind: str, definitions: dict[str, Any]) -> None:
    """Put them below `{kind}Spec`, each where LLMKube has it."""
    for row in TABLES.get(kind, ()):
        part = definitions[f"{kind}Spec"]
        *parts, last = row.path.split(".")[1:]
        for name in parts:
            part = _part(part, name, definitions)
        part["properties"][last] = {**row.shape, "description": row_text(row), "$comment": MARK}


def is_foreign(field: object) -> bool:
    return isinstance(field, dict) and field.get("$comment") == MARK


def _part(part: dict[str, Any], name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """A part of a part; one that only LLMKube has is made."""
    made = {
        "type": "object",
        "additionalProperties": False,
        "properties": {},
        "description": PART,
        "$comment": MARK,
    }
    inner: dict[str, Any] = part["properties"].setdefault(name, made)
    return definitions[inner["$ref"].rpartition("/")[2]] if "$ref" in inner else inner


def row_text(row: LlmkubeField) -> str:
    if row.native is not None:
        return f"LLMKube's; the same as {row.text}."
    return f"LLMKube's, {'without effect here' if row.is_lost else 'needed no more'}: {row.text}."


def document_schema(kind: str, required: tuple[str, ...]) -> dict[str, Any]:
    """The schema of a kind that only LLMKube has."""
    spec: dict[str, Any] = {"properties": {}, "required": list(required)}
    add_fields(kind, {f"{kind}Spec": spec})
    for field in spec["properties"].values():  # of this kind they are what a message may propose
        del field["$comment"]
    closed = {"type": "object", "additionalProperties": False}
    metadata = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"const": kind},
        "metadata": metadata,
        "spec": {**closed, **spec},
        "status": {},
    }
    return {**closed, "properties": properties, "required": ["metadata", "spec"]}
