"""Answers that no honest host sends, at every client that reads answers of other machines."""

from __future__ import annotations

import contextlib
import http.client
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.process.health import EngineAddress, busy_slots
from agent.server import SERVED_FILE
from agent.server.here import asked
from agent.state.directory import StateDir
from reconciler.agents.client import MOST_BYTES, AgentClient
from reconciler.agents.credentials import AgentCredentials
from reconciler.agents.scrape import scrape
from reconciler.api.errors import ReconcilerError, error_text
from reconciler.cli.answers import ServiceClient, post_to
from reconciler.forges.comments import Comments
from reconciler.forges.forge import FORGES, ForgeRepository
from reconciler.http.exchange import HttpPolicy, HttpRequest, exchange
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from reconciler.kube.objects import OWNED_KINDS
from reconciler.models.partial import Partial
from reconciler.models.scheme import FetchContext, FetchRequest, PieceRequest
from reconciler.models.sources import SCHEMES, fetch
from tests.support.fleets import service
from tests.support.http import FileServer
from tests.support.served_node import ServedNode
from tests.support.wait import PATIENCE_S, wait_for

_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
LONGEST_MESSAGE = 700

# Each is sent whole, and then the connection ends.
ANSWERS: dict[str, bytes] = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-x\r\n\r\n",
    "a line of 60,000 characters": b"x" * 60_000 + b"\r\n\r\n",
    "a line without an end": b"x" * 200_000,
    "a status that is no number": b"HTTP/1.1 two OK\r\n\r\n",
    "a status of 400 digits": b"HTTP/1.1 " + b"9" * 400 + b" OK\r\n\r\n",
    "a reason of 60,000 characters": b"HTTP/1.1 500 " + b"x" * 60_000 + b"\r\n\r\n",
    "a header of 60,000 characters": _OK + b"X: " + b"x" * 60_000 + b"\r\n\r\n",
    "a header that is too long": _OK + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
    "1,000 headers": _OK + b"X: x\r\n" * 1000 + b"\r\n",
    "a length of 400 digits": _OK + b"Content-Length: " + b"9" * 400 + b"\r\n\r\nx",
    "a length of 5,000 digits": _OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nx",
    "a length of 2 to the 63": _OK + b"Content-Length: 9223372036854775808\r\n\r\nx",
    "a length below zero": _OK + b"Content-Length: -1\r\n\r\nx",
    "two lengths": _OK + b"Content-Length: 1\r\nContent-Length: 400\r\n\r\nx",
    "a chunk of 400 digits": _CHUNKED + b"f" * 400 + b"\r\nx",
    "a chunk below zero": _CHUNKED + b"-1\r\nx",
    "a chunk that is no number": _CHUNKED + b"x" * 60_000 + b"\r\nx",
    "a chunk that ends early": _CHUNKED + b"ff\r\nx",
    "a range of 400 digits": b"HTTP/1.1 206 OK\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/"
    + b"9" * 400 + b"\r\n\r\nx",
    "a pause of 400 digits": b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\nRetry-After: "
    + b"9" * 400 + b"\r\n\r\n",
    "a redirect to nowhere": b"HTTP/1.1 302 Go\r\nLocation: http://[\r\n\r\n",
    "a redirect of 60,000 characters": b"HTTP/1.1 302 Go\r\nLocation: https://" + b"x" * 60_000
    + b"\r\n\r\n",
    "brackets": _OK + b"\r\n" + b"[" * 60_000,
    "text that is no JSON": _OK + b"\r\n" + b"x" * 60_000,
    "bytes that are no text": _OK + b"\r\n" + b"\xff" * 60_000,
    "a reset": b"reset",
}  # fmt: skip


class RawServer(socketserver.ThreadingTCPServer):
    """Sends the same bytes to each connection that has asked something."""

    daemon_threads = True

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, RawServer)
        with contextlib.suppress(OSError):
            self.request.recv(1 << 16)
            self.server.requests += 1
            if self.server.answer == b"reset":
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                return
            self.request.sendall(self.server.answer)
            self.request.shutdown(socket.SHUT_WR)
            while self.request.recv(1 << 16):
                pass


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[RawServer]:
    with RawServer(answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _agent(url: str, _: Path) -> None:
    client = AgentClient("mac", url, None, AgentCredentials())
    client.state(time.monotonic() + PATIENCE_S)


def _events(url: str, _: Path) -> None:
    list(AgentClient("mac", url, None, AgentCredentials()).events(follow=False))


def _download(url: str, folder: Path) -> None:
    with Partial(folder / "m") as partial:
        fetch(FetchRequest(f"{url}/m.gguf", partial))


def _header(url: str, _: Path) -> None:
    pieces = SCHEMES["http"].pieces
    assert pieces is not None
    request = PieceRequest(f"{url}/m.gguf", FetchContext(), threading.Event())
    pieces(request)(0, 1 << 16)


def _forge(url: str, _: Path) -> None:
    repository = ForgeRepository(FORGES["gitlab"], f"{url}/me/fleet", f"{url}/api")
    Comments(repository, 1, "token", lambda _: None).put("fleet", "text")


def _service(url: str, _: Path) -> None:
    ServiceClient(url, post_to(url), "key").ask("/v1/chat/completions", {})


def _stream(url: str, _: Path) -> None:
    list(ServiceClient(url, post_to(url), "key").stream("/v1/chat/completions", {}))


def _engine(url: str, _: Path) -> None:
    port = urlsplit(url).port or 0
    try:
        EngineAddress("127.0.0.1", port).ask("/health", PATIENCE_S)
    except (OSError, http.client.HTTPException, ValueError) as error:  # as its callers handle it
        raise ReconcilerError(error_text(error)) from error


def _api_server(url: str, _: Path) -> None:
    api = ApiServer.of("prod", ClusterCredentials(lambda: Grant(url)))
    api.raw("GET", "/version", timeout_s=PATIENCE_S)


def _api_list(url: str, _: Path) -> None:
    ApiServer.of("prod", ClusterCredentials(lambda: Grant(url))).list(OWNED_KINDS["", "ConfigMap"])


# A client, and what its callers handle.
CLIENTS: dict[str, Callable[[str, Path], object]] = {
    "an agent's state": _agent,
    "an agent's events": _events,
    "a download": _download,
    "a header": _header,
    "a forge": _forge,
    "a service": _service,
    "a stream": _stream,
    "an engine": _engine,
    "an API server": _api_server,
    "an API server's list": _api_list,
    "a scrape": lambda url, _: scrape(url, within_s=PATIENCE_S, most_bytes=1 << 20),
    "an engine's slots": lambda url, _: busy_slots("127.0.0.1", urlsplit(url).port or 0, "/slots"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_no_honest_host_sends_is_a_short_error(answer: str, tmp_path: Path) -> None:
    with answering(ANSWERS[answer]) as server:
        for name, ask in CLIENTS.items():
            before = server.requests
            try:
                ask(server.url, tmp_path)
            except ReconcilerError as error:
                text = str(error)
                assert len(text) <= LONGEST_MESSAGE, name
                assert text.isprintable(), name
                assert "9" * 100 not in text, name
                assert not any(word in text for word in ("Overflow", "integer", "Errno")), name
            assert server.requests > before, name


@given(text=st.text(), times=st.integers(0, 1000))
@example(text="x", times=60_000)
@example(text="\n", times=1)
@example(text="SSH-2.0-x\r\n", times=1)
def test_the_text_of_a_librarys_error_is_short_and_printable(text: str, times: int) -> None:
    shown = error_text(http.client.HTTPException(text * times))

    assert len(shown) <= 301
    assert shown.isprintable()
    assert shown


def test_an_answer_has_an_end_for_every_client(tmp_path: Path) -> None:
    with answering(_OK + b"\r\n" + b"x" * (1 << 20)) as server:
        request = HttpRequest("GET", urlsplit(server.url), {})
        deadline = time.monotonic() + PATIENCE_S

        assert len(exchange(request, HttpPolicy(1 << 20), deadline=deadline).body) == 1 << 20
        with pytest.raises(http.client.HTTPException, match="more than 1023 KiB"):
            exchange(request, HttpPolicy((1 << 20) - 1), deadline=deadline)


# --- this machine's own agent ----------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServedNode]:
    with ServedNode.open(tmp_path, {"chat.yaml": service("chat", "tiny")}) as opened:
        opened.wait_ready()
        yield opened


def test_this_machines_agent_is_reached_directly_and_within_bounds(
    node: ServedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDir(node.state)
    body = node.get("/v1/state").body
    served = (node.state / SERVED_FILE).read_text()
    with answering(_OK + b"\r\n" + body) as other:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, other.url)
        found = asked(state)
        assert found is not None
        assert found.node == "mac"
        assert other.requests == 0, "a proxy was asked, which could name any endpoint"

        redirect = b"HTTP/1.1 302 Go\r\nContent-Length: 0\r\nLocation: %s/v1/state\r\n\r\n"
        with answering(redirect % other.url.encode()) as redirecting:
            (node.state / SERVED_FILE).write_text(served.replace(node.url, redirecting.url))
            assert asked(state) is None
            assert redirecting.requests == 1
        assert other.requests == 0, "a redirect was followed"

    with answering(_OK + b"\r\n" + body + b" " * MOST_BYTES) as endless:
        (node.state / SERVED_FILE).write_text(served.replace(node.url, endless.url))
        assert asked(state) is None
        assert endless.requests == 1
    (node.state / SERVED_FILE).write_text(served)
    assert asked(state) is not None


_LISTENER = """\
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        open(sys.argv[2], "a").write(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(open(sys.argv[1], "rb").read())
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
open(sys.argv[3], "w").write(f"{server.server_port}\\n")
server.serve_forever()
"""


def test_a_process_at_the_address_that_a_killed_agent_left_is_not_asked(
    node: ServedNode, tmp_path: Path
) -> None:
    body, requests, port = tmp_path / "body", tmp_path / "requests", tmp_path / "port"
    body.write_bytes(node.get("/v1/state").body)
    served = (node.state / SERVED_FILE).read_text()
    # In the background of a shell that ends: a child of this process would count as the agent's.
    words = (sys.executable, "-c", _LISTENER, body, requests, port)
    started = subprocess.run(
        ("sh", "-c", '"$@" >/dev/null 2>&1 & echo $!', "sh", *words),
        stdout=subprocess.PIPE,
        check=True,
    )
    other = psutil.Process(int(started.stdout))
    try:
        wait_for(lambda: port.exists() and port.read_text().endswith("\n"), "it listens")
        url = f"http://127.0.0.1:{port.read_text().strip()}"
        (node.state / SERVED_FILE).write_text(served.replace(node.url, url))

        assert asked(StateDir(node.state)) is None
        assert not requests.exists()
    finally:
        other.kill()
        other.wait(PATIENCE_S)


# --- addresses -------------------------------------------------------------------------------


def test_a_redirect_to_a_private_address_is_refused_before_anything_is_connected_to(
    tmp_path: Path,
) -> None:
    with FileServer(b"x") as server, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        is_open = listener.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as closing:
            is_closed = closing.getsockname()[1]
        texts = []
        for port in (is_open, is_closed):
            server.redirect_to = f"http://localhost:{port}/m.gguf"
            with pytest.raises(ReconcilerError, match="private address") as raised:
                _download(server.url, tmp_path)
            texts.append(str(raised.value).replace(str(port), "PORT"))

        assert texts[0] == texts[1]
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_name_is_resolved_once_for_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second lookup could have another answer than the one that was judged."""
    real, lookups = socket.getaddrinfo, []

    def counted(*args: object, **options: object) -> object:
        lookups.append(args[0])
        return real(*args, **options)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(socket, "getaddrinfo", counted)
    with FileServer(b"x" * 10) as server:
        _download(server.url.replace("127.0.0.1", "localhost"), tmp_path)

    assert lookups == ["localhost"]
