"""The reference of all fields as a page of Markdown, from the schemas of the kinds and from what
each field of a service is for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from reconciler.api.field import Purpose, Use
from reconciler.api.kinds import KINDS
from reconciler.api.meta import Name
from reconciler.api.quantity import Duration
from reconciler.runtimes.fields import FIELDS, MODEL_FIELDS
from reconciler.runtimes.runtime import Runtime
from reconciler.schema import kind_schema, options_name

_HEAD = """# Every field

What each field of each kind does. It is in the JSON Schemas, which an editor shows, and in the
definitions of a cluster, where `kubectl explain isvc.spec.contextSize` prints it. This page is made
from the kinds (`make schemas`).

A size is bytes, or a number with Ki, Mi, Gi, Ti, k, M, G or T (`12Gi`). A duration has units
(`500ms`, `60s`, `1h30m`). A name has lower-case letters, digits, `-` and `.`.
"""
_SERVICE = """
*A change* is what another value reaches:

- **process**: it is another process or pod. A router reloads the models that are concerned, where
  only theirs change.
- **pods**: new pods in a cluster, and nothing on a machine.
- **nothing restarts**.
- **place**: where or whether it runs, or is measured.

*Per model*: an entry of `models` can state it, too. *Pods only*: a node with an agent makes nothing
of it, and says so. *Runtimes* are those that make something of it (none named: all); the others
say so.

"""
_CHANGES: Mapping[Use, str] = {
    Use.PROCESS: "process",
    Use.WORKLOAD: "process",
    Use.POD: "pods",
    Use.SCALE: "nothing restarts",
    Use.LIFECYCLE: "nothing restarts",
    Use.ELSEWHERE: "place",
}
_TEXTS = {
    TypeAdapter(Duration).json_schema()["pattern"]: "duration",
    TypeAdapter(Name).json_schema()["pattern"]: "name",
}


@dataclass(frozen=True, slots=True)
class _Row:
    path: str
    value: str
    description: str


def field_page(runtimes: Mapping[str, Runtime]) -> str:
    """The whole page."""
    schemas = {kind: kind_schema(kind, runtimes) for kind in KINDS}
    parts = [_HEAD]
    for kind, schema in schemas.items():
        definitions = schema["$defs"]
        rows = list(_rows(definitions[f"{kind}Spec"], definitions, "spec."))
        parts += [f"\n## {kind}\n\n{schema['properties']['kind']['description']}\n"]
        if kind == "InferenceService":
            parts += [_SERVICE, _table(_SERVICE_COLUMNS, (_of_service(r, runtimes) for r in rows))]
            parts += ["\n### spec.runtimeOptions\n\n", _options(definitions, runtimes)]
        else:
            parts += ["\n", _table(_COLUMNS, (_of_kind(row) for row in rows))]
    definitions = schemas["Model"]["$defs"]
    shared = _rows(definitions["Metadata"], definitions, "metadata.")
    parts += ["\n## What every kind has\n\n", _table(_COLUMNS, (_of_kind(row) for row in shared))]
    return "".join(parts)


def _rows(part: dict[str, Any], definitions: dict[str, Any], prefix: str) -> Iterator[_Row]:
    """The fields of a part, each followed by its own; what is stated per model has one row."""
    for name, field in part["properties"].items():
        path = f"{prefix}{name}"
        if prefix == "spec.models[]." and name in MODEL_FIELDS:
            continue
        yield _Row(path, _value(field, definitions), field["description"])
        inner, suffix = (field["items"], "[].") if "items" in field else (field, ".")
        if "$ref" in inner:
            yield from _rows(_target(inner, definitions), definitions, f"{path}{suffix}")


def _target(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definitions[field["$ref"].rpartition("/")[2]]
    return found


def _value(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """What may be written there, in a few words."""
    match field:
        case {"$ref": _}:
            return "fields below"
        case {"enum": words}:
            return ", ".join(f"`{word}`" for word in words)
        case {"const": word}:
            return f"`{word}`"
        case {"anyOf": [{"type": "integer"}, {"type": "string"}]}:
            return "size"
        case {"anyOf": several}:
            return " or ".join(_value(each, definitions) for each in several)
        case {"type": list(types)}:
            return " or ".join("text" if each == "string" else each for each in types)
        case {"type": "boolean"}:
            return "`true`, `false`"
        case {"type": "integer" | "number"}:
            return _number(field)
        case {"type": "array", "items": items}:
            inner = "" if "$ref" in items else f" of {_value(items, definitions)}"
            return f"list{inner}" + (f", up to {m}" if (m := field.get("maxItems")) else "")
        case {"type": "object"}:
            return "map"
    return _TEXTS.get(field.get("pattern", ""), "text")


def _number(field: dict[str, Any]) -> str:
    least, most = field.get("minimum"), field.get("maximum")
    above = field.get("exclusiveMinimum")
    start = f"above {above}" if above is not None else "" if least is None else f"from {least}"
    return f"{start} to {most}".strip() if most is not None else start or field["type"]


_COLUMNS = ("field", "value", "what it does")
_SERVICE_COLUMNS = (*_COLUMNS, "a change", "runtimes")


def _of_kind(row: _Row) -> tuple[str, ...]:
    return f"`{row.path}`", row.value, row.description


def _of_service(row: _Row, runtimes: Mapping[str, Runtime]) -> tuple[str, ...]:
    path = row.path.removeprefix("spec.")
    purpose = _purpose(path)
    if purpose is None:  # a part: its fields say it
        return *_of_kind(row), "", ""
    changes = [_CHANGES[purpose.use]]
    changes += ["per model"] if path in MODEL_FIELDS else []
    changes += ["pods only"] if purpose.pods_only else []
    users = [name for name, runtime in runtimes.items() if path in runtime.fields]
    of = "" if purpose.use is not Use.PROCESS or len(users) == len(runtimes) else ", ".join(users)
    return *_of_kind(row), ", ".join(changes), of


def _purpose(path: str) -> Purpose | None:
    """Its own, or that of the field which it is a part of."""
    for field in FIELDS:
        if path == field.path or path.startswith((f"{field.path}.", f"{field.path}[]")):
            return field.purpose
    return None


def _options(definitions: dict[str, Any], runtimes: Mapping[str, Runtime]) -> str:
    users: dict[_Row, list[str]] = {}
    for name in sorted(runtimes):
        part = definitions[options_name(name)]
        for row in _rows(part, definitions, "") if "properties" in part else ():
            users.setdefault(row, []).append(name)
    rows = ((*_of_kind(row), ", ".join(names)) for row, names in users.items())
    return _table((*_COLUMNS, "runtimes"), rows)


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
