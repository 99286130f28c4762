"""The kinds of the fleet repository, one file each. Adding a kind is one file and one row. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.api.fleet import FleetPolicy
from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.api.meta import Resource

KINDS: Mapping[str, type[Resource]] = MappingProxyType(
    {
        "Fleet": FleetPolicy,
        "FleetNode": FleetNode,
        "Model": Model,
        "InferenceService": InferenceService,
    }
)


def schema_file(kind: str) -> str:
    """The file in schemas/ of a kind: `model.json`. fleet.json stands for all kinds together, so
    kind Fleet has the name of its class."""
    return f"{KINDS[kind].__name__.lower()}.json"
