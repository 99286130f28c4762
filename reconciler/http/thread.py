"""A web server in a thread of its own, for a program whose work is something else."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Self

from reconciler.http.server import MOST_CONNECTIONS, Server, bound

if TYPE_CHECKING:
    import ssl
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
