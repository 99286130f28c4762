"""What can be said of each field of a kind: what may be written, what it does, what a change of it
reaches and who makes something of it. From the schema, and from what fields are for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from reconciler.api.field import FieldUse, Purpose
from reconciler.api.meta import Name
from reconciler.api.quantity import Duration
from reconciler.runtimes.fields import FIELDS, MODEL_FIELDS
from reconciler.runtimes.runtime import Runtime
from reconciler.schema import options_name, own_schema

_CHANGES: Mapping[FieldUse, str] = {
    FieldUse.PROCESS: "process",
    FieldUse.WORKLOAD: "process",
    FieldUse.POD: "pods",
    FieldUse.SCALE: "nothing restarts",
    FieldUse.LIFECYCLE: "nothing restarts",
    FieldUse.ELSEWHERE: "place",
}
_TEXTS = {
    TypeAdapter(Duration).json_schema()["pattern"]: "duration",
    TypeAdapter(Name).json_schema()["pattern"]: "name",
}


@dataclass(frozen=True, slots=True)
class FieldEntry:
    """One field by its path, such as `spec.models[].preload`. `change` is empty where its parts say
    it, and of kinds that only say how; `runtimes` where all are meant."""

    path: str
    value: str
    description: str
    change: str = ""
    runtimes: tuple[str, ...] = ()


def field_entries(kind: str, runtimes: Mapping[str, Runtime]) -> tuple[FieldEntry, ...]:
    """The fields of a kind's spec, in the order of the document, each before its parts. What an
    entry of models[] can state too has one entry, that of the service."""
    definitions = own_schema(kind, runtimes)["$defs"]
    entries = _entries(definitions[f"{kind}Spec"], definitions, "spec.")
    if kind != "InferenceService":
        return tuple(entries)
    return tuple(_of_service(entry, runtimes) for entry in entries)


def option_entries(runtimes: Mapping[str, Runtime]) -> tuple[FieldEntry, ...]:
    """What may be in spec.runtimeOptions."""
    definitions = own_schema("InferenceService", runtimes)["$defs"]
    users: dict[FieldEntry, list[str]] = {}
    for name in sorted(runtimes):
        for entry in _entries(definitions[options_name(name)], definitions, ""):
            users.setdefault(entry, []).append(name)
    return tuple(replace(entry, runtimes=tuple(names)) for entry, names in users.items())


def shared_entries(runtimes: Mapping[str, Runtime]) -> tuple[FieldEntry, ...]:
    """What every kind has beside its spec."""
    definitions = own_schema("Model", runtimes)["$defs"]
    return tuple(_entries(definitions["Metadata"], definitions, "metadata."))


def _entries(
    part: dict[str, Any], definitions: dict[str, Any], prefix: str
) -> Iterator[FieldEntry]:
    for name, field in part.get("properties", {}).items():
        path = f"{prefix}{name}"
        if prefix == "spec.models[]." and name in _OF_MODELS:
            continue
        yield FieldEntry(path, _value(field, definitions), field["description"])
        inner, suffix = (field["items"], "[].") if "items" in field else (field, ".")
        if "$ref" in inner:
            below = definitions[inner["$ref"].rpartition("/")[2]]
            yield from _entries(below, definitions, f"{path}{suffix}")


_OF_MODELS = frozenset(path.partition(".")[0] for path in MODEL_FIELDS)  # said of the service


def _of_service(entry: FieldEntry, runtimes: Mapping[str, Runtime]) -> FieldEntry:
    path = entry.path.removeprefix("spec.")
    purpose = _purpose(path)
    if purpose is None:
        return entry
    changes = [_CHANGES[purpose.use]]
    changes += ["per model"] if path in MODEL_FIELDS else []
    changes += ["pods only"] if purpose.pods_only else []
    users = tuple(name for name, runtime in runtimes.items() if path in runtime.fields)
    some = users if purpose.use is FieldUse.PROCESS and len(users) < len(runtimes) else ()
    return replace(entry, change=", ".join(changes), runtimes=some)


def _purpose(path: str) -> Purpose | None:
    """Its own, or that of the field which it is a part of."""
    for field in FIELDS:
        if path == field.path or path.startswith((f"{field.path}.", f"{field.path}[]")):
            return field.purpose
    return None


def _value(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """What may be written there, in a few words."""
    match field:
        case {"$ref": _}:
            return "fields below"
        case {"enum": parts}:
            return ", ".join(f"`{word}`" for word in parts)
        case {"const": word}:
            return f"`{word}`"
        case {"anyOf": [{"type": "integer"}, {"type": "string", **more}]} if "const" not in more:
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
            return f"list{inner}" + (f", up to {most}" if (most := field.get("maxItems")) else "")
        case {"type": "object"}:
            return "map"
    return _TEXTS.get(field.get("pattern", ""), "text")


def _number(field: dict[str, Any]) -> str:
    least, most, above = (field.get(k) for k in ("minimum", "maximum", "exclusiveMinimum"))
    start = f"above {above}" if above is not None else "" if least is None else f"from {least}"
    return f"{start} to {most}".strip() if most is not None else start or field["type"]
