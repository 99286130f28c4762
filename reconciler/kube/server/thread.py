"""What a reconciler answers over HTTP, for as long as it runs."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING

from reconciler.http.server import is_loopback
from reconciler.http.stream import streams_of
from reconciler.http.thread import RetryingServer, Site
from reconciler.kube.server import page_token
from reconciler.kube.server.app import make_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.http.server import ListeningSocket
    from reconciler.kube.server import Serves
    from reconciler.kube.server.board import Board
    from reconciler.page.values import Documents

_RETRY_S = 10.0
_log = logging.getLogger(__name__)


class OperatorServer:
    """Answers from `start` until `close`."""

    def __init__(
        self,
        board: Board,
        documents: Callable[[], Documents],
        serves: Serves,
        wake: Callable[[], None],
        *,
        retry_s: float = _RETRY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert serves.listen is not None, "nothing is served"
        self._board, self._documents = board, documents
        self._serves, self._wake = serves, wake
        self._listen, self._clock = serves.listen, clock
        self._begun = threading.Event()
        self.port: int | None = None  # None: not listening
        self._server = RetryingServer(
            *(self._listen.host, self._listen.port, self._open, self._fail), retry_s=retry_s
        )

    def start(self) -> None:
        self._server.start()

    def wait(self, timeout_s: float = 10.0) -> int | None:
        """The port, as soon as it listens."""
        self._begun.wait(timeout_s)
        return self.port

    def close(self) -> None:
        """Stop answering. Returns within a few seconds, whatever clients do."""
        self._server.close()

    @contextlib.contextmanager
    def _open(self, listener: ListeningSocket) -> Iterator[Site]:
        def begun() -> None:
            self.port = listener.getsockname()[1]
            _log.info("page, health, metrics and webhook are served on port %d", self.port)
            self._begun.set()

        pages = page_token.pages(
            self._documents,
            self._serves.page_token_file,
            self._clock,
            is_loopback=is_loopback(listener),
        )
        with streams_of(self._board.feed) as streams:
            secret_file = self._serves.secret_file
            app = make_app(self._board, pages, streams, secret_file, self._wake, self._clock)
            try:
                yield Site(app, None, begun, ends=streams.close)
            finally:
                self.port = None

    def _fail(self, error: Exception) -> None:
        if isinstance(error, OSError):
            at = f"{self._listen.host}:{self._listen.port}"
            _log.warning("--listen %s: %s; goes on without, and tries again", at, error)
        else:
            _log.error("a bug in this program ended the server", exc_info=error)
