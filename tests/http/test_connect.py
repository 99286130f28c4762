"""What is read of other machines has an end, whatever they say."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest

from reconciler.http.connect import BoundedStream
from reconciler.http.exchange import HttpPolicy, HttpRequest, exchange
from reconciler.models.pace import PacedStream

MIB = 1 << 20
FLOOD = 64 * MIB


def test_a_chunk_of_a_negative_size_is_not_all_that_there_is() -> None:
    sent = 0

    def flood() -> None:
        nonlocal sent
        client, _ = server.accept()
        with client:
            client.recv(4096)
            client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n")
            try:
                while sent < FLOOD:
                    sent += client.send(bytes(MIB))
            except OSError:
                return  # it listens no longer

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=flood)
        thread.start()
        url = urlsplit(f"http://127.0.0.1:{server.getsockname()[1]}/metrics")
        with pytest.raises(http.client.HTTPException, match="negative size"):
            exchange(HttpRequest("GET", url, {}), HttpPolicy(MIB), deadline=time.monotonic() + 60)
        thread.join()

    assert sent < FLOOD
    assert issubclass(PacedStream, BoundedStream), "downloads are read by the same rule"
