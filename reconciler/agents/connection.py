"""One HTTP exchange with an agent: one deadline for all of it, a capped body, no redirects.

A timeout of a socket starts anew with every byte, so a server that drips would hold us for ever:
here every single read gets what is left until the deadline.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from reconciler.errors import AgentError

if TYPE_CHECKING:
    import ssl

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom to believe, and who we are. With `cert_sha256` exactly that certificate is accepted,
    self-signed or not; else what the system or `ca_file` vouches for."""

    cert_sha256: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Reply:
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
) -> Reply:
    """Send one request without a body. `deadline` is a time of time.monotonic().

    Raises AgentError, OSError (TimeoutError among them) or http.client.HTTPException.
    """
    assert url.hostname is not None
    port = url.port or _PORTS[url.scheme]
    sock = socket.create_connection((url.hostname, port), _left(deadline))
    try:
        if url.scheme == "https":
            sock = _secured(sock, url.hostname, trust, deadline)
        connection = http.client.HTTPConnection(url.hostname, port)
        connection.sock = Deadlined(sock, deadline)  # it uses no more of a socket
        path = url.path + (f"?{url.query}" if url.query else "")
        connection.request(method, path, headers={**headers, "Connection": "close"})
        response = connection.getresponse()
        body = _body(response, most_bytes)
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, body)
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
    context = _context(trust)
    plain.settimeout(_left(deadline))
    secure = context.wrap_socket(plain, server_hostname=host)
    if trust.cert_sha256 is not None:
        shown = hashlib.sha256(secure.getpeercert(binary_form=True) or b"").hexdigest()
        if shown != trust.cert_sha256:
            secure.close()
            raise AgentError(
                f"its certificate has sha256 {shown}, and the FleetNode states"
                f" {trust.cert_sha256}: if its agent made a new one, put that into"
                " spec.agent.certSha256, else somebody stands between"
            )
    return secure


def _context(trust: Trust) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(cafile=trust.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if trust.cert_sha256 is not None:  # the pin decides, right after the handshake
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if trust.cert_file is not None:
        context.load_cert_chain(trust.cert_file, trust.key_file)
    return context


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class Deadlined:
    """As much of a socket as http.client uses, with a deadline that can be moved."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self.deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left(self.deadline))
        self._sock.sendall(data)

    def receive(self, buffer: memoryview) -> int:
        """How many bytes came; 0: the other side has ended."""
        self._sock.settimeout(_left(self.deadline))
        return self._sock.recv_into(buffer)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """http.client closes before it reads the body; whoever opened the socket does it after."""


class _Reader(io.RawIOBase):
    def __init__(self, source: Deadlined) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # all it is given
        return self._source.receive(buffer)
