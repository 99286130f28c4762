"""What a labeler answers over HTTP: `/healthz` for its kubelet, `/metrics` for Prometheus and for
the scheduler extender. From memory: no request asks a driver."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agent.server.gpu_metrics import gpu_metrics
from reconciler import __version__

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
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (TypeError, ValueError):  # a version that is not a number
            encode, content_type = choose_encoder("")
        body = encode(_Collector(node, labeler, sensors))
        return Response(body, headers={"Content-Type": content_type})

    return Starlette(routes=[Route("/healthz", healthz), Route("/metrics", metrics)])


class _Collector:
    """For prometheus_client's exposition, as its own registry."""

    def __init__(self, node: str, labeler: Labeler, sensors: Sensors) -> None:
        self._node, self._labeler, self._sensors = node, labeler, sensors

    def collect(self) -> Iterator[Metric]:
        yield from gpu_metrics(self._sensors.now(), self._node)
        current = GaugeMetricFamily(
            "fleet_labels_current",
            "1 while the Node's labels are what the machine says.",
            labels=("node",),
        )
        current.add_metric((self._node,), float(self._labeler.is_current))
        yield current
        build = InfoMetricFamily("fleet_build", "The labeler.", labels=("node",))
        versions = {"version": __version__, "python": platform.python_version()}
        build.add_metric((self._node,), versions)
        yield build
