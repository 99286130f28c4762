"""One HTTP exchange under one policy: no redirect, no cookie, a deadline, and a bounded answer.

Credentials are the caller's headers, so they reach the host of the URL alone.
"""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from reconciler.http.connect import (
    PORTS,
    BoundedResponse,
    Deadlined,
    connect,
    secured,
    system_trust,
    time_left,
)
from reconciler.http.proxies import proxy_for

if TYPE_CHECKING:
    import ssl

Secure = Callable[[socket.socket, str, float], "ssl.SSLSocket"]


class UnusableAnswer(http.client.HTTPException):
    """An answer that is longer than its policy allows, or ends early."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """`body` None: none."""

    method: str
    url: SplitResult
    headers: Mapping[str, str]
    body: bytes | None = None


def by_system(plain: socket.socket, host: str, deadline: float) -> ssl.SSLSocket:
    """TLS with the authorities of this machine."""
    plain.settimeout(time_left(deadline))
    return secured(plain, system_trust(), host)


@dataclass(frozen=True, slots=True)
class HttpPolicy:
    """`most_bytes`: of a whole answer, or of a line of one that is read by lines. `proxies`: the
    user's proxy is used for hosts on the internet; a fleet's own machines are reached directly.
    `secure` makes TLS of a connection."""

    most_bytes: int
    proxies: bool = False
    secure: Secure = by_system


def exchange(request: HttpRequest, policy: HttpPolicy, *, deadline: float) -> HttpReply:
    """Send one request. `deadline` is a time of time.monotonic().

    Raises OSError (TimeoutError among them) or http.client.HTTPException.
    """
    with _answered(request, policy, deadline) as (response, _):
        body = _body(response, policy.most_bytes)
        return HttpReply(response.status, {k.lower(): v for k, v in response.getheaders()}, body)


@contextmanager
def open_lines(
    request: HttpRequest, policy: HttpPolicy, *, idle_s: float
) -> Iterator[tuple[int, Iterator[bytes]]]:
    """The status, and the lines of an answer that may be endless, each within `idle_s` of the last
    one. Raises as `exchange`, also while it is read."""
    with _answered(request, policy, time.monotonic() + idle_s) as (response, sock):

        def lines() -> Iterator[bytes]:
            while True:
                sock.deadline = time.monotonic() + idle_s
                line = response.readline(policy.most_bytes)
                if not line:
                    return
                yield line

        yield response.status, lines()


@contextmanager
def _answered(
    request: HttpRequest, policy: HttpPolicy, deadline: float
) -> Iterator[tuple[http.client.HTTPResponse, Deadlined]]:
    url, host = request.url, request.url.hostname
    assert host is not None
    sock = connect(url, proxy_for(url) if policy.proxies else None, deadline)
    try:
        if url.scheme == "https":
            sock = policy.secure(sock, host, deadline)
        connection = http.client.HTTPConnection(  # noqa: TID251 - it gets its connection below
            host, url.port or PORTS[url.scheme]
        )
        connection.default_port = PORTS[url.scheme]  # which no Host header names
        connection.response_class = BoundedResponse
        # http.client uses no more of a socket.
        connection.sock = limited = Deadlined(sock, deadline)
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = {**request.headers, "Connection": "close"}
        connection.request(request.method, path, request.body, headers)
        yield connection.getresponse(), limited
    finally:
        sock.close()


def _body(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    body = response.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise UnusableAnswer(f"its answer has more than {_size(most_bytes)}")
    if response.length:  # promised, and never came
        raise UnusableAnswer(f"its answer ended {response.length} bytes early")
    return body


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"
