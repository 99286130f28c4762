"""What LLMKube's controller writes, and how it is told from what anybody else wrote. Pure.

Facts: its 0.9.19. Deployments, Services, autoscalers and the claims of single services have a
controller reference to their InferenceService; its shared claim has none, and is nobody's. A status
of our group's documents is written by their controller alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from reconciler.api.meta import GROUP

Object = Mapping[str, Any]


class Owner(NamedTuple):
    """The InferenceService that an object was made for."""

    name: str
    uid: str


def owner_of(live: Object) -> Owner | None:
    """None: it was made for no InferenceService, or by hand."""
    for owner in live["metadata"].get("ownerReferences") or ():
        group = str(owner.get("apiVersion", "")).partition("/")[0]
        if owner.get("controller") and (group, owner.get("kind")) == (GROUP, "InferenceService"):
            return Owner(str(owner.get("name")), str(owner.get("uid")))
    return None


def is_owned_by(live: Object, document: Object | None) -> bool:
    """Whether an object was made for exactly this InferenceService, by name, namespace and uid."""
    if document is None:
        return False
    metadata, owner = document["metadata"], owner_of(live)
    is_beside = live["metadata"].get("namespace") == metadata.get("namespace")
    return is_beside and owner == Owner(metadata["name"], metadata["uid"])
