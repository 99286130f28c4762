"""The thread that answers, and what it needs around it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING

from reconciler.http.server import Server, bound
from reconciler.kube.server.app import make_app

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.console.value import Listen
    from reconciler.kube.server import Serves
    from reconciler.kube.server.board import Board

_RETRY_S = 10.0
_log = logging.getLogger(__name__)


class OperatorServer:
    """Answers from `start` until `close`. Where the port cannot be had, the loop goes on without,
    and it is tried again."""

    def __init__(
        self,
        board: Board,
        serves: Serves,
        wake: Callable[[], None],
        *,
        retry_s: float = _RETRY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board, self._serves, self._wake = board, serves, wake
        self._clock = clock
        self._retry_s = retry_s
        self._ending = threading.Event()
        self._begun = threading.Event()
        self._lock = threading.Lock()
        self._server: tuple[asyncio.AbstractEventLoop, Server] | None = None
        self.port: int | None = None  # None: not listening
        self._thread = threading.Thread(target=self._run, name="serving", daemon=True)

    def start(self) -> None:
        if self._serves.listen is not None:
            self._thread.start()

    def wait(self, timeout_s: float = 10.0) -> int | None:
        """The port, as soon as it listens."""
        self._begun.wait(timeout_s)
        return self.port

    def close(self) -> None:
        """Stop answering. Returns within a few seconds, whatever clients do."""
        self._ending.set()
        with self._lock:
            if self._server is not None:
                loop, server = self._server
                with contextlib.suppress(RuntimeError):  # its loop has ended by itself
                    loop.call_soon_threadsafe(server.end)
        if self._thread.is_alive():
            self._thread.join(10.0)

    def _run(self) -> None:
        assert self._serves.listen is not None
        while not self._ending.is_set():
            try:
                self._serve(self._serves.listen)
            except OSError as error:
                host, port = self._serves.listen.host, self._serves.listen.port
                _log.warning(
                    "--listen %s:%d: %s; goes on without, and tries again", host, port, error
                )
            except Exception:  # noqa: BLE001  a thread's edge: the fleet matters more
                _log.exception("a bug in this program ended the server")
            self.port = None
            self._ending.wait(self._retry_s)

    def _serve(self, listen: Listen) -> None:
        """Until `close`. Raises OSError."""
        with bound(listen.host, listen.port) as listener:
            app = make_app(self._board, self._serves.secret_file, self._wake, self._clock)

            async def serve() -> None:
                server = Server(app, None, begun=begun, ends=lambda: None)
                with self._lock:
                    self._server = (asyncio.get_running_loop(), server)
                    server.should_exit = self._ending.is_set()
                try:
                    await server.serve([listener])
                finally:
                    with self._lock:
                        self._server = None

            def begun() -> None:
                self.port = listener.getsockname()[1]
                _log.info("health, metrics and the webhook are served on port %d", self.port)
                self._begun.set()

            asyncio.run(serve())
