"""The definitions of other projects' kinds that we write: KEDA's, the Gateway API's.

What the suite needs of them is recorded in tests/cases/other-crds: the version that we write, with
its rules, and without words, statuses and what we hand on as it is stated. OTHER_CRDS names a
folder with the projects' own files, to be taken in place of those:

    OTHER_CRDS=/path make test T=tests/e2e/test_traffic.py

`python -m tests.support.other_crds FOLDER` records those files anew.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.support.cluster import Cluster

RECORDED = Path(__file__).parents[1] / "cases" / "other-crds"


class _Row(NamedTuple):
    kind: str
    version: str
    handed_on: tuple[str, ...] = ()  # paths below spec


_FILES = {  # as each project names it
    "keda.sh_scaledobjects.yaml": _Row("ScaledObject", "v1alpha1", ("advanced", "fallback")),
    "gateway.networking.k8s.io_httproutes.yaml": _Row(
        "HTTPRoute", "v1", ("rules[].filters", "rules[].backendRefs[].filters")
    ),
    "inference.networking.k8s.io_inferencepools.yaml": _Row("InferencePool", "v1"),
}
KINDS = frozenset(row.kind for row in _FILES.values())
_ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}


def install_others(cluster: Cluster, kinds: Collection[str] = KINDS) -> None:
    """Those of them that are among these kinds, served."""
    folder = Path(os.environ.get("OTHER_CRDS") or RECORDED)
    wanted = [name for name, row in _FILES.items() if row.kind in kinds]
    for name in wanted:
        cluster.kubectl("apply", "--server-side", "-f", str(folder / name))
    for name in wanted:
        group, plural = name.removesuffix(".yaml").split("_")
        cluster.wait("--for=condition=Established", f"crd/{plural}.{group}")


def record(folder: Path) -> None:
    for name, row in _FILES.items():
        whole = yaml.safe_load((folder / name).read_text())
        (RECORDED / name).write_text(
            yaml.safe_dump(_trimmed(whole, row.version, row.handed_on), sort_keys=True, width=100)
        )


def _trimmed(whole: dict[str, Any], version: str, handed_on: tuple[str, ...]) -> dict[str, Any]:
    (row,) = (v for v in whole["spec"]["versions"] if v["name"] == version)
    schema = row["schema"]["openAPIV3Schema"]
    for path in handed_on:
        _open(schema["properties"]["spec"], path)
    schema["properties"]["status"] = {"type": "object", **_ANYTHING}
    kept = {key: row[key] for key in ("name", "served", "storage", "subresources") if key in row}
    return {
        "apiVersion": whole["apiVersion"],
        "kind": whole["kind"],
        "metadata": {
            "name": whole["metadata"]["name"],
            "annotations": whole["metadata"].get("annotations", {}),
        },
        "spec": {
            **{key: value for key, value in whole["spec"].items() if key != "versions"},
            "versions": [{**kept, "storage": True, "schema": {"openAPIV3Schema": _bare(schema)}}],
        },
    }


def _open(schema: dict[str, Any], path: str) -> None:
    """Take anything there: rules about it go with it."""
    *outer, last = path.split(".")
    for part in outer:
        schema.pop("x-kubernetes-validations", None)
        schema = schema["properties"][part.removesuffix("[]")]
        if part.endswith("[]"):
            schema.pop("x-kubernetes-validations", None)
            schema = schema["items"]
    schema.pop("x-kubernetes-validations", None)
    is_list = schema["properties"][last]["type"] == "array"
    items = {"type": "object", **_ANYTHING}
    schema["properties"][last] = {"type": "array", "items": items} if is_list else items


def _bare(node: Any) -> Any:
    """Without descriptions."""
    if isinstance(node, list):
        return [_bare(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {k: _bare(v) for k, v in node.items() if not (k == "description" and isinstance(v, str))}


if __name__ == "__main__":
    record(Path(sys.argv[1]))
