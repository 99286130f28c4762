"""Other projects' fields in JSON Schemas, so that any validator takes them. Pure."""

from __future__ import annotations

from typing import Any

from reconciler.foreign.field import ForeignField
from reconciler.foreign.project import Project

_MARK = "'s field"  # ends the $comment of each: it is no field that a message should propose


def add_fields(project: Project, kind: str, definitions: dict[str, Any]) -> None:
    """Put them below `{kind}Spec`, each where the project has it."""
    for row in project.tables.get(kind, ()):
        part = definitions[f"{kind}Spec"]
        *parts, last = row.path.split(".")[1:]
        for name in parts:
            part = _part(project, part, name, definitions)
        about = {"description": row_text(row, project), "$comment": f"{project.name}{_MARK}"}
        part["properties"][last] = {**row.shape, **about}


def is_foreign(field: object) -> bool:
    return isinstance(field, dict) and str(field.get("$comment", "")).endswith(_MARK)


def part_text(project: Project) -> str:
    return f"A part of {project.name}'s documents."


def _part(
    project: Project, part: dict[str, Any], name: str, definitions: dict[str, Any]
) -> dict[str, Any]:
    """A part of a part; one that only the project has is made."""
    made = {
        "type": "object",
        "additionalProperties": False,
        "properties": {},
        "description": part_text(project),
        "$comment": f"{project.name}{_MARK}",
    }
    inner: dict[str, Any] = part["properties"].setdefault(name, made)
    return definitions[inner["$ref"].rpartition("/")[2]] if "$ref" in inner else inner


def row_text(row: ForeignField, project: Project) -> str:
    whose = f"{project.name}'s"
    if row.native is not None:
        return f"{whose}; the same as {row.text}."
    return f"{whose}, {'without effect here' if row.is_lost else 'needed no more'}: {row.text}."


def document_schema(project: Project, kind: str) -> dict[str, Any]:
    """The schema of a kind that only this project has."""
    spec: dict[str, Any] = {"properties": {}, "required": list(project.read[kind])}
    add_fields(project, kind, {f"{kind}Spec": spec})
    _propose(spec)
    closed = {"type": "object", "additionalProperties": False}
    text = {"type": "string"}
    texts = {"type": "object", "additionalProperties": text}
    about = {"name": text, "namespace": text, "labels": texts, "annotations": texts}
    metadata = {"type": "object", "required": ["name"], "properties": about}
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"const": kind},
        "metadata": metadata,
        "spec": {**closed, **spec},
        "status": {},
    }
    return {**closed, "properties": properties, "required": ["metadata", "spec"]}


def _propose(part: dict[str, Any]) -> None:
    """Take the marks away: of this kind they are what a message may propose."""
    for field in part.get("properties", {}).values():
        field.pop("$comment", None)
        _propose(field)
