"""The edge of every web server here: an error in one response ends that response only."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from reconciler.http.rate_limit import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

_BURST = 10  # bugs that are logged at once
_PER_S = (
    1 / 60
)  # and so many a second from then on: a client repeats a request as often as it likes
_log = logging.getLogger(__name__)


class Fence:
    """An ASGI application around another one. Its log tells bugs from clients that disconnect."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._allowance = Allowance(_BURST, _PER_S, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            _log.debug("%s %s: the client has disconnected", scope["method"], scope["path"])
        except Exception:  # noqa: BLE001  the edge: Starlette has sent the 500
            if self._allowance.take():
                _log.exception(
                    "a bug in this program: %s %s gives no answer", scope["method"], scope["path"]
                )
