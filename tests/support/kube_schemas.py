"""JSON Schemas of Kubernetes' own kinds, out of a running API server, for kubeconform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reconciler.kube.objects import OWNED_KINDS
from tests.support.cluster import Cluster

_INT_OR_STRING = {"oneOf": [{"type": "integer"}, {"type": "string"}]}


def write_schemas(cluster: Cluster, folder: Path) -> str:
    """One file for each kind that we write, strict; returns what kubeconform's -schema-location
    must be. Of a kind of the core, kubeconform calls the version the group."""
    known = json.loads(cluster.kubectl("get", "--raw", "/openapi/v2"))["definitions"]
    definitions = {name: _strict(schema) for name, schema in known.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in known.items():
        for said in schema.get("x-kubernetes-group-version-kind", ()):
            group, version, kind = said["group"], said["version"], said["kind"]
            if (group, kind) in OWNED_KINDS:
                whole = {"$ref": f"#/definitions/{name}", "definitions": definitions}
                file = f"{group or version}_{version}_{kind.lower()}.json"
                (folder / file).write_text(json.dumps(whole))
    return f"{folder}/{{{{.Group}}}}_{{{{.ResourceAPIVersion}}}}_{{{{.ResourceKind}}}}.json"


def _strict(schema: Any) -> Any:
    """Refuse what a kind does not have, and read our own formats."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string":
        return _INT_OR_STRING
    made = {key: _strict(value) for key, value in schema.items() if not key.startswith("x-")}
    if isinstance(schema.get("properties"), dict):
        made["properties"] = {k: _strict(v) for k, v in schema["properties"].items()}
        made.setdefault("additionalProperties", False)
    return made
