"""Where the fields that a plan shows are declared: in a service, its Models, its node, the Fleet.
Pure."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from reconciler.api.meta import HOLD_ANNOTATION, PRUNE_ANNOTATION, ObjectRef
from reconciler.fleet.workload import Workload

MODEL_PREFIX, NODE_PREFIX = "model.", "node."
THE_FLEET = ObjectRef("Fleet", "", "")  # a revision has at most one, whatever its name

_OF_A_MODEL = re.compile(r"models\[(?P<name>[^\]]+)\]\.(?P<field>.+)")
_ENV = "env."
_ELSEWHERE = {  # below the document, where it is not spec.PATH
    "models": ("spec.modelRef", "spec.models"),
    "placement.nodes": ("spec.placement",),
    "hold": (f'metadata.annotations["{HOLD_ANNOTATION}"]',),
    "prune": (f'metadata.annotations["{PRUNE_ANNOTATION}"]',),
}


class DeclaredField(NamedTuple):
    """A field of a document. An item of a list is named: `spec.models["phi"].contextSize`."""

    ref: ObjectRef
    field: str


def declared_in(want: Workload, path: str) -> tuple[DeclaredField, ...]:
    """The fields of documents that a field of a plan has its value from."""
    node = ObjectRef("FleetNode", "", want.node)
    if path.startswith(NODE_PREFIX):
        return (DeclaredField(node, f"spec.{path.removeprefix(NODE_PREFIX)}"),)
    if path.startswith(MODEL_PREFIX):
        name, _, field = path.removeprefix(MODEL_PREFIX).rpartition(".")
        fields = ("format", "source") if field == "format" else (field,)  # by the source's name
        model = ObjectRef("Model", want.ref.namespace, name)
        return tuple(DeclaredField(model, f"spec.{field}") for field in fields)
    own = tuple(DeclaredField(want.ref, field) for field in _own_fields(path))
    if path == "runtime":
        return (*own, DeclaredField(node, "spec.defaultRuntime"))
    if path == "image":
        return (*own, DeclaredField(THE_FLEET, "spec.images"))
    return own


def _own_fields(path: str) -> tuple[str, ...]:
    if path in _ELSEWHERE:
        return _ELSEWHERE[path]
    if of_model := _OF_A_MODEL.fullmatch(path):  # its own value, else that of the service
        name, field = json.dumps(of_model["name"]), of_model["field"]
        return (f"spec.models[{name}].{field}", f"spec.{field}")
    if path.startswith(_ENV):
        return (f"spec.env[{json.dumps(path.removeprefix(_ENV))}]",)
    return (f"spec.{path}",)
