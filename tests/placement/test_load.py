"""Services that are scaled by a load of which their pods request nothing."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.placement.assignment import assign
from tests.placement.test_placement import fleet, model
from tests.placement.test_pods import L4, on, pool

OF_PODS = {"name": "llamacpp:requests_processing"}
IN_PERCENT = {"type": "Resource", "name": "cpu", "targetAverageUtilization": 70}
IN_CORES = {"type": "Resource", "name": "cpu", "targetAverageValue": "500m"}
CPU_TRIGGER = {"type": "cpu", "metadata": {"value": "70"}}
CRON = {"type": "cron", "metadata": {}}


@pytest.mark.parametrize(
    ("scaling", "runtime", "is_warned"),
    [
        ({}, "llama-server", False),  # by requests in work
        ({}, "llamacpp-router", True),  # which counts none
        ({"keda": {}}, "llamacpp-router", True),
        ({"keda": {"triggers": [CRON]}}, "llamacpp-router", False),
        ({"keda": {"triggers": [CPU_TRIGGER]}}, "llama-server", True),
        ({"metrics": [OF_PODS]}, "llamacpp-router", False),
        ({"metrics": [OF_PODS, IN_PERCENT]}, "llama-server", True),
        ({"metrics": [IN_CORES]}, "llama-server", False),
        (
            {"metrics": [IN_CORES], "keda": {}},
            "llama-server",
            True,
        ),  # KEDA asks for it all the same
    ],
)
def test_a_load_in_percent_of_what_no_pod_requests_is_a_warning(
    scaling: dict[str, Any], runtime: str, is_warned: bool
) -> None:
    spec = {"autoscaling": {"maxReplicas": 2, **scaling}, "runtime": runtime}
    models = {"models": [{"name": "m"}]} if "router" in runtime else {"modelRef": "m"}

    def warned(**more: Any) -> bool:
        made = fleet(pool(hardware=L4), model(), on("edge", **spec, **models, **more))
        return any(f.rule == "LoadUnmeasured" for f in assign(made, {}).warnings)

    assert warned() is is_warned
    for kind in ("requests", "limits"):
        assert not warned(resources={kind: {"cpu": "2"}})
    assert warned(resources={"requests": {"memory": "2Gi"}}) is is_warned
