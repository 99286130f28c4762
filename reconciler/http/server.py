"""A socket, and a web server on it: uvicorn in a thread of its own, with what it leaves open
closed."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import Server as UvicornServer
from uvicorn.server import ServerState

from reconciler.http.places import ConnectionSlots

if TYPE_CHECKING:
    import ssl

    from starlette.types import ASGIApp

MOST_HEADER_BYTES = 16 << 10
MOST_CONNECTIONS = 64  # with those that are still to show who they are
_HANDSHAKE_IN_S = 10.0
_REQUEST_IN_S = 10.0  # a connection whose request is not whole after so long is closed
_READ_IN_S = 10.0  # and one that takes no more of its answer
_IDLE_S = 30.0  # and one that was answered
_GRACE_S = 2.0


def bound(host: str, port: int, *, connections: int = MOST_CONNECTIONS) -> ListeningSocket:
    """A socket on the first address that the name has, for so many connections at once. Raises
    OSError."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = addresses[0]
    made = ListeningSocket(family, kind, protocol)
    made.places = ConnectionSlots(connections)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


class ListeningSocket(socket.socket):
    """Accepts no more connections at once than the whole agent can spare files for: a client that
    opens a thousand and sends nothing would otherwise leave none to start a model with."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # as of any socket
        super().__init__(*args, **kwargs)
        self.places = ConnectionSlots(MOST_CONNECTIONS)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept as any socket does; ConnectionAbortedError, which asyncio takes for a client that
        changed its mind, where there is no place."""
        made, address = super().accept()
        if not self.places.take(made, address):
            made.close()
            raise ConnectionAbortedError
        return made, address


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


class Server(UvicornServer):
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
        self.servers = []
        self._begun, self._ends = begun, ends
        self._ending: asyncio.Event | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin as uvicorn does, on bound sockets and with less patience for handshakes."""
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        tls = self.config.ssl
        for listener in sockets or ():
            assert isinstance(listener, ListeningSocket)
            server = await loop.create_server(
                functools.partial(self._protocol, listener.places),
                sock=listener,
                ssl=tls,
                backlog=self.config.backlog,
                ssl_handshake_timeout=_HANDSHAKE_IN_S if tls else None,
                ssl_shutdown_timeout=_GRACE_S if tls else None,
            )
            self.servers.append(server)
        self.started = True

    def _protocol(self, places: ConnectionSlots) -> H11Protocol:
        return _Impatient(self.config, self.server_state, self.lifespan.state, places)

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


def _config(app: ASGIApp, tls: ssl.SSLContext | None) -> Config:
    return Config(
        app,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level=logging.CRITICAL,  # what a client does wrong is the client's news
        access_log=False,
        server_header=False,
        date_header=False,  # would need the clock
        proxy_headers=False,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_keep_alive=int(_IDLE_S),
        timeout_graceful_shutdown=int(_GRACE_S),
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )


class _Impatient(H11Protocol):
    """Drops connections on which no request comes or no answer is read, and passes on who a TLS
    client is. Tells the listener's places whose request is whole and takes its answer."""

    _patience: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        places: ConnectionSlots,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._places = places

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._peer = transport.get_extra_info("peername")
        known = bool(transport.get_extra_info("peercert"))
        self.app_state: dict[str, Any] = {**self.app_state, "client_certificate": known}
        self._expect_request()

    def handle_events(self) -> None:
        super().handle_events()
        self._places.answering(self._peer, now=self._is_answered and not self._unread)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._places.answering(self._peer, now=False)
        self._expect_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._places.answering(self._peer, now=False)
        self._unread = self.loop.call_later(_READ_IN_S, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        self._places.answering(self._peer, now=self._is_answered)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._patience, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    @property
    def _is_answered(self) -> bool:
        """Whether a request has come whole, and its answer is not complete."""
        return bool(self.cycle and not (self.cycle.more_body or self.cycle.response_complete))

    def _expect_request(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        wait_s = _REQUEST_IN_S if self.cycle is None else _IDLE_S
        self._patience = self.loop.call_later(wait_s, self._give_up, self.cycle)

    def _give_up(self, before: object) -> None:
        if self.cycle is before or self.cycle.more_body:
            self.transport.abort()  # close would wait until everything is read
