"""The thread that serves a node's HTTP API, and what it needs."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import platform
import socket
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.machine.sensors import Sensors
from agent.process.holders import taken_by
from agent.process.ports import not_local
from agent.server import SERVED_FILE, ListenSettings, ServerAddress, served
from agent.server.answer import Answers
from agent.server.app import make_app
from agent.server.ask import Questions
from agent.server.guard import Access
from agent.server.logs import Logs
from agent.server.tls import Tls, open_tls
from reconciler.api.errors import ReconcilerError
from reconciler.atomic import atomic_write
from reconciler.http.server import is_loopback
from reconciler.http.stream import HEARTBEAT_S, Streams, streams_of
from reconciler.http.thread import RetryingServer, Site
from reconciler.loop import Listener
from reconciler.page.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

    from agent.node.node import Node
    from agent.server.board import StateBoard
    from agent.server.metrics import NodeCollector
    from agent.server.sampler import Sampler
    from reconciler.http.server import ListeningSocket
    from reconciler.loop import Wake

_RETRY_S = 30.0
_LOOPBACK = ("127.0.0.1", "::1")
_WHERE_TOKEN_IS = "in the file tls/token of the agent's state directory"  # noqa: S105 - no token
_log = logging.getLogger(__name__)


class StateServer(Listener):
    """The server's thread, and the one that measures for it."""

    def __init__(
        self,
        node: Node,
        board: StateBoard,
        listen: ListenSettings,
        wake: Wake,
        *,
        sampler: Sampler,
        retry_s: float = _RETRY_S,
        heartbeat_s: float = HEARTBEAT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node, self._board = node, board
        self._listen, self._wake = listen, wake
        self._sampler = sampler
        self._sensors = Sensors()
        self._retry_s, self._heartbeat_s = retry_s, heartbeat_s
        self._server = RetryingServer(
            listen.host, listen.port, self._open, self._fail, retry_s=retry_s
        )
        self._settled = threading.Event()
        self._clock = clock
        self._tls: Tls | None = None  # of the server that answers now
        self.now = ServerAddress()
        self._address_file = node.agent.state.root / SERVED_FILE

    def start(self) -> None:
        self._sampler.start()
        self._sensors.start()
        self._server.start()

    def wait(self, timeout_s: float = 10.0) -> ServerAddress:
        """Where it listens, or why not, as soon as either is known."""
        self._settled.wait(timeout_s)
        return self.now

    def close(self) -> None:
        """Stop. Returns within a few seconds, whatever clients do."""
        self._server.close()
        self._sampler.close()
        self._sensors.close()
        self._address_file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _open(self, listener: ListeningSocket) -> Iterator[Site]:
        """Raises StateError."""
        tls = None
        if not is_loopback(listener):
            names = self._names(listener.getsockname()[0])
            root, client_ca = self._node.agent.state.root, self._listen.client_ca_file
            tls = open_tls(root, names, client_ca, self._clock())
        now = ServerAddress(
            _url(listener.getsockname(), secure=tls is not None),
            tls.certificate.sha256 if tls else None,
        )
        self._tls = tls
        with streams_of(self._board.feed, heartbeat_s=self._heartbeat_s) as streams:
            yield Site(
                self._app(streams, tls),
                tls.context if tls else None,
                begun=lambda: self._say(now),
                ends=streams.close,
            )

    def _fail(self, error: Exception) -> None:
        if isinstance(error, OSError | ReconcilerError):
            self._say(ServerAddress(problem=self._why(error)))
            return
        _log.error("a bug in this program ended the server of the node's state", exc_info=error)
        why = f"a bug in this program: {type(error).__name__}: {error}"
        self._say(ServerAddress(problem=why))

    def _app(self, streams: Streams, tls: Tls | None) -> ASGIApp:
        answers = Answers(self._node, self._board, self._sampler)

        def metrics() -> NodeCollector:
            # prometheus_client is 1.3 MiB, which an agent without scrapes saves
            from agent.server.metrics import NodeCollector

            return NodeCollector(self._node, self._board, self._sampler, self._sensors, answers)

        access = _access(tls.token) if tls else Access()
        logs = Logs(self._node.agent.state, access)
        questions = Questions(self._node.agent.processes.snapshot)
        return make_app(answers, self._board, metrics, streams, self._wake, access, logs, questions)

    def _names(self, address: str) -> tuple[str, ...]:
        """Names of this machine, for its certificate."""
        host = platform.node()
        stated = (self._listen.host_ip, self._listen.host, address)
        named = (host, host.partition(".")[0], "localhost", "127.0.0.1", "::1", *stated)
        return tuple(name for name in named if name and name not in ("0.0.0.0", "::"))  # noqa: S104 - no name

    def _why(self, error: Exception) -> str:
        host, port = self._listen.host, self._listen.port
        taken = taken_by(host, port) if isinstance(error, OSError) else None
        if isinstance(error, OSError) and _lacks_address(error):
            local = next((host for host in _LOOPBACK if not_local(host) is None), _LOOPBACK[0])
            remedy = f"; choose an address of this machine, such as --listen {local}"
        else:
            remedy = "; choose another with --port" if taken else ""
        again = f"goes on without, and tries again every {self._retry_s:.0f} s"
        return f"{taken or error}{remedy}: {again}"

    def _say(self, now: ServerAddress) -> None:
        """Log changes, and store them for `fleet-agent status`."""
        if now == self.now:
            return
        self.now = now
        if now.problem:
            _log.warning("the node's state is not served: %s", now.problem)
        else:
            shown = f", certSha256 {now.cert_sha256}" if now.cert_sha256 else ""
            _log.info("the node's state is served on %s%s", now.url, shown)
        self.note()
        self._settled.set()

    def on_ended(self, seconds: float) -> None:
        if self._tls is not None and self.now.url:
            self._tls.check(self._clock())
            self.now = replace(self.now, cert_sha256=self._tls.certificate.sha256)
        self.note()

    def note(self) -> None:
        """Store where it listens where it is not there: the disk may have been full, or the file
        removed. For display only."""
        now = self.now
        if served(self._node.agent.state.root) == now or now == ServerAddress():
            return
        address = {"url": now.url, "certSha256": now.cert_sha256, "problem": now.problem}
        with contextlib.suppress(OSError):
            atomic_write(self._address_file, json.dumps(address).encode())


def _lacks_address(error: OSError) -> bool:
    return isinstance(error, socket.gaierror) or error.errno in (
        errno.EADDRNOTAVAIL,
        errno.EAFNOSUPPORT,
    )


def _access(token: bytes) -> Access:
    return Access(token, Session(lambda: token, _WHERE_TOKEN_IS, secure=True))


def _url(address: tuple[object, ...], *, secure: bool) -> str:
    host, port = str(address[0]), address[1]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
