"""LLMKube's kinds: those that are ours too, those that are read all the same, and what to write
instead of the others. Pure."""

from __future__ import annotations

from types import MappingProxyType

from reconciler.api.meta import GROUP
from reconciler.foreign.project import Project
from reconciler.llmkube import models, pools, routers, services

NAME = "LLMKube"
LLMKUBE = Project(
    name=NAME,
    groups=(GROUP,),
    tables=MappingProxyType(
        {
            "Model": models.FIELDS,
            "InferenceService": services.FIELDS,
            pools.KIND: pools.FIELDS,
            "ModelRouter": routers.FIELDS,
        }
    ),
    read=MappingProxyType({pools.KIND: pools.REQUIRED, "ModelRouter": routers.REQUIRED}),
    instead=MappingProxyType(
        {
            "GPUQuota": "memory.budget of a FleetNode, or a ResourceQuota, bounds what models take",
            "LoRAAdapter": "merge the adapter into the weights, and declare these as a Model",
        }
    ),
)
