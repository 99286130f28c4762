"""TLS over a connection, by memory: one call of the system brings all that has arrived.

`ssl.SSLSocket` makes two for every record, wakes for each, and an API server's records are of 1 KiB
while it says little: a watch's event of 10 KiB that is read with its successors takes a quarter of
the CPU.
"""

from __future__ import annotations

import contextlib
import socket
import ssl

_RECEIVE = 1 << 16  # bytes in one call


class TlsSocket:
    """What a reader uses of a socket, over TLS. Not thread-safe."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Raises OSError; then the connection is the caller's to close."""
        self._sock = sock
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_hostname=host)
        try:
            self._shake_hands()
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._flush()  # the other side is told why
            raise

    @property
    def has_unread(self) -> bool:
        """Whether more has arrived than was asked for."""
        return bool(self._arrived.pending or self._tls.pending())

    def settimeout(self, timeout_s: float) -> None:
        self._sock.settimeout(timeout_s)

    def sendall(self, data: bytes) -> None:
        """It leaves when an answer is waited for: a request's head and body in one packet."""
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]

    def recv_into(self, buffer: memoryview) -> int:
        """How many bytes came, as many as have arrived; 0: the other side has ended."""
        done = 0
        while done < len(buffer):
            try:
                got = self._read(buffer[done:])
            except ssl.SSLWantReadError:
                if done:
                    break
                self._flush()
                self._receive()
                continue
            except ssl.SSLEOFError:  # without a farewell, as http.client's caller will find
                break
            if not got:
                break
            done += got
        return done

    def close(self) -> None:
        self._sock.close()

    def _read(self, buffer: memoryview) -> int:
        return self._tls.read(len(buffer), buffer)  # type: ignore[return-value]

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                self._receive()
            else:
                self._flush()
                return

    def _flush(self) -> None:
        if self._leaving.pending:
            self._sock.sendall(self._leaving.read())

    def _receive(self) -> None:
        data = self._sock.recv(_RECEIVE)
        if data:
            self._arrived.write(data)
        else:
            self._arrived.write_eof()
