"""What a labeler answers over HTTP: `/healthz` for its kubelet, `/metrics` for Prometheus and for
the scheduler extender. From memory: no request asks a driver."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agent.server.gpu_metrics import gpu_metrics
from reconciler import __version__
from reconciler.metrics.exposition import exposition, family, info
from reconciler.metrics.table import LABELER

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from agent.labels.labeler import Labeler
    from agent.machine.sensors import Sensors

_SLOWEST_PASS_S = 180.0  # with a driver that hangs and an API server that gives no answer


def make_app(node: str, labeler: Labeler, sensors: Sensors, interval_s: float) -> ASGIApp:
    async def healthz(_: Request) -> Response:
        age_s = time.monotonic() - labeler.passed_at
        is_alive = age_s < interval_s + _SLOWEST_PASS_S
        status = "ok" if is_alive else "the loop does not pass any more: restart the pod"
        document = {"status": status, "secondsSincePass": round(age_s, 1)}
        return JSONResponse(document, 200 if is_alive else 503)

    async def metrics(request: Request) -> Response:
        def collect() -> Iterator[Metric]:
            return _metrics(node, labeler, sensors)

        body, content_type = exposition(collect, request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    return Starlette(routes=[Route("/healthz", healthz), Route("/metrics", metrics)])


def _metrics(node: str, labeler: Labeler, sensors: Sensors) -> Iterator[Metric]:
    yield from gpu_metrics(sensors.now(), node)
    yield family(LABELER["fleet_labels_current"], [((node,), float(labeler.is_current))])
    yield info(LABELER["fleet_build_info"], node, __version__, platform.python_version())
