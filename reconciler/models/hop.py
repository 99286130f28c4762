"""One GET with redirects. Each hop is checked: host, scheme, and the address of the peer.

A login is sent only to the origin it is for, and so never follows a redirect. No cookies.
"""

from __future__ import annotations

import functools
import http.client
import io
import ipaddress
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import SplitResult, urlsplit, urlunsplit

from reconciler import __version__
from reconciler.api.errors import DownloadFailed, HostUnreachable, ModelError, error_text
from reconciler.http.connect import PORTS, authorities, connect, file_ages, secured
from reconciler.models.pace import PacedStream
from reconciler.models.scheme import FetchContext, FileAccess
from reconciler.models.url import (
    how_to_allow,
    is_loopback,
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
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or port)
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
    """Connect to the host of the URL, once its address is known to be one that may be asked."""
    proxy = proxy_for(parts)
    with _reached(_host(parts)):
        sock = connect(parts, proxy, time.monotonic() + _TIMEOUT_S)
    try:
        sock.settimeout(_TIMEOUT_S)
        if proxy is None:  # a proxy is the user's own, and has its own rules
            _check_peer(sock, parts, stated, context)
        if parts.scheme == "https":
            trusted = _tls_context(file_ages(authorities()))
            return secured(sock, trusted, parts.hostname or "")
    except BaseException:
        sock.close()
        raise
    return sock


def _paced(clock: Callable[[], float]) -> type[http.client.HTTPResponse]:
    class Response(http.client.HTTPResponse):
        def begin(self) -> None:
            paced = PacedStream(self.fp.detach(), clock, first_by=clock() + _TIMEOUT_S)
            self.fp = io.BufferedReader(paced)
            super().begin()  # accepts any number of `100 Continue`
            paced.first_by = None

    return Response


@functools.lru_cache(maxsize=1)
def _tls_context(_trusted: tuple[object, ...]) -> ssl.SSLContext:
    """The context of one set of authorities: to load them takes 25 ms, and a plan asks hundreds of
    times."""
    return ssl.create_default_context()


def proxy_for(parts: SplitResult) -> SplitResult | None:
    """The user's proxy (https_proxy and no_proxy, or the system's settings)."""
    host = parts.hostname or ""
    if parts.scheme == "http" or is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxy = urllib.request.getproxies().get("https")
    return urlsplit(proxy if "//" in proxy else f"http://{proxy}") if proxy else None


def _check_peer(
    peer: socket.socket, parts: SplitResult, stated: frozenset[str], context: FetchContext
) -> None:
    """Check the address of the actual peer: what a name resolves to can change in between."""
    text = str(peer.getpeername()[0]).partition("%")[0]
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    host = parts.hostname or ""
    if parts.scheme == "http" and not address.is_loopback:
        raise ModelError(f"{host} is at {address}, not on this machine: use https")
    if not address.is_global and host not in stated:
        raise ModelError(
            f"it leads to {host} at the private address {address}: not followed;"
            f" {how_to_allow(host, context)}"
        )


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
