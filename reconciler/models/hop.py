"""One GET over redirects. Each hop is checked: host, scheme, and the address that answers.

A login goes to the one origin that it is for, and so never follows a redirect. No cookies.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from reconciler import __version__
from reconciler.errors import DownloadFailed, ModelError
from reconciler.models.scheme import Access, FetchContext
from reconciler.models.url import (
    is_loopback,
    mirrored,
    next_hop,
    origin_of,
    shown,
    stated_hosts,
)

_MAX_REDIRECTS = 5
_TIMEOUT_S = 60.0  # without a byte
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@contextmanager
def get(
    source: str,
    headers: Mapping[str, str],
    context: FetchContext,
    cancelled: threading.Event,
    access: Access | None = None,
) -> Iterator[http.client.HTTPResponse]:
    """The first answer that is no redirect, open for reading, whatever its status.

    Raises DownloadFailed for everything that the network does, also while the body is read, and
    ModelError for a hop that the rules forbid.
    """
    url = mirrored(source, context.mirrors)
    stated = stated_hosts(source, context)
    for _ in range(_MAX_REDIRECTS + 1):
        sent = dict(headers) | _login(url, access)
        with _translated(url), _request(url, sent, stated, cancelled) as response:
            if response.status not in _REDIRECTS:
                yield response
                return
            location = response.getheader("Location")
            target = next_hop(url, location, context, access.domains if access else ())
        url = target
    raise DownloadFailed(f"{shown(source)}: more than {_MAX_REDIRECTS} redirects")


def _login(url: str, access: Access | None) -> dict[str, str]:
    if access is None or access.authorization is None or origin_of(url) != access.origin:
        return {}
    return {"Authorization": access.authorization}


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """What the network does, as DownloadFailed."""
    host = urlsplit(url).netloc.rpartition("@")[2]
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
        raise DownloadFailed(f"{host}: {error or type(error).__name__}") from error


@contextmanager
def _request(
    url: str, headers: Mapping[str, str], stated: frozenset[str], cancelled: threading.Event
) -> Iterator[http.client.HTTPResponse]:
    parts = urlsplit(url)
    proxy = _proxy_for(parts)
    connection = _connection(parts, proxy)
    try:
        connection.connect()
        if proxy is None:  # a proxy is the user's own, and knows what it may reach
            _check_peer(connection.sock, parts, stated)
        with _unblocked_by(cancelled, connection.sock):
            target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
            agent = {"User-Agent": f"fleet-reconciler/{__version__}"}
            connection.request("GET", target, headers=agent | dict(headers))
            with connection.getresponse() as response:
                yield response
    finally:
        connection.close()


def _connection(parts: SplitResult, proxy: SplitResult | None) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    tls = ssl.create_default_context()
    if proxy is None:
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=tls)
    connection = http.client.HTTPSConnection(
        proxy.hostname or "", proxy.port or 8080, timeout=_TIMEOUT_S, context=tls
    )
    connection.set_tunnel(host, port or 443, headers=_proxy_login(proxy))
    return connection


def _proxy_for(parts: SplitResult) -> SplitResult | None:
    """The user's proxy (https_proxy and no_proxy, or the system's settings)."""
    host = parts.hostname or ""
    if parts.scheme == "http" or is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxy = urllib.request.getproxies().get("https")
    return urlsplit(proxy if "//" in proxy else f"//{proxy}") if proxy else None


def _proxy_login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + b64encode(login.encode()).decode()}


def _check_peer(peer: socket.socket, parts: SplitResult, stated: frozenset[str]) -> None:
    """Judge the address that really answers: what a name resolves to can change in between."""
    text = str(peer.getpeername()[0]).partition("%")[0]
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    host = parts.hostname or ""
    if parts.scheme == "http" and not address.is_loopback:
        raise ModelError(f"{host} is at {address}, not on this machine: use https")
    if not address.is_global and host not in stated:
        raise ModelError(
            f"a redirect leads to {host} at the private address {address}: not followed"
            " (if it is yours, add it to the Fleet's allowedHosts)"
        )


@contextmanager
def _unblocked_by(cancelled: threading.Event, peer: socket.socket) -> Iterator[None]:
    """End a read that waits for bytes as soon as somebody asks to stop: it sees the stream end."""
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
