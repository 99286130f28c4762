"""Who says how much of a machine models may take: the flag, the FleetNode, the Model, the service's
field and its annotation, the closest wins."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from agent.node.overrides import overlay_of
from agent.node.settings import Settings
from reconciler.api.fleetnode import FleetNode
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import MEMORY_BUDGET_ANNOTATION
from reconciler.api.model import Model
from reconciler.capacity.pools import budgeted, pools
from reconciler.fleet.fleet import Fleet
from tests.support.builders import GIB
from tests.support.fleets import document, load_texts, model, node

# The farthest first. Each says another share of 32 GiB, or another size.
LEVELS = ("flag", "FleetNode", "Model", "field", "annotation")
SAID = {"flag": 0.25, "FleetNode": 0.5, "Model": 0.625, "field": 0.75, "annotation": "28Gi"}
GIVES = {"flag": 8 * GIB, "FleetNode": 16 * GIB, "Model": 20 * GIB, "field": 24 * GIB}
GIVES["annotation"] = 28 * GIB
COMBINATIONS = [chosen for count in range(6) for chosen in itertools.combinations(LEVELS, count)]


def fleet_of(said: dict[str, Any]) -> Fleet:
    """As the machine sees it, which adds its flag."""
    spec: dict[str, Any] = {"hardware": {"memory": "32Gi"}}
    if "FleetNode" in said:
        spec["memory"] = {"fraction": said["FleetNode"]}
    loaded = load_texts(
        node("mac", **spec),
        model("m", **({"hardware": {"memoryFraction": said["Model"]}} if "Model" in said else {})),
        _service(said),
    )
    assert loaded.fleet is not None, loaded.problems
    return overlay_of("mac", Settings(Path("state"), memory_fraction=said.get("flag")))(
        loaded.fleet
    )


def _service(said: dict[str, Any]) -> str:
    memory = {"memory": {"fraction": said["field"]}} if "field" in said else {}
    annotation = {MEMORY_BUDGET_ANNOTATION: said["annotation"]} if "annotation" in said else {}
    return document("InferenceService", "chat", {"modelRef": "m", **memory}, annotations=annotation)


def budget_in(fleet: Fleet) -> int:
    (stated,) = fleet.all(FleetNode)
    (wanted,) = fleet.all(InferenceService)
    (pool,) = budgeted(pools(stated), wanted, tuple(fleet.all(Model)))
    return pool.budget_bytes


@pytest.mark.parametrize("chosen", COMBINATIONS, ids="+".join)
def test_the_closest_statement_wins(chosen: tuple[str, ...]) -> None:
    fleet = fleet_of({level: SAID[level] for level in chosen})

    assert budget_in(fleet) == (GIVES[chosen[-1]] if chosen else int(32 * GIB * 0.67))
