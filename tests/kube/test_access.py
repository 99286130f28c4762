"""Which API server a name means: kubeconfigs as people have them."""

from __future__ import annotations

import base64
import http.server
import json
import select
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.kube.client.access import official_grant, open_cluster
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from reconciler.kube.client.errors import AccessError, Unreachable
from reconciler.kube.client.kubeconfig import POD_USER, pod_grant, written_grant
from tests.support.certificates import Authority, self_signed
from tests.support.cluster import Cluster
from tests.support.owner import HOUR_S, LookedAtClock
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e  # many tests start a process that loads the official client

Config = dict[str, Any]


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    names = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "NO_PROXY")
    for name in (*names, "no_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


def _config(*contexts: str, user: Mapping[str, Any] | None = None, **cluster: Any) -> Config:
    """Each context has a cluster of its name at https://NAME.example, and they share a user."""
    names = contexts or ("prod",)
    details = {"server": "https://{}.example:6443"} | cluster
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": n, "cluster": details | {"server": details["server"].format(n)}} for n in names
        ],
        "users": [{"name": "me", "user": {"token": "t0"} if user is None else dict(user)}],
        "contexts": [{"name": n, "context": {"cluster": n, "user": "me"}} for n in names],
        "current-context": names[-1],
    }


def _write(path: Path, config: Config) -> Path:
    path.write_text(json.dumps(config))
    return path


def _grant(path: Path | None, name: str = "prod", context: str | None = None) -> Grant:
    return open_cluster(name, context, kubeconfig=path).grant()


@pytest.mark.parametrize(
    ("name", "context", "server"),
    [
        ("prod", "test", "test"),  # said
        ("prod", None, "prod"),  # of the same name
        ("default", None, "last"),  # nothing said at all: as kubectl
    ],
)
def test_a_context_is_one_that_somebody_meant(
    tmp_path: Path, name: str, context: str | None, server: str
) -> None:
    path = _write(tmp_path / "config", _config("prod", "test", "last"))

    assert _grant(path, name, context).server == f"https://{server}.example:6443"


def test_the_only_context_needs_no_name(tmp_path: Path) -> None:
    assert _grant(_write(tmp_path / "config", _config("only"))).server.startswith("https://only.")


def test_several_contexts_are_not_guessed_from(tmp_path: Path) -> None:
    path = _write(tmp_path / "config", _config("b", "a"))

    with pytest.raises(AccessError, match=r"which context\? it has a, b: say --cluster prod=CON"):
        _grant(path)


def test_an_unknown_context_lists_those_there_are(tmp_path: Path) -> None:
    path = _write(tmp_path / "config", _config("b", "a"))

    with pytest.raises(AccessError, match="no context 'c'; it has a, b") as caught:
        _grant(path, context="c")

    assert str(path) in str(caught.value)


def test_without_any_kubeconfig_it_is_said_how_to_give_one() -> None:
    with pytest.raises(AccessError, match="--kubeconfig FILE or KUBECONFIG"):
        open_cluster("prod")


def test_a_kubeconfig_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"no kubeconfig at .*/nothing"):
        open_cluster("prod", kubeconfig=tmp_path / "nothing")


def test_the_files_of_the_environment_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _write(tmp_path / "first", _config("a"))
    second = _write(tmp_path / "second", _config("b"))
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}:{tmp_path / 'nothing'}")

    assert _grant(None, context="a").server == "https://a.example:6443"
    assert _grant(None, context="b").server == "https://b.example:6443"


def test_the_users_own_kubeconfig_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    _write(tmp_path / "home" / ".kube" / "config", _config("mine"))

    assert _grant(None).server == "https://mine.example:6443"


@pytest.mark.parametrize(
    "text", ["", "[]", "hello", "{", "clusters: 3", "contexts: [{name: a}]", "\x00", "a: b"]
)
def test_a_file_that_is_no_kubeconfig_ends_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)

    with pytest.raises(AccessError, match=r"cluster prod: .*/config") as caught:
        _grant(tmp_path / "config")

    assert "Traceback" not in str(caught.value)


def test_what_a_kubeconfig_names_is_found_beside_it(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path / "pki")
    (tmp_path / "token").write_text("from-a-file\n")
    user = {"tokenFile": "token", "client-certificate": "pki/cert.pem", "client-key": "pki/key.pem"}
    config = _config(user=user, **{"certificate-authority": "pki/cert.pem"})

    grant = _grant(_write(tmp_path / "config", config))

    assert grant.authorization == "Bearer from-a-file"
    assert (grant.ca, grant.certificate, grant.key) == (
        cert.read_text(),
        cert.read_text(),
        key.read_text(),
    )


def test_what_a_kubeconfig_holds_itself_is_decoded(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path / "pki")
    data = {f: base64.b64encode(p.read_bytes()).decode() for f, p in (("c", cert), ("k", key))}
    user = {"client-certificate-data": data["c"], "client-key-data": data["k"]}
    config = _config(user=user, **{"certificate-authority-data": data["c"]})

    grant = _grant(_write(tmp_path / "config", config))

    assert (grant.ca, grant.certificate, grant.key) == (
        cert.read_text(),
        cert.read_text(),
        key.read_text(),
    )
    assert grant.authorization is None


def test_the_options_of_a_cluster_are_heeded(tmp_path: Path) -> None:
    options = {
        "tls-server-name": "inside.example",
        "insecure-skip-tls-verify": True,
        "proxy-url": "http://proxy.example:3128",
    }

    grant = _grant(_write(tmp_path / "config", _config(**options)))

    assert grant.tls_server_name == "inside.example"
    assert grant.insecure
    assert grant.proxy == "http://proxy.example:3128"


def test_a_proxy_of_the_environment_is_heeded_unless_the_host_is_excepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write(tmp_path / "config", _config("prod", "test"))
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "test.example")

    assert _grant(path).proxy == "http://proxy.example:3128"
    assert _grant(path, context="test").proxy is None


_TEXTS = st.text("aZ9_-./ ", min_size=1, max_size=8)
_PEM = "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"
_FILES = st.sampled_from(["pem", "./pem", "x/../pem", "nothing"])
_DATA = st.sampled_from([base64.b64encode(_PEM.encode()).decode(), "", "a", "!"])
_USERS = st.fixed_dictionaries(
    {},
    optional={
        "token": _TEXTS | st.just("") | st.just(7),
        "tokenFile": _FILES,
        "client-certificate": _FILES,
        "client-certificate-data": _DATA,
        "client-key": _FILES,
        "client-key-data": _DATA,
        "username": _TEXTS,
        "password": _TEXTS,
    },
)
_CLUSTERS = st.fixed_dictionaries(
    {"server": st.sampled_from(["https://a.example/", "https://a.example:6443", "http://b", ""])},
    optional={
        "certificate-authority": _FILES,
        "certificate-authority-data": _DATA,
        "insecure-skip-tls-verify": st.booleans() | st.just("true"),
        "tls-server-name": _TEXTS,
        "proxy-url": st.just("http://proxy.example:3128"),
        "extensions": st.just([{"name": "cluster_info", "extension": {"version": "v1"}}]),
    },
)


@settings(max_examples=200)
@given(user=_USERS, cluster=_CLUSTERS, context=st.sampled_from([None, "prod", "test"]))
def test_what_we_read_ourselves_is_what_the_official_client_would_have_read(
    user: dict[str, Any], cluster: dict[str, Any], context: str | None
) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "pem").write_text(_PEM)
        path = _write(Path(folder) / "config", _config("prod", "test", user=user))
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"] = cluster
        _write(path, config)

        ours = written_grant(path, context, "prod")

        if ours is not None:
            assert ours == official_grant(str(path), context, "prod")


def test_what_is_written_down_costs_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write(tmp_path / "config", _config())
    (tmp_path / "yaml").write_text(yaml.safe_dump(_config()))
    monkeypatch.setattr(sys, "executable", "/nothing")

    assert _grant(path).authorization == "Bearer t0"
    assert _grant(tmp_path / "yaml") == _grant(path)
    with pytest.raises(AccessError, match="/nothing"):
        _grant(_write(path, _config(user=_plugin(tmp_path, _said('{"token": "t1"}')))))


@pytest.mark.parametrize(
    ("host", "server"),
    [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")],
)
def test_a_pods_service_account_is_read_from_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, server: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert pod_grant(tmp_path) is None
    (tmp_path / "token").write_text("t0")
    (tmp_path / "ca.crt").write_text(_PEM)

    grant = pod_grant(tmp_path)

    assert grant == Grant(server, POD_USER, ca=_PEM, token_file=str(tmp_path / "token"))


def test_a_missing_authority_is_named(tmp_path: Path) -> None:
    config = _config(**{"certificate-authority": "nothing.pem"})

    with pytest.raises(AccessError, match=r"nothing\.pem"):
        _grant(_write(tmp_path / "config", config))


def test_whoever_acts_as_somebody_else_is_refused(tmp_path: Path) -> None:
    config = _config(user={"token": "t", "as": "root"})

    with pytest.raises(AccessError, match="impersonates another user"):
        _grant(_write(tmp_path / "config", config))


def _plugin(folder: Path, body: str) -> Mapping[str, Any]:
    """An exec plugin beside the kubeconfig that counts its calls in `calls`."""
    script = folder / "plugin"
    script.write_text(f"#!/bin/sh\ncd {folder}\necho x >> calls\n{body}\n")
    script.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    exec_ = {"apiVersion": version, "command": str(script), "interactiveMode": "Never"}
    return {"exec": exec_}


def _said(status: str) -> str:
    return (
        "cat <<END\n"
        f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        f' "status": {status}}}\nEND'
    )


def test_a_plugin_gives_a_token_and_says_how_long_it_lasts(tmp_path: Path) -> None:
    user = _plugin(
        tmp_path, _said('{"token": "t1", "expirationTimestamp": "2100-01-01T00:00:00Z"}')
    )
    api = open_cluster("prod", kubeconfig=_write(tmp_path / "config", _config(user=user)))

    assert api.grant() is api.grant()

    assert api.grant().authorization == "Bearer t1"
    assert api.grant().expires_at == 4102444800.0
    assert (tmp_path / "calls").read_text() == "x\n"


@pytest.mark.parametrize(("lasts_s", "asked"), [(30.0, 2), (300.0, 1)])
def test_a_token_is_asked_for_anew_before_it_runs_out(lasts_s: float, asked: int) -> None:
    grants = [Grant("https://a.example", expires_at=time.time() + lasts_s) for _ in range(2)]
    left = iter(grants)
    credentials = ClusterCredentials(lambda: next(left), ask_again_s=0)

    assert credentials.current() is grants[0]
    assert credentials.current() is grants[asked - 1]


def test_tokens_that_are_over_at_once_are_not_asked_for_with_every_call() -> None:
    asked: list[Grant] = []

    def ask() -> Grant:
        asked.append(Grant("https://a.example", expires_at=time.time()))
        return asked[-1]

    credentials = ClusterCredentials(ask, ask_again_s=HOUR_S)

    assert {id(credentials.current()) for _ in range(5)} == {id(asked[0])}


def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path / "pki")
    pair = {"clientCertificateData": cert.read_text(), "clientKeyData": key.read_text()}
    user = _plugin(tmp_path, _said(json.dumps(pair)).replace("\\n", "\\\\n"))

    grant = _grant(_write(tmp_path / "config", _config(user=user)))

    assert grant.certificate == cert.read_text()
    assert grant.key == key.read_text()


def test_what_a_plugin_complains_of_is_passed_on(tmp_path: Path) -> None:
    user = _plugin(tmp_path, "echo 'session ended: run login' >&2; exit 3")

    with pytest.raises(AccessError, match="session ended: run login"):
        _grant(_write(tmp_path / "config", _config(user=user)))


def test_a_plugin_that_is_not_installed_is_named(tmp_path: Path) -> None:
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}

    with pytest.raises(AccessError, match="no-such-plugin"):
        _grant(_write(tmp_path / "config", _config(user={"exec": exec_})))


def test_an_answer_that_was_bad_once_is_asked_for_anew(tmp_path: Path) -> None:
    path = _write(tmp_path / "config", _config("a", "b"))
    api = open_cluster("prod", kubeconfig=path)
    with pytest.raises(AccessError):
        api.grant()

    _write(path, _config("prod"))

    assert api.grant().server == "https://prod.example:6443"


def test_a_pod_without_a_service_account_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    with pytest.raises(AccessError, match=r"Service token file does not exist.*service account"):
        _grant(None)


def test_a_pod_with_a_kubeconfig_that_is_not_there_does_not_fall_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))

    with pytest.raises(AccessError, match=r"no kubeconfig at .*/nothing"):
        open_cluster("prod")


class _Server:
    """An API server that answers every request with who asked, over TLS or not."""

    def __init__(self, context: ssl.SSLContext | None = None, accepted: str = "") -> None:
        self.accepted = accepted  # the only Authorization that is not 401; "": any
        self.seen: list[str] = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> _Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(owner: _Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = self.headers["Authorization"] or ""
            owner.seen.append(token)
            peer = getattr(self.connection, "getpeercert", dict)() or {}
            names = {k: v for ((k, v),) in peer.get("subject", ())}
            is_known = owner.accepted in ("", token)
            body = json.dumps({"name": names.get("commonName", token)}).encode()
            self.send_response(200 if is_known else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


def test_a_client_certificate_says_who_we_are(tmp_path: Path) -> None:
    people = Authority(tmp_path / "people")
    mine, my_key = people.client("me")
    cert, key = self_signed(tmp_path / "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(people.cert)
    context.verify_mode = ssl.CERT_REQUIRED
    user = {"client-certificate": str(mine), "client-key": str(my_key)}
    with _Server(context) as server:
        cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(cert)}
        path = _write(tmp_path / "config", _config(user=user, **cluster))

        assert open_cluster("prod", kubeconfig=path).raw("GET", "/whoami") == {"name": "me"}


def test_a_token_that_its_file_no_longer_has_is_read_again(tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text("old\n")
    with _Server(accepted="Bearer new") as server:
        grant = Grant(f"http://127.0.0.1:{server.port}", token_file=str(token))
        credentials = ClusterCredentials(lambda: grant)
        assert credentials.authorization(grant) == "Bearer old"
        token.write_text("new\n")

        api = ApiServer.of("prod", credentials)

        assert api.raw("GET", "/whoami") == {"name": "Bearer new"}
        assert server.seen == ["Bearer old", "Bearer new"]


def test_many_who_come_at_once_cost_one_question() -> None:
    asked: list[Grant] = []
    clock = LookedAtClock()

    def ask() -> Grant:
        asked.append(Grant("https://prod.example"))
        wait_for(lambda: clock.looks >= 10, "all have come")
        return asked[-1]

    credentials = ClusterCredentials(ask, clock=clock.monotonic)
    threads = [threading.Thread(target=credentials.current) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(asked) == 1


def test_a_failure_is_told_to_all_who_waited_for_it_and_asked_about_again_by_the_next() -> None:
    asked: list[float] = []
    clock = LookedAtClock()

    def ask() -> Grant:
        wait_for(lambda: clock.looks >= 11, "all have come")
        asked.append(clock.now)
        raise AccessError("no such file")

    credentials = ClusterCredentials(ask, clock=clock.monotonic)

    def come(_: int) -> None:
        with pytest.raises(AccessError, match="no such file"):
            credentials.current()

    with ThreadPoolExecutor(11) as pool:
        list(pool.map(come, range(11)))

    assert len(asked) == 1
    clock.now += 1
    with pytest.raises(AccessError, match="no such file"):
        credentials.current()
    assert len(asked) == 2


def test_the_client_costs_none_of_the_official_one() -> None:
    modules = ("client.api", "client.access", "informer.cache", "leaderelection.lease")
    imports = "; ".join(f"import reconciler.kube.{module}" for module in modules)
    code = f"import sys; {imports}; print(*sys.modules)"
    argv = [sys.executable, "-c", code]
    loaded = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()

    assert "reconciler.kube.client.api" in loaded
    assert not {"kubernetes", "urllib3", "yaml", "requests"} & set(loaded)


@contextmanager
def _tunnel() -> Iterator[tuple[str, list[str]]]:
    """A proxy that knows CONNECT and nothing else, and what it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            asked.append(f"{self.path} {self.headers['Proxy-Authorization']}")
            host, _, port = self.path.partition(":")
            with socket.create_connection((host, int(port))) as other:
                self.send_response(200)
                self.end_headers()
                pairs = {self.connection: other, other: self.connection}
                while True:
                    for ready in select.select(list(pairs), [], [])[0]:
                        data = ready.recv(1 << 16)
                        if not data:
                            return
                        pairs[ready].sendall(data)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.cluster
def test_a_cluster_is_reached_through_a_proxy(shared_cluster: Cluster, tmp_path: Path) -> None:
    config = json.loads(shared_cluster.kubeconfig.read_text())
    with _tunnel() as (address, asked):
        config["clusters"][0]["cluster"]["proxy-url"] = f"http://me:hush@{address}"
        api = open_cluster("prod", kubeconfig=_write(tmp_path / "config", config))

        assert api.raw("GET", "/version")["major"]
        api.close()

    basic = base64.b64encode(b"me:hush").decode()
    assert asked == [f"127.0.0.1:{shared_cluster.api_port} Basic {basic}"]


@pytest.mark.cluster
def test_a_server_is_known_by_the_name_that_the_kubeconfig_says(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    config = json.loads(shared_cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://localhost:{shared_cluster.api_port}"
    other_name = open_cluster("prod", kubeconfig=_write(tmp_path / "a", config))
    config["clusters"][0]["cluster"]["tls-server-name"] = "127.0.0.1"
    named = open_cluster("prod", kubeconfig=_write(tmp_path / "b", config))

    with pytest.raises(Unreachable, match="certificate"):
        other_name.raw("GET", "/version")
    assert named.raw("GET", "/version")["major"]
