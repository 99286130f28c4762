"""Connections of our HTTP clients: plain TCP or through a proxy, with one deadline for everything.

A socket's timeout starts again with every byte, so a server that sends one byte at a time could
hold a client for ever: here every single read gets what is left until the deadline. `http.client`
speaks the protocol; TLS, and which server a client trusts, are its own.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import ipaddress
import os
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import SplitResult, unquote

if TYPE_CHECKING:
    import ssl

PORTS = {"http": 80, "https": 443}
_LARGEST_LENGTH = 1 << 62
_LONGEST_QUOTE = 80  # characters


class ProxyNotSupported(OSError):
    """A proxy that does not know CONNECT over plain HTTP."""


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Judge = Callable[[IpAddress], Exception | None]


def connect(
    url: SplitResult, proxy: SplitResult | None, deadline: float, judge: Judge | None = None
) -> socket.socket:
    """A TCP connection to the host of an http(s) URL, or a tunnel to it. `deadline` is a time of
    time.monotonic(). `judge` returns the reason against an address of the host, before anything is
    sent there; a proxy resolves names itself. Raises that reason if it is against each address, and
    OSError, TimeoutError and ProxyNotSupported among them."""
    host, port = url.hostname, url.port or PORTS[url.scheme]
    assert host is not None
    if proxy is None:
        return _connect_directly(host, port, deadline, judge)
    if proxy.scheme != "http" or not proxy.hostname:
        raise ProxyNotSupported(
            f"a proxy by {proxy.scheme} is not supported, only by http (CONNECT)"
        )
    left = time_left(deadline)
    tunnel = http.client.HTTPConnection(  # noqa: TID251 - CONNECT
        proxy.hostname, proxy.port or PORTS["http"], timeout=left
    )
    tunnel.set_tunnel(host, port, headers=_login(proxy))
    tunnel.connect()
    return tunnel.sock


def _connect_directly(host: str, port: int, deadline: float, judge: Judge | None) -> socket.socket:
    """Resolve the name once, and connect to an address that was judged: a second lookup may have
    another answer."""
    refusals: list[Exception] = []
    failures: list[OSError] = []
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        refusal = judge(_ip_address(str(address[0]))) if judge is not None else None
        if refusal is not None:
            refusals.append(refusal)
            continue
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(time_left(deadline))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failures.append(error)
        else:
            return sock
    raise (*failures[-1:], *refusals, OSError(f"{host} has no address"))[0]


def _ip_address(text: str) -> IpAddress:
    """Without the zone of a link, and IPv4 as such."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def secured(sock: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    """TLS over a connection, with this name expected of the server. Raises OSError; then the
    connection is the caller's to close."""
    sock.getpeername()  # wrap_socket forgets to close one whose other side has just gone
    return context.wrap_socket(sock, server_hostname=host)


def system_trust() -> ssl.SSLContext:
    """The TLS context of this machine's authorities."""
    return _system_trust(file_ages(authorities()))


@functools.lru_cache(maxsize=1)
def _system_trust(_trusted: tuple[object, ...]) -> ssl.SSLContext:
    """One for each state of the authorities: to load them takes 25 ms, and a plan asks hundreds of
    times."""
    import ssl

    return ssl.create_default_context()


def authorities() -> tuple[str, ...]:
    """The file and the folder of the certificate authorities that this machine trusts."""
    import ssl

    paths = ssl.get_default_verify_paths()
    return tuple(path for path in (paths.cafile, paths.capath) if path)


def file_ages(files: Iterable[Path | str | None]) -> tuple[object, ...]:
    """What a TLS context was made of, to make another when it changes: to load a system's
    authorities takes 20 ms of CPU, and there may be thousands of connections."""
    ages = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # loading it reports that it is gone
            ages.append((file, os.stat(file).st_mtime_ns if file else 0))
    return tuple(ages)


def _login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + b64encode(login.encode()).decode()}


def time_left(deadline: float) -> float:
    """Raises TimeoutError if it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class BoundedResponse(http.client.HTTPResponse):
    """An answer whose stated length is one that a file could have."""

    def begin(self) -> None:
        try:
            super().begin()
        except http.client.RemoteDisconnected:
            raise
        except http.client.BadStatusLine as error:
            line = f"{str(error)[:_LONGEST_QUOTE]!r}"
            raise http.client.BadStatusLine(f"what answers there speaks no HTTP: {line}") from None
        if self.length is not None and self.length > _LARGEST_LENGTH:
            raise http.client.HTTPException("its answer states a length that nothing has")


class Duplex(Protocol):
    """What is used here of a socket."""

    def settimeout(self, timeout_s: float, /) -> None: ...
    def sendall(self, data: bytes, /) -> None: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def close(self) -> None: ...


class Deadlined:
    """The part of a socket that http.client uses, with a deadline that can be moved."""

    def __init__(self, sock: Duplex, deadline: float, buffer: int = io.DEFAULT_BUFFER_SIZE) -> None:
        """`buffer`: bytes that are read at once."""
        self._sock = sock
        self._buffer = buffer
        self._waits = True
        self.deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(time_left(self.deadline))
        self._sock.sendall(data)

    def receive(self, buffer: memoryview) -> int | None:
        """How many bytes came; 0: the other side has ended; None: none are there, `at_once`."""
        if self._waits:
            self._sock.settimeout(time_left(self.deadline))
            return self._sock.recv_into(buffer)
        self._sock.settimeout(0.0)
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            return None

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Reading does not wait meanwhile."""
        self._waits = False
        try:
            yield
        finally:
            self._waits = True

    def makefile(self, _: str) -> io.BufferedReader:
        return BoundedReader(_Reader(self), self._buffer)

    def close(self) -> None:
        """http.client closes before it reads the body; the socket's owner closes it afterwards."""


class BoundedStream(io.RawIOBase):
    """What is read of another machine, always so many bytes: http.client takes a chunk of a size
    below zero for all that there is."""

    def readable(self) -> bool:
        return True

    def readall(self) -> bytes:
        raise http.client.HTTPException("its answer has a part of a negative size")


class BoundedReader(io.BufferedReader):
    """A buffer over it. http.client looks ahead by the size of a chunk, whatever it states."""

    def peek(self, size: int = 0, /) -> bytes:
        return super().peek(min(size, io.DEFAULT_BUFFER_SIZE))


class _Reader(BoundedStream):
    def __init__(self, source: Deadlined) -> None:
        self._source = source

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]  # all it is given
        return self._source.receive(buffer)
