"""A reconciler that stays beside its clusters: who leads, what is written, what is served.

operator = Operator(console, apis, wake, serves)
loop = Loop(..., delegate, journal, operator.report, wake)  # delegates `on_revision`, `on_pass`
with operator:
    loop.run()
"""

from __future__ import annotations

import math
import os
import socket
import threading
import uuid
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from reconciler.api.fleet import FleetPolicy
from reconciler.kube.crsource.source import ClusterCheckout, ClusterSource
from reconciler.kube.leaderelection.idle import IdleReport
from reconciler.kube.leaderelection.leadership import CLIENT_GO, Leadership
from reconciler.kube.server import NOTHING, Serves
from reconciler.kube.server.board import Board
from reconciler.kube.speeds.reader import PodSpeeds
from reconciler.kube.status.reporter import LONGEST_S, ClusterStatusWriter, StatusReporter

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.leaderelection.lease import Times
    from reconciler.kube.server.thread import OperatorServer
    from reconciler.loop import Reporter, Wake
    from reconciler.loop.desired import Desired
    from reconciler.loop.interfaces import Following


class Operator:
    """Holds the Leases, writes statuses and events, and serves HTTP while it is entered."""

    def __init__(
        self,
        report: Reporter,
        apis: Sequence[ApiServer],
        wake: Wake,
        serves: Serves = NOTHING,
        source: ClusterSource | None = None,
        times: Times = CLIENT_GO,
        *,
        speaks: bool = False,
        stays: bool = True,
    ) -> None:
        """`source`: the clusters' own objects are the fleet; it is notified of what was followed.
        `speaks`: every plan is printed, also one that another process carries out. `stays`: longer
        than a revision takes, so that what changes with the traffic is written too."""
        identity = own_identity()
        self._wake = wake
        self._idle: tuple[Following, str] | None = None  # the fleet that cannot be followed
        self._idles = tuple(IdleReport(api, identity, times) for api in apis)
        self._serves = serves
        self._source = source
        self._serving: OperatorServer | None = None
        self.leadership = Leadership(apis, identity, wake.look, times, wake.fetch)
        self._counting = threading.Lock()
        leads = {api.name: partial(self.leadership.leads, api.name) for api in apis}
        self._speeds = tuple(
            PodSpeeds(api, leads[api.name], lambda count: self._told(count, 0))
            for api in apis
            if stays
        )
        speeds = {each.cluster: each for each in self._speeds}
        longest_s = LONGEST_S if stays else math.inf
        writers = [
            ClusterStatusWriter(api, leads[api.name], identity, speeds.get(api.name), longest_s)
            for api in apis
        ]
        self._statuses = StatusReporter(report, writers, self._told, self._led, speaks=speaks)
        self.report = Board(self._statuses, lambda: self.leadership.role)

    def on_fetched(self, following: Following, fleet: str) -> None:
        """The source was read, or could not be. `fleet`: the Fleet's name, where it is known before
        a revision is followed; empty: it is not."""
        self._statuses.following = following
        self.report.fetched(following)
        self._idle = (following, fleet) if fleet and following.followed is None else None

    def on_revision(self, desired: Desired) -> None:
        """A new revision: its Fleet's name determines the Lease."""
        fleets = desired.fleet.all(FleetPolicy)
        if fleets:
            self.leadership.follow(fleets[0].metadata.name)

    def on_pass(self, seconds: float) -> None:
        """A pass has ended."""
        if self._idle is not None:
            for idle in self._idles:
                self._statuses.guard(idle.cluster, partial(self._report_idle, idle, *self._idle))
        self.report.passed(seconds)
        if self._statuses.is_behind:
            self._wake.look_soon()

    def _report_idle(self, idle: IdleReport, following: Following, fleet: str) -> None:
        self._told(*idle.report(following, fleet))

    @property
    def port(self) -> int | None:
        """The HTTP port; None if it does not serve."""
        return self._serving.wait() if self._serving else None

    def __enter__(self) -> Self:
        if self._serves.listen is not None:
            from reconciler.kube.server.thread import OperatorServer  # the web framework is 40 ms

            self._serving = OperatorServer(self.report, self._serves, self._news)
            self._serving.start()
        for speeds in self._speeds:
            speeds.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """A standby takes over at once."""
        self.leadership.close()
        for speeds in self._speeds:
            speeds.stop()
        if self._serving is not None:
            self._serving.close()

    def _news(self) -> None:
        """A webhook call may reach any replica: pass it on to the leader."""
        self._wake.fetch()
        self.leadership.pass_on()

    def _told(self, statuses: int, events: int) -> None:
        """By the loop, and by a thread of each cluster."""
        with self._counting:
            self.report.status_writes += statuses
            self.report.event_writes += events

    def _led(self, desired: Desired) -> None:
        if self._source is not None and isinstance(desired.checkout, ClusterCheckout):
            self._source.remember(desired.checkout)


def own_identity() -> str:
    """Unique to this process: the pod's or machine's name, and a random part."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:12]}"
