"""Live objects as a server would keep what we applied, for tests that need no server."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from reconciler.kube.diff.record import AppliedRecord, item_key, recorded
from reconciler.kube.objects import MANAGER

NOW = "2026-01-01T00:00:00Z"


def as_applied(manifest: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """The object after one apply of ours, unchanged by the server."""
    live = copy.deepcopy(recorded(manifest, manifest, AppliedRecord()))
    ours = {"manager": MANAGER, "operation": "Apply", "time": NOW, "fieldsV1": _fields(live)}
    defaults = {"uid": f"uid-{live['metadata']['name']}", "resourceVersion": "7"}
    live["metadata"] |= {**defaults, "managedFields": [ours], **metadata}
    return live


def edited(live: Mapping[str, Any], by: str, **spec: Any) -> dict[str, Any]:
    """The object after somebody set fields of its spec, which are theirs from then on."""
    made = copy.deepcopy(dict(live))
    made["spec"] |= spec
    rows = made["metadata"]["managedFields"]
    for name in spec:
        rows[0]["fieldsV1"]["f:spec"].pop(f"f:{name}", None)
    fields: dict[str, Any] = {"f:spec": {f"f:{name}": {} for name in spec}}
    rows.append({"manager": by, "operation": "Update", "time": NOW, "fieldsV1": fields})
    made["metadata"]["resourceVersion"] = "8"
    return made


def _fields(manifest: Mapping[str, Any]) -> dict[str, Any]:
    metadata = manifest["metadata"]
    parts = {k: metadata[k] for k in ("labels", "annotations") if k in metadata}
    rest = {k: v for k, v in manifest.items() if k not in ("apiVersion", "kind", "metadata")}
    return _of({"metadata": parts, **rest}, ())


def _of(value: Any, path: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(value, dict) and path[-1:] not in (("f:selector",), ("f:nodeSelector",)):
        return {f"f:{k}": _of(v, (*path, f"f:{k}")) for k, v in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        keys = [item_key(item, path) for item in value]
        if all(keys):
            return {k: {".": {}, **_of(v, (*path, k))} for k, v in zip(keys, value, strict=True)}
    return {}
