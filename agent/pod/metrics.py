"""The content of a companion's `/metrics`: what its engine writes, by the engine's own counter, and
what it took to bring its models."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from reconciler import __version__
from reconciler.metrics.exposition import family, info
from reconciler.metrics.table import COMPANION

if TYPE_CHECKING:
    from agent.pod.companion import Companion
    from agent.server.sampler import Sampler


def collect(node: str, companion: Companion, sampler: Sampler) -> Iterator[Metric]:
    """`node` is where the pod runs."""
    rates = sampler.tokens_per_second().items()
    yield family(
        COMPANION["flexinfer_tokens_per_second"], (((*key, node), rate) for key, rate in rates)
    )
    loads = sampler.shown.loads.items()
    yield family(
        COMPANION["flexinfer_model_load_seconds"], (((model, node), took) for model, took in loads)
    )
    ready = float(companion.readiness().ready)
    yield family(COMPANION["fleet_engine_ready"], [((companion.backend, node), ready)])
    yield info(COMPANION["fleet_build_info"], node, __version__, platform.python_version())
