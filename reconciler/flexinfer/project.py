"""FlexInfer's kinds, and what to write instead of those that are not read. Pure."""

from __future__ import annotations

from types import MappingProxyType

from reconciler.flexinfer import deployments
from reconciler.foreign.project import Project

_BOTH = (
    "write a Model and an InferenceService instead: `reconcile deploy {name} --source SOURCE` does"
)
FLEXINFER = Project(
    name="FlexInfer",
    groups=("ai.flexinfer", "flexinfer.ai", "inference.flexinfer.ai"),  # of its releases
    tables=MappingProxyType({"ModelDeployment": deployments.FIELDS}),
    read=MappingProxyType({"ModelDeployment": deployments.REQUIRED}),
    instead=MappingProxyType(
        {
            "ModelDeployment": _BOTH,
            "Model": _BOTH,
            "ModelCache": "write `cache` under spec.kubernetes of a FleetNode instead",
            "GPUGroup": "write a FleetNode for the pool, and its name in placement.nodes of each"
            " service",
        }
    ),
)
