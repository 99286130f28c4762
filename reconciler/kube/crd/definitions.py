"""The CustomResourceDefinitions of every kind, from the kinds and the table of runtimes. Pure.

They contain the same rules as the JSON Schemas, so that the API server refuses what `reconcile
validate` refuses, with the same messages where fields exclude each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.api.exclusion import (
    NODE_IS_BOTH,
    NODE_IS_NEITHER,
    exclusion_texts,
    models_fields,
    no_such_field,
)
from reconciler.api.kinds import KIND_TABLE, KINDS, Column
from reconciler.api.meta import GROUP
from reconciler.kube.crd.status import status_schema
from reconciler.kube.crd.structural import Schema, structural
from reconciler.kube.objects import MANAGED_BY_LABEL, MANAGER, OWNED_KINDS
from reconciler.kube.yaml_text import dump
from reconciler.schema import kind_schema, names_of

if TYPE_CHECKING:
    from reconciler.runtimes.runtime import Runtime

FOLDER = "crds"  # below schemas/


_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


def crds(runtimes: Mapping[str, Runtime]) -> tuple[dict[str, Any], ...]:
    """One definition a kind, in the order of the kinds."""
    return tuple(crd(kind, runtimes) for kind in KINDS)


def crd_files(runtimes: Mapping[str, Runtime]) -> dict[str, str]:
    """Path below schemas/ -> the text of each definition."""
    return {f"{FOLDER}/{made['metadata']['name']}.yaml": dump(made) for made in crds(runtimes)}


def crd(kind: str, runtimes: Mapping[str, Runtime]) -> dict[str, Any]:
    """The definition of one kind."""
    row, stated = OWNED_KINDS[GROUP, kind], KIND_TABLE[kind]
    version = {
        "name": row.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object_schema(kind, runtimes)},
        "subresources": {"status": {}} | ({"scale": _SCALE} if stated.runs else {}),
        "additionalPrinterColumns": [_printed(column) for column in stated.columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{row.plural}.{GROUP}", "labels": {MANAGED_BY_LABEL: MANAGER}},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": row.plural,
                "singular": kind.lower(),
                "shortNames": [stated.short_name],
                "categories": ["inference"],
            },
            "scope": "Namespaced" if row.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _printed(column: Column) -> Schema:
    made: Schema = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return made | ({"priority": 1} if column.wide else {})


def _object_schema(kind: str, runtimes: Mapping[str, Runtime]) -> Schema:
    schema = kind_schema(kind, runtimes)
    definitions = {name: dict(part) for name, part in schema["$defs"].items()}
    spec, rules = definitions[f"{kind}Spec"], list[Schema]()
    if kind == "InferenceService":
        options = _options(spec.pop("allOf"), definitions)
        rows = runtimes.values()
        free = names_of(r for r in rows if not r.needs_model)
        rules += [*_exclusion(names_of(r for r in rows if r.serves_many), free)]
        rules += [*_foreign_options(options)]
    elif kind == "FleetNode":
        spec.pop("oneOf")
        rules += _NODE_RULES
    made = structural(spec, definitions)
    if kind == "InferenceService":
        description = made["properties"]["runtimeOptions"]["description"]
        made["properties"]["runtimeOptions"] = {"description": description} | _union(options)
    if rules:
        made["x-kubernetes-validations"] = rules
    return {
        "type": "object",
        "required": [name for name in schema["required"] if name == "spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": made,
            "status": status_schema(kind),
        },
    }


_NODE_RULES: list[Schema] = [
    {"rule": "!(has(self.agent) && has(self.kubernetes))", "message": NODE_IS_BOTH},
    {"rule": "has(self.agent) || has(self.kubernetes)", "message": NODE_IS_NEITHER},
]


def _exclusion(many: list[str], free: list[str]) -> Iterator[Schema]:
    """One rule for each way in which modelRef and models[] can be wrong, each with its own message.
    Without a runtime, one that serves a single model is assumed. `free` may have no modelRef
    either."""
    subjects = (
        (False, False, "!has(self.runtime)"),
        (True, False, f"has(self.runtime) && !(self.runtime in {json.dumps([*free, *many])})"),
        (True, True, f"has(self.runtime) && self.runtime in {json.dumps(many)}"),
    )
    for named, serves_many, subject in subjects:
        right, wrong = models_fields(serves_many=serves_many)
        for has_right, has_wrong in ((False, False), (False, True), (True, True)):
            texts = exclusion_texts(
                _NAMED if named else None,
                serves_many=serves_many,
                has_right=has_right,
                has_wrong=has_wrong,
                many=many,
            )
            there = f"{_has(right, has_right)} && {_has(wrong, has_wrong)}"
            yield {"rule": f"!({subject} && {there})"} | _message(texts or "")
    texts = exclusion_texts(_NAMED, serves_many=False, has_right=True, has_wrong=True, many=many)
    subject = f"has(self.runtime) && self.runtime in {json.dumps(free)}"
    yield {"rule": f"!({subject} && has(self.models))"} | _message(texts or "")


_NAMED = "{runtime}"  # placeholder for the runtime's name, filled in by the server


def _has(field: str, is_there: bool) -> str:
    return f"{'' if is_there else '!'}has(self.{field})"


def _message(text: str) -> Schema:
    before, named, after = text.partition(_NAMED)
    if not named:
        return {"message": text}
    return {"messageExpression": f"{json.dumps(before)} + self.runtime + {json.dumps(after)}"}


class _Options(NamedTuple):
    """The options of one runtime under runtimeOptions: its names, and option -> schema."""

    names: list[str]
    properties: dict[str, Schema]


def _options(branches: list[Schema], definitions: Mapping[str, Any]) -> list[_Options]:
    """Read from the JSON Schema's branches: `if` the runtime is one of these, `then` these."""
    made = []
    for branch in branches:
        reference = branch.get("then", {}).get("properties", {}).get("runtimeOptions")
        if reference:
            part = structural(reference, definitions)
            names = branch["if"]["properties"]["runtime"]["enum"]
            made.append(_Options(names, part.get("properties", {})))
    return made


def _union(options: list[_Options]) -> Schema:
    """Every option of every runtime; an option with two different schemas is unrestricted here."""
    properties: dict[str, Schema] = {}
    for each in options:
        for name, schema in each.properties.items():
            same = properties.setdefault(name, schema) == schema
            if not same:
                properties[name] = {"x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "properties": dict(sorted(properties.items()))}


def _foreign_options(options: list[_Options]) -> Iterator[Schema]:
    """A named runtime accepts its own options only. Without a name the node decides, which the API
    server cannot know."""
    everything = {name for each in options for name in each.properties}
    for each in options:
        foreign = sorted(name for name in everything - each.properties.keys() if _is_field(name))
        if not foreign:
            continue
        there = " || ".join(f"has(self.runtimeOptions.{name})" for name in foreign)
        yield {
            "rule": f"!has(self.runtime) || !(self.runtime in {json.dumps(each.names)})"
            f" || !has(self.runtimeOptions) || !({there})",
            "message": no_such_field(each.properties),
            "fieldPath": ".runtimeOptions",
        }


def _is_field(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
