"""A reconciler that stays beside its clusters: who leads, what clusters are told, what is served.

operator = Operator(console, clusters, wake, serves)
loop = Loop(..., target=operator.gate(target), report=operator.report,
            follows=operator.follows, passed=operator.passed)
with operator:
    loop.run()
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from reconciler.api.fleet import FleetPolicy
from reconciler.kube.leading.leading import CLIENT_GO, Leadership
from reconciler.kube.reading.source import ClusterCheckout, ClusterSource
from reconciler.kube.serving import NOTHING, Serves
from reconciler.kube.serving.board import Board
from reconciler.kube.telling.telling import Looked, Telling, Voice

if TYPE_CHECKING:
    from reconciler.desired import Desired
    from reconciler.kube.leading.lease import Times
    from reconciler.kube.serving.thread import Serving
    from reconciler.loop import Reporter, Wake


class Operator:
    """Holds the Leases, writes statuses and events, and answers over HTTP while it is entered."""

    def __init__(
        self,
        report: Reporter,
        members: Sequence[Looked],
        wake: Wake,
        serves: Serves = NOTHING,
        source: ClusterSource | None = None,
        times: Times = CLIENT_GO,
        *,
        speaks: bool = False,
    ) -> None:
        """`source`: the clusters' own objects are the fleet; it is told what was followed.
        `speaks`: people hear of every plan, also of one that another process carries out."""
        identity = own_identity()
        self._wake = wake
        self._serves = serves
        self._source = source
        self._serving: Serving | None = None
        self.leadership = Leadership(
            (m.api for m in members), identity, wake.look, times, wake.fetch
        )
        voices = [Voice(m, _leads(self.leadership, m.api.name), identity) for m in members]
        telling = Telling(report, voices, self._told, self._led, speaks=speaks)
        self.report = Board(telling, lambda: self.leadership.role)

    def follows(self, desired: Desired) -> None:
        """A new revision: its Fleet's name says which Lease it is."""
        fleets = desired.fleet.all(FleetPolicy)
        if fleets:
            self.leadership.follow(fleets[0].metadata.name)

    def passed(self, seconds: float) -> None:
        """The loop made a pass."""
        self.report.passed(seconds)

    @property
    def port(self) -> int | None:
        """Where it answers; None: nowhere."""
        return self._serving.wait() if self._serving else None

    def __enter__(self) -> Self:
        if self._serves.listen is not None:
            from reconciler.kube.serving.thread import Serving  # the web framework is 40 ms

            self._serving = Serving(self.report, self._serves, self._news)
            self._serving.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Whoever stands by takes over at once."""
        self.leadership.close()
        if self._serving is not None:
            self._serving.close()

    def _news(self) -> None:
        """A call may reach any of those who run: it is for the one who leads."""
        self._wake.fetch()
        self.leadership.pass_on()

    def _told(self, statuses: int, events: int) -> None:
        self.report.status_writes += statuses
        self.report.event_writes += events

    def _led(self, desired: Desired) -> None:
        if self._source is not None and isinstance(desired.checkout, ClusterCheckout):
            self._source.remember(desired.checkout)


def own_identity() -> str:
    """Of this process alone: the pod's or machine's name, and what no other life has."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:12]}"


def _leads(leadership: Leadership, cluster: str) -> Callable[[], bool]:
    return lambda: leadership.leads(cluster)
