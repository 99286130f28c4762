"""Services that are scaled by the processor's load, and ask for nothing of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reconciler.api.problem import Finding
from reconciler.fleet.workload import Workload
from reconciler.runtimes import RUNTIMES

_CPU = "cpu"


def unmeasured_load(workloads: Iterable[Workload]) -> Iterator[Finding]:
    """A warning for each whose load is counted in percent of what its pods request, and they
    request none: their number stays as it is, and KEDA refuses it, which no dry run shows."""
    for workload in workloads:
        scaling = workload.lifecycle.get("autoscaling")
        if workload.pool is None or not isinstance(scaling, Mapping) or _is_requested(workload):
            continue
        if _follows_load(scaling, RUNTIMES[workload.runtime].requests_metric):
            message = (
                "the number of pods follows the processor's load, in percent of what they request,"
                " and they request none: add resources.requests.cpu, or metrics"
            )
            yield Finding("LoadUnmeasured", workload.ref, "spec.autoscaling", message)


def _is_requested(workload: Workload) -> bool:
    """A limit is a request, too, where none is stated."""
    stated = (workload.settings.get(f"resources.{kind}") for kind in ("requests", "limits"))
    return any(isinstance(amounts, Mapping) and _CPU in amounts for amounts in stated)


def _follows_load(scaling: Mapping[str, Any], requests_metric: str | None) -> bool:
    metrics, keda = scaling.get("metrics") or (), scaling.get("keda") or {}
    triggers = keda.get("triggers") or ()
    if not metrics and not triggers:
        return requests_metric is None
    of_load = (m for m in metrics if (m.get("type"), m.get("name")) == ("Resource", _CPU))
    in_percent = any(keda or m.get("targetAverageUtilization") is not None for m in of_load)
    return in_percent or any(trigger.get("type") == _CPU for trigger in triggers)
