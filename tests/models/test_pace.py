"""A host that sends too little for too long, with a clock that leaps."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reconciler.api.errors import DownloadFailed
from reconciler.models.hop import get
from reconciler.models.pace import LEAST_BYTES_PER_S, TooSlow, TransferPace
from reconciler.models.scheme import FetchContext


def test_a_host_that_drips_is_given_up_however_seldom_it_is_silent() -> None:
    pace = TransferPace(window_s=60)
    for _ in range(59):
        pace.count(1, 1.0)

    with pytest.raises(TooSlow, match="only 60 bytes in 60 s: less than 10 KiB a second"):
        pace.count(1, 1.0)


def test_a_host_that_is_fast_enough_is_waited_for_as_long_as_it_takes() -> None:
    pace = TransferPace(window_s=60)

    for _ in range(1000):
        pace.count(LEAST_BYTES_PER_S * 7, 7.0)


def test_a_fast_start_pays_for_no_slow_rest() -> None:
    pace = TransferPace(window_s=60)
    pace.count(1 << 40, 60.0)

    with pytest.raises(TooSlow):
        pace.count(1, 60.0)


def test_what_we_do_with_the_bytes_is_not_the_hosts_delay() -> None:
    pace = TransferPace(window_s=60)

    for _ in range(1000):
        pace.count(1, 0.0)


def test_a_download_that_drips_ends() -> None:
    with (
        _server(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b".") as url,
        pytest.raises(DownloadFailed, match=r"127\.0\.0\.1:\d+: only \d+ bytes in"),
    ):
        _read(url)


def test_an_answer_of_100_continue_for_ever_ends() -> None:
    with (
        _server(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n") as url,
        pytest.raises(DownloadFailed, match="no answer within 60 s"),
    ):
        _read(url)


def _read(url: str) -> None:
    """With a clock on which each question is four seconds after the one before."""
    leaps = itertools.count(0.0, 4.0)
    with get(url, {}, FetchContext(), threading.Event(), clock=lambda: next(leaps)) as response:
        while response.read1(1 << 18):
            pass


@contextmanager
def _server(first: bytes, then: bytes) -> Iterator[str]:
    """Says `first`, and then the same few bytes again and again until nobody listens."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.close_connection = True
            try:
                self.wfile.write(first)
                while not ending.wait(0.001):
                    self.wfile.write(then)
            except ConnectionError:
                return

        def log_message(self, format: str, *args: object) -> None:
            return

    ending = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/files/model.gguf"
    finally:
        ending.set()
        server.shutdown()
        thread.join()
        server.server_close()
