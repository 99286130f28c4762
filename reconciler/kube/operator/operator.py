"""A reconciler that stays beside its clusters: who leads, what is written, what is served.

operator = Operator(apis, wake, serves, documents)
loop = Loop(..., listeners=(*operator.listeners, console), wake)
with operator:
    loop.run()
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from reconciler.api.fleet import FleetPolicy
from reconciler.kube.crsource.source import ClusterCheckout, ClusterSource
from reconciler.kube.leaderelection.leadership import CLIENT_GO, Leadership
from reconciler.kube.operator.idle import IdleListener, IdleReport
from reconciler.kube.server import Serves
from reconciler.kube.server.board import Board
from reconciler.kube.status.attempts import Attempts
from reconciler.kube.status.reporter import ClusterStatusWriter, StatusListener
from reconciler.loop import Listener

if TYPE_CHECKING:
    from reconciler.kube.client.api import ApiServer
    from reconciler.kube.leaderelection.lease import Times
    from reconciler.kube.server.thread import OperatorServer
    from reconciler.loop import Pass, Wake
    from reconciler.loop.desired import Desired
    from reconciler.page.values import Documents


class Operator(Listener):
    """Holds the Leases, writes statuses and events, and serves HTTP while it is entered."""

    def __init__(
        self,
        apis: Sequence[ApiServer],
        wake: Wake,
        serves: Serves,
        documents: Callable[[], Documents],
        source: ClusterSource | None = None,
        times: Times = CLIENT_GO,
        *,
        stays: bool = True,
    ) -> None:
        """`documents` are what the page is made of, as they are now. `source`: the clusters' own
        objects are the fleet; it is notified of what was followed. `stays`: longer than a revision
        takes, so that what changes with the traffic is written too."""
        identity = own_identity()
        self._wake = wake
        self._serves, self._documents = serves, documents
        self._source = source
        self._serving: OperatorServer | None = None
        self._attempts = Attempts()
        self.leadership = Leadership(apis, identity, wake.pass_now, times, wake.fetch)
        self.board = Board(lambda: self.leadership.role)
        self._counting = threading.Lock()
        writers = [
            ClusterStatusWriter(api, partial(self.leadership.leads, api.name), identity, stays)
            for api in apis
        ]
        idles = [IdleReport(api, identity, times) for api in apis]
        self.listeners: tuple[Listener, ...] = (
            self,
            self.board,
            StatusListener(writers, self.count_writes, wake.pass_soon),
            IdleListener(idles, self.count_writes),
        )

    def on_followed(self, desired: Desired) -> None:
        """The Fleet's name determines the Lease."""
        fleets = desired.fleet.all(FleetPolicy)
        if fleets:
            self.leadership.follow(fleets[0].metadata.name)

    def on_applied(self, done: Pass) -> None:
        """What was applied of the clusters' own objects is remembered there."""
        checkout = done.desired.checkout
        if self._source is None or not self.leadership.leads_anywhere:
            return
        if isinstance(checkout, ClusterCheckout):
            self._attempts.attempt("", partial(self._source.remember, checkout))

    @property
    def port(self) -> int | None:
        """The HTTP port; None if it does not serve."""
        return self._serving.wait() if self._serving else None

    def __enter__(self) -> Self:
        if self._serves.listen is not None:
            from reconciler.kube.server.thread import OperatorServer  # the web framework is 40 ms

            self._serving = OperatorServer(self.board, self._documents, self._serves, self._news)
            self._serving.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """A standby takes over at once."""
        self.leadership.close()
        if self._serving is not None:
            self._serving.close()

    def _news(self) -> None:
        """A webhook call may reach any replica: pass it on to the leader."""
        self._wake.fetch()
        self.leadership.pass_on()

    def count_writes(self, statuses: int = 0, events: int = 0) -> None:
        """By the loop, and by the threads of whatever else writes."""
        with self._counting:
            self.board.status_writes += statuses
            self.board.event_writes += events


def own_identity() -> str:
    """Unique to this process: the pod's or machine's name, and a random part."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:12]}"
