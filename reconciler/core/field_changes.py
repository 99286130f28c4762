"""Which fields of a service differ from those that it was started with, and which of them is the
cause of its change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.core.declared import MODEL_PREFIX, NODE_PREFIX
from reconciler.core.observation import Location
from reconciler.core.plan import FieldChange
from reconciler.fleet.workload import LOOPBACK

_POOL = {
    "accelerator": "hardware.accelerator",
    "nodeSelector": "kubernetes.nodeSelector",
    "nodeName": "kubernetes.nodeName",
    "cache": "kubernetes.cache",
}


def field_changes(
    before: Mapping[str, Any], after: Mapping[str, Any], *, process_changes: bool
) -> tuple[FieldChange, ...]:
    """Both as Workload.inputs; `process_changes`: a field that is not of the lifecycle forces a
    restart."""
    old, new = _flat(before), _flat(after)
    lifecycle = after.get("lifecycle", {}).keys() | before.get("lifecycle", {}).keys()
    return tuple(
        FieldChange(path, old.get(path), new.get(path), process_changes and path not in lifecycle)
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    )


def cause_of(fields: Iterable[FieldChange]) -> Location | None:
    """The place of the first field that is declared: the service's own before its Model's and its
    node's, and a digest last, since it follows from what names the file."""
    ranked = sorted((field for field in fields if field.source), key=_rank)
    return ranked[0].source if ranked else None


def _flat(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Workload.inputs -> {path below spec: value}."""
    models = inputs.get("models", [])
    flat: dict[str, Any] = {
        "runtime": inputs.get("runtime"),
        "endpoint.port": inputs.get("port"),
        "models": [model["name"] for model in models],
        **inputs.get("settings", {}),
        **inputs.get("lifecycle", {}),
    }
    listen = inputs.get("listen", {"expose": LOOPBACK.expose, "host": LOOPBACK.host})
    flat |= {
        f"{NODE_PREFIX}agent.expose": listen["expose"],
        f"{NODE_PREFIX}agent.hostIP": listen["host"],
    }
    if pool := inputs.get("pool"):
        flat |= {
            f"{NODE_PREFIX}{_POOL[key]}": value for key, value in pool.items() if key != "name"
        }
        flat["placement.nodes"] = [pool["name"]]
    drafts = (model.get("draft") for model in models)
    for model in (*models, *(draft for draft in drafts if isinstance(draft, Mapping))):
        own = f"{MODEL_PREFIX}{model.get('name')}."
        flat |= {f"{own}{k}": v for k, v in model.items() if k not in ("name", "draft")}
    return flat


def _rank(field: FieldChange) -> tuple[bool, bool, bool]:
    path = field.path
    return (
        path.lower().endswith("sha256"),
        path.startswith(NODE_PREFIX),
        path.startswith(MODEL_PREFIX),
    )
