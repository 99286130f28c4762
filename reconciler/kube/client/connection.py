"""One connection to an API server: TCP or through a proxy, TLS with its CA alone, HTTP/1.1."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, urlsplit

from reconciler.http.connect import (
    PORTS,
    Deadlined,
    ProxyNotSupported,
    connect,
    time_left,
)
from reconciler.http.host import is_loopback
from reconciler.kube.client.credentials import Grant
from reconciler.kube.client.errors import AccessError
from reconciler.kube.client.tls import TlsSocket

_KEEPALIVE = (  # a dead peer is noticed after 30 s; not every system has each option
    ("TCP_KEEPIDLE", 15),
    ("TCP_KEEPALIVE", 15),  # macOS's name for it
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
)


_BUFFER = 1 << 14  # bytes: one record of TLS
_END_OF_CHUNK = b"\r\n"  # which http.client reads with the next one


class Connection:
    """Not thread-safe, except for `cut`."""

    def __init__(
        self, grant: Grant, sock: socket.socket, tls: TlsSocket | None, deadline: float
    ) -> None:
        parts = urlsplit(grant.server)
        assert parts.hostname is not None
        self.grant = grant
        self.used_at = 0.0  # time.monotonic(), for the owner of the connection
        self._sock, self._tls = sock, tls
        self._deadlined = Deadlined(tls or sock, deadline, _BUFFER)
        self._prefix = parts.path.rstrip("/")
        self._http = http.client.HTTPConnection(  # noqa: TID251 - many exchanges, with deadlines
            parts.hostname, parts.port or PORTS[parts.scheme]
        )
        self._http.sock = self._deadlined  # the only parts of a socket that it uses

    @classmethod
    def open(cls, grant: Grant, context: ssl.SSLContext | None, deadline: float) -> Self:
        """Raises OSError."""
        parts = urlsplit(grant.server)
        assert parts.hostname is not None
        sock = _connected(parts, grant.proxy, deadline)
        tls = None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(sock)
            if context is not None:
                sock.settimeout(time_left(deadline))
                tls = TlsSocket(sock, context, grant.tls_server_name or parts.hostname)
        except BaseException:
            sock.close()
            raise
        return cls(grant, sock, tls, deadline)

    @property
    def deadline(self) -> float:
        return self._deadlined.deadline

    @deadline.setter
    def deadline(self, value: float) -> None:
        self._deadlined.deadline = value

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        deadline: float,
    ) -> http.client.HTTPResponse:
        """The response head. Raises OSError and http.client.HTTPException."""
        self._deadlined.deadline = deadline
        self._http.request(method, self._prefix + target, body, headers)
        return self._http.getresponse()

    def has_more(self, response: http.client.HTTPResponse) -> bool:
        """Whether more of a response is here, so that reading on does not wait long."""
        if response.isclosed():
            return False
        with self._deadlined.at_once():
            return len(response.fp.peek(1)) > len(_END_OF_CHUNK)

    def is_quiet(self) -> bool:
        """Whether nothing arrived since the last response: bytes now can only be its end."""
        if self._tls is not None and self._tls.has_unread:
            return False
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        return not poller.poll(0)

    def cut(self) -> None:
        """End it from another thread: a blocked reader sees the end at once."""
        try:  # TLS objects belong to the reader
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended already

    def close(self) -> None:
        self._sock.close()


def context_of(grant: Grant) -> ssl.SSLContext | None:
    """None: plain HTTP. Raises AccessError."""
    parts = urlsplit(grant.server)
    if parts.scheme not in PORTS or not parts.hostname:
        raise AccessError(f"{grant.server!r} is not an http(s) URL of an API server")
    if parts.scheme == "http":
        if (grant.authorization or grant.token_file) and not is_loopback(parts.hostname):
            raise AccessError(f"{parts.hostname} is reached by plain http, where all could read the"
                              " token: give an https URL")  # fmt: skip
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if grant.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif grant.ca is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=grant.ca)
        except (ssl.SSLError, ValueError):
            raise AccessError("the kubeconfig's certificate authority is not PEM") from None
    if grant.certificate is not None and grant.key is not None:
        _load_pair(context, grant.certificate, grant.key)
    return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """OpenSSL reads them from files only: the files exist for that moment, readable by us alone."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:  # 0700
        paths = Path(folder, "cert.pem"), Path(folder, "key.pem")
        for path, text in zip(paths, (certificate, key), strict=True):
            path.write_text(text)
        try:
            context.load_cert_chain(*paths, password=_no_password)
        except (ssl.SSLError, ValueError):
            raise AccessError(
                "the kubeconfig's client certificate and key cannot be used: are both PEM, do they"
                " belong together, and is the key without a password?"
            ) from None


def _no_password() -> str:
    raise ValueError  # instead of prompting on the terminal


def _connected(server: SplitResult, proxy: str | None, deadline: float) -> socket.socket:
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy is not None else None
    try:
        return connect(server, via, deadline)
    except ProxyNotSupported as error:
        raise AccessError(str(error)) from None


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
