"""The extender, wired: watches, the labelers' metrics, and the web server over them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.http.thread import ServerThread
from reconciler.kube.extender.app import make_app
from reconciler.kube.extender.judge import Judge
from reconciler.kube.extender.tally import Sources, Tally
from reconciler.kube.extender.utilisation import UtilisationReader
from reconciler.kube.extender.watching import FactsWatch

if TYPE_CHECKING:
    import ssl

    from reconciler.kube.client.api import ApiServer
    from reconciler.placement.score import ScoreWeights

_CONNECTIONS = 512  # of schedulers, which ask in parallel
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Serving:
    """Where it listens. `tls` None: plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


class _Judges:
    """A Judge over the newest facts; another one whenever they change."""

    def __init__(self, weights: ScoreWeights, prefix: str) -> None:
        self._weights, self._prefix = weights, prefix
        self.now: Judge | None = None

    def renew(self, watch: FactsWatch) -> None:
        is_first = self.now is None
        if watch.current is not None:
            self.now = Judge(watch.current, self._weights, self._prefix)
            if is_first:
                _log.info("%d nodes are known", len(watch.current.nodes))


@contextmanager
def serving(api: ApiServer, weights: ScoreWeights, prefix: str, at: Serving) -> Iterator[int]:
    """Answers inside the block; yields its port. Raises OSError: it cannot listen."""
    judges = _Judges(weights, prefix)
    watch = FactsWatch(api, prefix, lambda: judges.renew(watch))
    reader = UtilisationReader(lambda: watch.labelers)
    sources = Sources(lambda: judges.now, reader.now, lambda: watch.problems)
    app = make_app(sources, Tally())
    server = ServerThread(app, at.host, at.port, at.tls, connections=_CONNECTIONS)
    watch.start()
    reader.start()
    try:
        with server:
            _log.info("schedulers are answered on port %d, weights %s", server.port, weights)
            yield server.port
    finally:
        reader.stop()
        watch.stop()
