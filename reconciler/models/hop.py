"""One GET with redirects. Each hop is checked: host, scheme, and the address, before it is reached.

A login is sent only to the origin it is for, and so never follows a redirect. No cookies.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from urllib.parse import SplitResult, urlsplit, urlunsplit

from reconciler import __version__
from reconciler.api.errors import DownloadFailed, HostUnreachable, ModelError, error_text
from reconciler.http.connect import (
    PORTS,
    BoundedReader,
    BoundedResponse,
    IpAddress,
    connect,
    secured,
    system_trust,
)
from reconciler.http.proxies import proxy_for
from reconciler.models.pace import PacedStream
from reconciler.models.scheme import FetchContext, FileAccess
from reconciler.models.url import (
    how_to_allow,
    mirrored,
    next_hop,
    origin_of,
    shown,
    stated_hosts,
)

_MAX_REDIRECTS = 5
_TIMEOUT_S = 60.0  # without a byte, or without the end of the response headers
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@contextmanager
def get(
    source: str,
    headers: Mapping[str, str],
    context: FetchContext,
    cancelled: threading.Event,
    access: FileAccess | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[http.client.HTTPResponse]:
    """The first response that is not a redirect, open for reading, whatever its status. Its bytes
    must arrive at a minimum rate (pace.py).

    Raises DownloadFailed for all network errors, also while the body is read, and ModelError for a
    hop that the rules forbid.
    """
    url = mirrored(source, context.mirrors)
    stated = stated_hosts(source, context)
    if access is not None and access.is_own:
        stated |= {urlsplit(access.origin).hostname or ""}
    for _ in range(_MAX_REDIRECTS + 1):
        sent = {**headers, **_login(url, access)}
        with _translated(url), _request(url, sent, stated, context, cancelled, clock) as response:
            if response.status not in _REDIRECTS:
                yield response
                return
            location = response.getheader("Location")
            target = next_hop(url, location, context, access.domains if access else ())
        url = target
    raise DownloadFailed(f"{shown(source)}: more than {_MAX_REDIRECTS} redirects")


def _login(url: str, access: FileAccess | None) -> Mapping[str, str]:
    if access is None or origin_of(url) != access.origin:
        return {}
    if access.sign is not None:
        return access.sign(url)
    return {"Authorization": access.authorization} if access.authorization else {}


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn network errors into DownloadFailed."""
    host = _host(urlsplit(url))
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise DownloadFailed(
            f"{host}: its certificate is not trusted here: {error.verify_message}"
            " (SSL_CERT_FILE names a bundle of your own authorities)"
        ) from error
    except TimeoutError as error:
        raise DownloadFailed(f"{host}: no answer within {_TIMEOUT_S:.0f} s") from error
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise DownloadFailed(f"{host}: {error_text(error)}") from error


@contextmanager
def _reached(host: str) -> Iterator[None]:
    """Say of an error without any answer that it concerns all that the host has."""
    try:
        yield
    except TimeoutError:
        raise  # another one of its addresses may answer the next time
    except socket.gaierror as error:
        raise HostUnreachable(
            f"{host}: this name is not known here ({error_text(error)}); check its spelling, and"
            " this machine's network"
        ) from error
    except OSError as error:
        raise HostUnreachable(f"{host}: {error_text(error)}") from error


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


@contextmanager
def _request(
    url: str,
    headers: Mapping[str, str],
    stated: frozenset[str],
    context: FetchContext,
    cancelled: threading.Event,
    clock: Callable[[], float],
) -> Iterator[http.client.HTTPResponse]:
    parts = urlsplit(url)
    port = PORTS[parts.scheme]
    connection = http.client.HTTPConnection(  # noqa: TID251 - it gets its connection below
        parts.hostname or "", parts.port or port
    )
    connection.default_port = port  # which no Host header names: some hosts sign it
    connection.sock = _connected(parts, stated, context)
    try:
        with _unblocked_by(cancelled, connection.sock):
            target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
            agent = {"User-Agent": f"fleet-reconciler/{__version__}"}
            connection.request("GET", target, headers=agent | dict(headers))
            connection.response_class = _paced(clock)
            with connection.getresponse() as response:
                yield response
    finally:
        connection.close()


def _connected(parts: SplitResult, stated: frozenset[str], context: FetchContext) -> socket.socket:
    """Connect to the host of the URL, at an address that may be asked. A proxy is the user's own,
    and has its own rules."""
    with _reached(_host(parts)):
        judge = partial(_refusal, parts, stated, context)
        sock = connect(parts, proxy_for(parts), time.monotonic() + _TIMEOUT_S, judge)
    try:
        sock.settimeout(_TIMEOUT_S)
        if parts.scheme == "https":
            return secured(sock, system_trust(), parts.hostname or "")
    except BaseException:
        sock.close()
        raise
    return sock


def _paced(clock: Callable[[], float]) -> type[http.client.HTTPResponse]:
    class Response(BoundedResponse):
        def begin(self) -> None:
            paced = PacedStream(self.fp.detach(), clock, first_by=clock() + _TIMEOUT_S)
            self.fp = BoundedReader(paced)
            super().begin()  # accepts any number of `100 Continue`
            paced.first_by = None

    return Response


def _refusal(
    parts: SplitResult, stated: frozenset[str], context: FetchContext, address: IpAddress
) -> ModelError | None:
    """The reason not to connect to an address of the URL's host. It is the same whether anything
    listens there."""
    host = parts.hostname or ""
    if parts.scheme == "http" and not address.is_loopback:
        return ModelError(f"{host} is at {address}, not on this machine: use https")
    if not address.is_global and host not in stated:
        return ModelError(
            f"it leads to {host} at the private address {address}: not followed;"
            f" {how_to_allow(host, context)}"
        )
    return None


@contextmanager
def _unblocked_by(cancelled: threading.Event, peer: socket.socket) -> Iterator[None]:
    """End a blocked read as soon as the download is cancelled: it sees the end of the stream."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            if cancelled.is_set():
                # of the plain socket: SSLSocket.shutdown would take the TLS state from the reader
                with _already_closed():
                    socket.socket.shutdown(peer, socket.SHUT_RDWR)
                return

    watcher = threading.Thread(target=watch, name="download-stop", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


@contextmanager
def _already_closed() -> Iterator[None]:
    try:
        yield
    except OSError:
        return
