"""One HTTP exchange with an agent: one deadline for all of it, a capped body, no redirects."""

from __future__ import annotations

import functools
import hashlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from reconciler.api.errors import AgentError
from reconciler.http.connect import (
    PORTS,
    Deadlined,
    authorities,
    connect,
    file_ages,
    secured,
    time_left,
)

if TYPE_CHECKING:
    import ssl


_MAKING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom to believe, and who we are. With `cert_sha256` exactly that certificate is accepted,
    self-signed or not; else what the system or `ca_file` vouches for."""

    cert_sha256: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def exchange(
    method: str,
    url: SplitResult,
    headers: Mapping[str, str],
    trust: Trust,
    *,
    deadline: float,
    most_bytes: int,
) -> HttpReply:
    """Send one request without a body. `deadline` is a time of time.monotonic().

    Raises AgentError, OSError (TimeoutError among them) or http.client.HTTPException.
    """
    with _answered(method, url, headers, trust, deadline) as (response, _):
        body = _body(response, most_bytes)
        return HttpReply(response.status, {k.lower(): v for k, v in response.getheaders()}, body)


@contextmanager
def open_lines(
    url: SplitResult, headers: Mapping[str, str], trust: Trust, *, idle_s: float, most_bytes: int
) -> Iterator[tuple[int, Iterator[bytes]]]:
    """The status, and the lines of an answer that may be endless, each within `idle_s` of the last
    one and of so many bytes. Raises as `exchange`, also while it is read."""
    with _answered("GET", url, headers, trust, time.monotonic() + idle_s) as (response, sock):

        def lines() -> Iterator[bytes]:
            while True:
                sock.deadline = time.monotonic() + idle_s
                line = response.readline(most_bytes)
                if not line:
                    return
                yield line

        yield response.status, lines()


@contextmanager
def _answered(
    method: str, url: SplitResult, headers: Mapping[str, str], trust: Trust, deadline: float
) -> Iterator[tuple[http.client.HTTPResponse, Deadlined]]:
    assert url.hostname is not None
    sock = connect(url, None, deadline)
    try:
        if url.scheme == "https":
            sock = _secured(sock, url.hostname, trust, deadline)
        connection = http.client.HTTPConnection(url.hostname, url.port or PORTS[url.scheme])
        # http.client uses no more of a socket.
        connection.sock = limited = Deadlined(sock, deadline)
        path = url.path + (f"?{url.query}" if url.query else "")
        connection.request(method, path, headers={**headers, "Connection": "close"})
        yield connection.getresponse(), limited
    finally:
        sock.close()


def _body(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    body = response.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise AgentError(f"its answer has more than {most_bytes >> 20} MiB")
    if response.length:  # promised, and never came
        raise AgentError(f"its answer ended {response.length} bytes early")
    return body


def _secured(plain: socket.socket, host: str, trust: Trust, deadline: float) -> ssl.SSLSocket:
    context = tls_context(trust)
    plain.settimeout(time_left(deadline))
    secure = secured(plain, context, host)
    if trust.cert_sha256 is not None:
        shown = hashlib.sha256(secure.getpeercert(binary_form=True) or b"").hexdigest()
        if shown != trust.cert_sha256:
            secure.close()
            raise AgentError(
                f"its certificate has sha256 {shown}, and the FleetNode states"
                f" {trust.cert_sha256}: if its agent made a new one, put that into"
                " spec.agent.certSha256, otherwise the connection is being intercepted"
            )
    return secure


def tls_context(trust: Trust) -> ssl.SSLContext:
    """One for all agents, as long as the files that it is made of stay as they are: to load a
    system's authorities takes 20 ms of CPU, and there may be thousands of agents."""
    files: tuple[Path | str | None, ...] = (trust.cert_file, trust.key_file)
    if trust.cert_sha256 is None:
        files += (trust.ca_file,) if trust.ca_file else authorities()
    states = file_ages(files)
    is_pinned = trust.cert_sha256 is not None
    with _MAKING:  # threads that begin together would make one each
        return _context(replace(trust, cert_sha256=None), is_pinned, states)


@functools.lru_cache(maxsize=4)
def _context(trust: Trust, is_pinned: bool, _states: tuple[object, ...]) -> ssl.SSLContext:
    import ssl

    if is_pinned:  # the pin decides, right after the handshake
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = ssl.create_default_context(cafile=trust.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if trust.cert_file is not None:
        context.load_cert_chain(trust.cert_file, trust.key_file)
    return context
