"""What the servers of tests share: each runs in a thread of its own while a `with` lasts."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Self


class Serving:
    """Base of a server. It listens from the beginning, and answers inside of the `with`."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,))

    def let_go(self) -> None:
        """Before it ends: release what waits."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.let_go()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
