"""Who may ask a node that listens off loopback, with real certificates on real connections."""

from __future__ import annotations

import hashlib
import logging
import shutil
import socket
import ssl
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from agent.cli import main
from agent.server import ListenSettings, served
from agent.server.tls import TlsFiles, certificate_sha256, open_tls
from agent.state.room import rotate
from reconciler.agents.client import AgentClient, LogPart
from reconciler.agents.credentials import AgentCredentials
from reconciler.api.errors import StateError
from tests.support.builders import ref
from tests.support.certificates import Authority
from tests.support.damage import DAMAGES, emptied, noise, removed, zeroed
from tests.support.served_node import Reply, ServedNode, request
from tests.support.wait import PATIENCE_S, wait_for

EVERYWHERE = "0.0.0.0"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServedNode]:
    listen = ListenSettings(EVERYWHERE, 0, host_ip="192.0.2.7")
    with ServedNode.open(tmp_path, {}, listen) as opened:
        opened.serving.wait(PATIENCE_S)
        yield opened


def test_who_has_the_token_is_answered_and_nobody_else(node: ServedNode) -> None:
    token = (node.state / "tls" / "token").read_text().strip()

    def status(path: str, authorization: str | None) -> int:
        return ask(node, path, authorization=authorization).status

    for path in ("/v1/state", "/metrics", "/readyz", "/v1/events", "/v1/logs", "/nothing"):
        assert status(path, None) == 401
    for wrong in ("", "Bearer", "Bearer ", f"Basic {token}", f"Bearer {token}x", "Bearer é", token):
        assert status("/v1/state", wrong) == 401
    assert status("/v1/state", f"Bearer {token}") == 200
    assert status("/v1/state", f"bearer {token}") == 200
    assert ask(node, "/v1/wake", method="POST").status == 401


def test_whether_it_lives_may_be_asked_without_a_token(node: ServedNode) -> None:
    assert ask(node, "/healthz").json()["status"] == "ok"


def test_a_browser_sends_the_token_once_and_may_then_look_and_ask_from_there(
    node: ServedNode,
) -> None:
    token = (node.state / "tls" / "token").read_text().strip()
    asks = {"Accept": "text/html,*/*"}
    wait_for(lambda: node.board.planned is not None)

    form = ask(node, "/", headers=asks)
    body = f"token={token}".encode()
    sent = ask(node, "/session", method="POST", body=body)
    cookie = sent.headers["set-cookie"]
    known = asks | {"Cookie": cookie.partition(";")[0]}

    assert (form.status, sent.status) == (401, 303)
    assert 'action="/session"' in form.text
    assert "mac" not in form.text
    assert {"HttpOnly", "SameSite=strict", "Secure"} <= set(cookie.split("; "))
    assert "node/mac" in ask(node, "/", headers=known).text
    assert ask(node, "/v1/state", headers=known).status == 200
    assert ask(node, "/v1/wake", method="POST", headers=known).status == 401
    box = "/services/default/nobody/ask"
    here = f"https://127.0.0.1:{node.port}"
    for own, status in ((here, 409), ("https://evil.test", 401), (None, 401)):
        headers = known if own is None else known | {"Origin": own}
        assert ask(node, box, method="POST", headers=headers).status == status
    assert ask(node, box, method="POST", headers={"Origin": here}).status == 401
    assert token not in f"{form.text} {sent.headers} {sent.text}"


def test_a_refusal_says_where_the_token_is_and_not_what(node: ServedNode) -> None:
    token = (node.state / "tls" / "token").read_text().strip()

    refusal = ask(node, "/v1/state", authorization="Bearer guess")

    assert refusal.headers["www-authenticate"] == "Bearer"
    assert "tls/token" in refusal.text
    assert token not in refusal.text


def test_off_loopback_nothing_is_said_in_the_clear(node: ServedNode) -> None:
    with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE_S) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert b"200" not in raw.recv(4096)


def test_connections_that_begin_no_tls_shut_nobody_out(node: ServedNode) -> None:
    silent = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(200)]
    try:
        assert ask(node, "/healthz").status == 200
    finally:
        for connection in silent:
            connection.close()


@pytest.mark.e2e
def test_a_handshake_that_does_not_begin_is_given_up_within_seconds(node: ServedNode) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE_S) as silent:
        assert silent.recv(1) == b""

    assert time.monotonic() - began < 40, "not as long as asyncio would wait by itself"


def test_the_fingerprint_is_that_of_the_certificate_that_is_shown(node: ServedNode) -> None:
    with (
        socket.create_connection(("127.0.0.1", node.port)) as raw,
        trusting().wrap_socket(raw) as secure,
    ):
        shown = secure.getpeercert(binary_form=True)

    assert shown is not None
    assert certificate_sha256(node.state) == hashlib.sha256(shown).hexdigest()
    assert node.serving.now.cert_sha256 == certificate_sha256(node.state)
    assert served(node.state) == node.serving.now


def test_the_certificate_is_good_for_the_names_of_this_machine(node: ServedNode) -> None:
    trusted = ssl.create_default_context(cafile=node.state / "tls" / "cert.pem")
    trusted.verify_flags |= ssl.VERIFY_X509_STRICT

    for name in ("localhost", "127.0.0.1", "192.0.2.7", socket.gethostname()):
        with socket.create_connection(("127.0.0.1", node.port)) as raw:
            trusted.wrap_socket(raw, server_hostname=name).close()
    with (
        socket.create_connection(("127.0.0.1", node.port)) as raw,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        trusted.wrap_socket(raw, server_hostname="elsewhere.test")


def test_probe_prints_the_fingerprint_for_the_fleet(
    node: ServedNode, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["probe", "--state-dir", str(node.state)])

    assert code == 0
    printed = yaml.safe_load(capsys.readouterr().out)  # quoted, where it begins with a digit
    assert printed["spec"]["agent"]["certSha256"] == certificate_sha256(node.state)


def test_our_own_client_reads_the_state_with_pin_and_token(
    node: ServedNode, tmp_path: Path
) -> None:
    pinned = certificate_sha256(node.state)
    client = our_client(node, tmp_path, pinned)

    answer = client.state(time.monotonic() + PATIENCE_S)
    client.wake(time.monotonic() + PATIENCE_S)

    assert answer.state.node == "mac"


def test_a_log_is_followed_by_its_cursor_whatever_happens_to_the_file(
    node: ServedNode, tmp_path: Path
) -> None:
    client = our_client(node, tmp_path, certificate_sha256(node.state))
    log = node.node.agent.state.log_file(ref("chat"))
    log.parent.mkdir(parents=True)
    log.write_bytes(b"zero\none\ntwo\nth")

    def part(**query: str) -> LogPart:
        return client.log({"service": "default/chat", **query}, time.monotonic() + PATIENCE_S)

    first = part(lines="2")
    with log.open("ab") as file:
        file.write(b"ree\n" + b"." * 2000 + b"\n")
    second = part(after=first.cursor)
    with log.open("ab") as file:
        file.write(b"four\n")
    assert rotate(log, cap_bytes=100)
    log.write_bytes(b"five\n")
    third = part(after=second.cursor)

    assert [first.lines, second.lines] == [[b"one", b"two"], [b"three", b"." * 2000]]
    assert third.lines[-1] == b"five"
    assert part(after=third.cursor).lines == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("service=default/nope", 404),
        ("service=../../tls/token", 400),
        ("service=default/..", 400),
        ("service=default/chat&lines=-1", 400),
        ("service=default/chat&after=x", 400),
        ("service=default/chat&after=1.x", 400),
        ("service=default/chat&lines=99999999", 200),
        ("", 400),
    ],
)
def test_what_is_asked_of_a_log_is_judged_before_a_file_is_touched(
    query: str, status: int, node: ServedNode
) -> None:
    log = node.node.agent.state.log_file(ref("chat"))
    log.parent.mkdir(parents=True)
    log.write_text("x" * (5 << 20) + "\nend\n")
    token = (node.state / "tls" / "token").read_text().strip()

    answer = ask(node, f"/v1/logs?{query}", authorization=f"Bearer {token}")

    assert answer.status == status
    assert answer.body == b"end\n" if status == 200 else "error" in answer.json()


def our_client(node: ServedNode, tmp_path: Path, pinned: str | None) -> AgentClient:
    file = tmp_path / "mac.token"
    file.write_text((node.state / "tls" / "token").read_text() + f"127.0.0.1:{node.port}\n")
    credentials = AgentCredentials(token_file=file)
    return AgentClient("mac", f"https://127.0.0.1:{node.port}", pinned, credentials)


def test_secrets_are_for_their_owner_only_and_in_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ServedNode.open(tmp_path, {}, ListenSettings(EVERYWHERE, 0)) as node:
        node.serving.wait(PATIENCE_S)
        folder = node.state / "tls"
        token = (folder / "token").read_text().strip()
        ask(node, "/v1/state", authorization=f"Bearer {token}")
        said = (node.state / "server.json").read_text()

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"cert.pem": 0o600, "key.pem": 0o600, "token": 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert token not in caplog.text
    assert token not in said
    assert certificate_sha256(node.state) in caplog.text  # type: ignore[operator]  # it is there


def test_certificate_and_token_stay_over_a_restart(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with ServedNode.open(tmp_path, {}, ListenSettings(EVERYWHERE, 0)) as node:
            node.serving.wait(PATIENCE_S)
            token = (node.state / "tls" / "token").read_text()
            seen.append((node.serving.now.cert_sha256, token))

    assert seen[0] == seen[1]


def test_a_client_certificate_of_the_given_authority_does_as_well(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    listen = ListenSettings(EVERYWHERE, 0, client_ca_file=ours.cert)
    with ServedNode.open(tmp_path, {}, listen) as node:
        node.serving.wait(PATIENCE_S)

        known = ask(node, "/v1/state", client=ours.client("central"))
        nobody = ask(node, "/v1/state")
        with pytest.raises(OSError):  # noqa: PT011 - a reset, or an alert: both are OSErrors
            ask(node, "/v1/state", client=theirs.client("central"))

    assert known.status == 200
    assert nobody.status == 401


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_made_again_with_one_line(
    tmp_path: Path, damage: Callable[[Path, Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "tls"
    for name in ("cert.pem", "key.pem", "token"):
        before = open_tls(tmp_path, ("localhost",), None, time.time())
        damage(folder / name, folder / "nobody")
        was = {path.name: path.read_bytes() for path in folder.iterdir()}
        caplog.clear()

        after = open_tls(tmp_path, ("localhost",), None, time.time())

        changed = was != {path.name: path.read_bytes() for path in folder.iterdir()}
        lines = [r.getMessage() for r in caplog.records]
        assert len(lines) == (changed and (damage is not removed or name == "key.pem"))
        if damage in (emptied, noise, zeroed):
            assert changed
        if after.certificate != before.certificate and lines:
            assert f"certSha256 is now {after.certificate.sha256}" in lines[0]
        again = open_tls(tmp_path, ("localhost",), None, time.time())
        assert (again.certificate, again.token) == (after.certificate, after.token)


DAY_S = 24 * 3600.0


@pytest.mark.parametrize(
    ("made_in", "now_in", "problem"),
    [
        (2001, 2026, "its certificate expired on 2010-12-"),  # a board without a clock
        (1970, 2026, "its certificate expired on 1979-12-"),
        (2026, 2040, "its certificate expired on 2035-12-"),
        (2026, 2001, ""),  # the clock is wrong, and not the certificate
        (2026, 2025, ""),  # clocks differ
        (2026, 2027, ""),
    ],
)
def test_a_certificate_outside_its_validity_is_made_anew_before_a_start_and_while_it_runs(
    tmp_path: Path,
    made_in: int,
    now_in: int,
    problem: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made_at, now = (datetime(year, 1, 2, tzinfo=UTC).timestamp() for year in (made_in, now_in))
    (tmp_path / "tls").mkdir()
    old = TlsFiles(tmp_path / "tls", ("localhost",)).make(made_at)
    live = open_tls(tmp_path, ("localhost",), None, made_at)

    live.check(now)
    live.check(now)
    lines = [record.getMessage() for record in caplog.records]
    restarted = open_tls(tmp_path, ("localhost",), None, now)

    assert live.certificate == restarted.certificate
    assert (live.certificate == old) == (not problem)
    assert [problem in line for line in lines] == [True] * bool(problem)
    if problem:
        assert f"is now {live.certificate.sha256} (it was {old.sha256})" in lines[0]
        assert live.certificate.date_problem(now) is None


def test_a_certificate_of_the_user_is_reported_once_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether an authority made it, or it is self-signed."""
    authority = Authority(tmp_path / "ours")
    cert, key = authority.client("localhost")
    folder = tmp_path / "tls"
    folder.mkdir()
    shutil.copy(cert, folder / "cert.pem")
    shutil.copy(key, folder / "key.pem")
    later = time.time() + 100 * 365 * DAY_S

    tls = open_tls(tmp_path, ("localhost",), None, later)
    tls.check(later)

    assert (folder / "cert.pem").read_bytes() == Path(cert).read_bytes()
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"{folder / 'cert.pem'}: its certificate expired on ")
    (folder / "key.pem").write_text("x")
    with pytest.raises(StateError, match="no pair"):
        open_tls(tmp_path, ("localhost",), None, time.time())


def test_clients_meet_the_new_certificate_while_the_agent_runs(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, {}, ListenSettings(EVERYWHERE, 0)) as node:
        node.serving.wait(PATIENCE_S)
        before = node.serving.now.cert_sha256
        node.serving._clock = lambda: time.time() + 100 * 365 * DAY_S
        node.wake.fetch()
        wait_for(lambda: node.serving.now.cert_sha256 != before, "a new certificate")
        with (
            socket.create_connection(("127.0.0.1", node.port)) as raw,
            trusting().wrap_socket(raw) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)

        assert shown
        assert hashlib.sha256(shown).hexdigest() == node.serving.now.cert_sha256
        wait_for(lambda: served(node.state) == node.serving.now, "it is noted")


def test_a_client_ca_that_is_not_there_is_named(tmp_path: Path) -> None:
    listen = ListenSettings(EVERYWHERE, 0, client_ca_file=tmp_path / "nobody.pem")
    with ServedNode.open(tmp_path, {}, listen) as node:
        said = node.serving.wait(PATIENCE_S).problem

    assert said is not None
    assert f"--client-ca-file {tmp_path / 'nobody.pem'}" in said


def test_an_address_that_is_not_ours_is_said(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, {}, ListenSettings("192.0.2.1", 0)) as node:
        said = node.serving.wait(PATIENCE_S).problem

    assert said is not None
    assert "192.0.2.1" in said


def trusting() -> ssl.SSLContext:
    """A client that believes everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def ask(
    node: ServedNode,
    path: str,
    *,
    method: str = "GET",
    authorization: str | None = None,
    client: tuple[Path, Path] | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Reply:
    context = trusting()
    if client is not None:
        context.load_cert_chain(*client)
    known = {} if authorization is None else {"Authorization": authorization}
    url = f"https://127.0.0.1:{node.port}"
    headers = known | dict(headers or {})
    return request(url, method, path, headers=headers, body=body, context=context)
