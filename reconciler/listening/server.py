"""A socket, and a web server on it: uvicorn in a thread of its own, with what it leaves open
closed."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reconciler.listening import parts

if TYPE_CHECKING:
    import ssl

    from starlette.types import ASGIApp

MOST_HEADER_BYTES = 16 << 10
_MOST_CONNECTIONS = 64
_MOST_SOCKETS = 128  # with those that are still to show who they are; more find no room
_REQUEST_IN_S = 10.0  # a connection that asks nothing for so long is closed
_READ_IN_S = 10.0  # and one that takes no more of its answer
_IDLE_S = 30.0  # and one that was answered
_GRACE_S = 2.0


def bound(host: str, port: int) -> socket.socket:
    """A socket on the first address that the name has. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    made = _Listener(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


class _Listener(socket.socket):
    """Accepts no more connections at once than the whole agent can spare files for: whoever opens
    a thousand and says nothing would else leave none to start a model with."""

    _accepted: tuple[socket.socket, ...] = ()

    def accept(self) -> tuple[socket.socket, Any]:
        """As of any socket; ConnectionAbortedError, which asyncio takes for a client that changed
        its mind, where there are too many."""
        made, address = super().accept()
        open_ones = tuple(one for one in self._accepted if one.fileno() >= 0)
        if len(open_ones) >= _MOST_SOCKETS:
            made.close()
            raise ConnectionAbortedError
        self._accepted = (*open_ones, made)
        return made, address


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


class Server(parts.Server):
    """uvicorn until `end` is called, without its clock that ticks ten times a second."""

    def __init__(
        self,
        app: ASGIApp,
        tls: ssl.SSLContext | None,
        *,
        begun: Callable[[], None],
        ends: Callable[[], None],
    ) -> None:
        super().__init__(_config(app, tls))
        self._begun, self._ends = begun, ends
        self._ending: asyncio.Event | None = None

    async def main_loop(self) -> None:
        self._ending = asyncio.Event()
        self._begun()
        if not self.should_exit:
            await self._ending.wait()
        self._ends()

    def end(self) -> None:
        """In the server's loop."""
        self.should_exit = True
        if self._ending is not None:
            self._ending.set()


def _config(app: ASGIApp, tls: ssl.SSLContext | None) -> parts.Config:
    return parts.Config(
        app,
        http=_Impatient,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level=logging.CRITICAL,  # what a client does wrong is the client's news
        access_log=False,
        server_header=False,
        date_header=False,  # would need the clock
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_keep_alive=int(_IDLE_S),
        timeout_graceful_shutdown=int(_GRACE_S),
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )


class _Impatient(parts.H11Protocol):
    """Drops connections on which no request comes or no answer is read, and passes on who a TLS
    client is."""

    _patience: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        known = bool(transport.get_extra_info("peercert"))
        self.app_state: dict[str, Any] = {**self.app_state, "client_certificate": known}
        self._expect_request()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(_READ_IN_S, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._patience, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        wait_s = _REQUEST_IN_S if self.cycle is None else _IDLE_S
        self._patience = self.loop.call_later(wait_s, self._give_up, self.cycle)

    def _give_up(self, before: object) -> None:
        if self.cycle is before:
            self.transport.abort()  # close would wait until everything is read
