"""Web servers in a thread of their own, for programs whose work is something else."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from reconciler.http.server import MOST_CONNECTIONS, ListeningSocket, Server, bound

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from starlette.types import ASGIApp


class ServerThread:
    """Listens once it is made, and answers inside `with`. Raises OSError where it cannot listen."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        connections: int = MOST_CONNECTIONS,
    ) -> None:
        self._listener = bound(host, port, connections=connections)
        self.port: int = self._listener.getsockname()[1]
        self._server = Server(app, tls, begun=self._begin, ends=lambda: None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="serving", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Returns within a few seconds, whatever clients do."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended by itself
                self._loop.call_soon_threadsafe(self._server.end)
        self._thread.join(10.0)
        self._listener.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve([self._listener]))
        finally:
            self._begun.set()

    def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun.set()


@dataclass(frozen=True, slots=True)
class Site:
    """What is served on a socket. `begun` is called once it answers, and `ends` when it begins to
    end; both in the event loop."""

    app: ASGIApp
    tls: ssl.SSLContext | None
    begun: Callable[[], None]
    ends: Callable[[], None] = lambda: None


class RetryingServer:
    """Serves from `start` until `close`. Where the port cannot be had, or the server fails, the
    program goes on without, and it is tried again."""

    def __init__(
        self,
        host: str,
        port: int,
        opened: Callable[[ListeningSocket], AbstractContextManager[Site]],
        failed: Callable[[Exception], None],
        *,
        retry_s: float,
    ) -> None:
        """`opened` makes what is served, anew for each attempt, inside the event loop; `failed`
        learns why an attempt ended."""
        self._host, self._port = host, port
        self._opened, self._failed = opened, failed
        self._retry_s = retry_s
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._server: tuple[asyncio.AbstractEventLoop, Server] | None = None
        self._thread = threading.Thread(target=self._run, name="serving", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Returns within a few seconds, whatever clients do."""
        self._ending.set()
        with self._lock:
            if self._server is not None:
                loop, server = self._server
                with contextlib.suppress(RuntimeError):  # its loop has ended by itself
                    loop.call_soon_threadsafe(server.end)
        if self._thread.is_alive():
            self._thread.join(10.0)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                with bound(self._host, self._port) as listener:
                    asyncio.run(self._serve(listener))
            except Exception as error:  # noqa: BLE001  a thread's edge: the program's work goes on
                self._failed(error)
            self._ending.wait(self._retry_s)

    async def _serve(self, listener: ListeningSocket) -> None:
        with self._opened(listener) as site:
            server = Server(site.app, site.tls, begun=site.begun, ends=site.ends)
            with self._lock:
                self._server = (asyncio.get_running_loop(), server)
                server.should_exit = self._ending.is_set()
            try:
                await server.serve([listener])
            finally:
                with self._lock:
                    self._server = None
