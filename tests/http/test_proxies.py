"""The proxy variables, as one table for every client that reaches the internet."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reconciler.api.errors import DownloadFailed, ForgeError, ModelError
from reconciler.forges.comments import Comments
from reconciler.forges.forge import FORGES, ForgeRepository
from reconciler.http.connect import ProxyNotSupported
from reconciler.http.proxies import proxy_for
from reconciler.models.partial import Partial
from reconciler.models.scheme import FetchRequest, ListRequest
from reconciler.models.sources import fetch, list_files
from tests.support.serving import Serving

PROXY = "http://me:hush@proxy.example:3128"
NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

# Variables, a URL, and whether the URL is reached through PROXY.
TABLE: list[tuple[Mapping[str, str], str, bool]] = [
    ({}, "https://a.example/", False),
    ({"https_proxy": PROXY}, "https://a.example/", True),
    ({"HTTPS_PROXY": PROXY}, "https://a.example/", True),
    ({"all_proxy": PROXY}, "https://a.example/", True),
    ({"ALL_PROXY": PROXY}, "https://a.example/", True),
    ({"https_proxy": PROXY, "ALL_PROXY": "http://other.example"}, "https://a.example/", True),
    ({"https_proxy": PROXY, "HTTPS_PROXY": "http://other.example"}, "https://a.example/", True),
    ({"https_proxy": "", "HTTPS_PROXY": PROXY}, "https://a.example/", False),
    ({"https_proxy": "", "ALL_PROXY": PROXY}, "https://a.example/", True),
    ({"http_proxy": PROXY, "HTTP_PROXY": PROXY}, "https://a.example/", False),
    ({"https_proxy": PROXY}, "http://a.example/", False),
    ({"https_proxy": PROXY}, "https://127.0.0.1/", False),
    ({"https_proxy": PROXY}, "https://localhost/", False),
    ({"https_proxy": PROXY}, "https://[::1]/", False),
    *(
        ({"https_proxy": PROXY, "NO_PROXY": entries}, url, used)
        for entries, url, used in (
            ("a.example", "https://a.example/", False),
            ("A.Example.", "https://a.example/", False),
            ("a.example", "https://b.a.example/", False),
            ("a.example", "https://ba.example/", True),
            ("example", "https://a.example/", False),
            (".example", "https://a.example/", False),
            (".a.example", "https://a.example/", False),
            ("*.example", "https://a.example/", False),
            ("*.example", "https://aexample/", True),
            ("a.example:443", "https://a.example/", False),
            ("a.example:8443", "https://a.example/", True),
            ("a.example:8443", "https://a.example:8443/", False),
            ("*.example:8443", "https://a.example:8443/", False),
            ("*", "https://a.example/", False),
            ("b.example, a.example", "https://a.example/", False),
            ("b.example a.example", "https://a.example/", False),
            (" , ,", "https://a.example/", True),
            ("10.1.2.3", "https://10.1.2.3/", False),
            ("10.0.0.0/8", "https://10.1.2.3/", False),
            ("10.0.0.0/8", "https://11.1.2.3/", True),
            ("10.0.0.0/8", "https://a.example/", True),
            ("10.1.2.3:443", "https://10.1.2.3:8443/", True),
            ("fd00::/8", "https://[fd00::1]/", False),
            ("[fd00::1]:443", "https://[fd00::1]/", False),
            ("[fd00::1]:8443", "https://[fd00::1]/", True),
            ("fd00::1", "https://[fd00::1]/", False),
        )
    ),
    ({"no_proxy": "", "NO_PROXY": "a.example", "https_proxy": PROXY}, "https://a.example/", True),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "url", "used"), TABLE)
def test_a_proxy_is_used_as_the_variables_state(
    variables: Mapping[str, str], url: str, used: bool
) -> None:
    found = proxy_for(urlsplit(url), variables)

    assert (found.geturl() if found else None) == (PROXY if used else None)


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks4", "https", "ftp"])
def test_another_kind_of_proxy_is_named_with_its_variable_and_never_with_its_login(
    scheme: str,
) -> None:
    with pytest.raises(ProxyNotSupported) as raised:
        proxy_for(urlsplit("https://a.example/"), {"ALL_PROXY": f"{scheme}://me:hush@p.example:1"})

    assert str(raised.value) == (
        f"ALL_PROXY: a proxy by {scheme} is not supported. State one by http (CONNECT), or add"
        " a.example to no_proxy"
    )


class LoggingProxy(Serving):
    """Refuses all that it is asked for, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                asked.append(self.path)
                self.send_error(502)

            do_GET = do_CONNECT

            def log_message(self, format: str, *args: object) -> None:
                return

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoggingProxy]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("HOME", "HF_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "https://models.invalid")
    with LoggingProxy() as proxy:
        yield proxy


def _download(folder: Path) -> None:
    with Partial(folder / "m") as partial:
        fetch(FetchRequest("https://models.invalid/m.gguf", partial))


def _comment(_: Path) -> None:
    repository = ForgeRepository(FORGES["gitlab"], "https://models.invalid/me/fleet", None)
    Comments(repository, 1, "token", lambda _: None).put("fleet", "text")


# Every client that uses the user's proxy, each asked for the same host.
CLIENTS = {
    "a download": _download,
    "the hub's list": lambda _: list_files(ListRequest("hf://org/repo@main", format="gguf")),
    "a registry's list": lambda _: list_files(ListRequest("oci://models.invalid/team/model:1")),
    "a forge": _comment,
}


@pytest.mark.e2e
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_reads_the_variables_alike(
    client: str, proxy: LoggingProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    through = ["models.invalid:443"]
    rows: list[tuple[Mapping[str, str], list[str], str]] = [
        ({"ALL_PROXY": f"http://{proxy.address}"}, through, ""),
        ({"https_proxy": proxy.address}, through, ""),
        ({"https_proxy": proxy.address, "NO_PROXY": "*.invalid"}, [], ""),
        ({"https_proxy": proxy.address, "no_proxy": "models.invalid:443"}, [], ""),
        ({"https_proxy": proxy.address, "no_proxy": "models.invalid:8443"}, through, ""),
        ({"ALL_PROXY": f"socks5://{proxy.address}"}, [], "ALL_PROXY: a proxy by socks5"),
        ({"http_proxy": proxy.address}, [], ""),
    ]
    for variables, asked, message in rows:
        proxy.asked.clear()
        with monkeypatch.context() as environment:
            for name, value in variables.items():
                environment.setenv(name, value)

            with pytest.raises((DownloadFailed, ModelError, ForgeError)) as raised:
                CLIENTS[client](tmp_path)

        assert sorted(set(proxy.asked)) == asked, (variables, str(raised.value))
        assert message in str(raised.value)


@pytest.mark.e2e
def test_a_child_that_serves_several_requests_decides_for_each(
    proxy: LoggingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reconciler.models.child import ask, keeping

    monkeypatch.setenv("https_proxy", f"http://{proxy.address}")
    monkeypatch.setenv("no_proxy", "direct.invalid")
    question = {"repo": "org/repo", "revision": "main", "tokenFile": None}
    with keeping():
        for host in ("one.invalid", "direct.invalid", "two.invalid"):
            asked = {**question, "mirror": f"https://{host}"}
            assert "error" in ask("reconciler.models.hf_hub", asked, threading.Event())

    assert sorted(set(proxy.asked)) == ["one.invalid:443", "two.invalid:443"]
