"""Who may look at a reconciler's page, asked over real connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.console.value import Listen
from reconciler.core.observation import Observation
from reconciler.kube.server import Serves
from reconciler.kube.server.board import Board, Role
from reconciler.kube.server.thread import OperatorServer
from reconciler.page.values import Documents
from reconciler.report.status import Status
from reconciler.report.status_json import status_json
from tests.support.served_node import Reply, request
from tests.support.wait import PATIENCE_S

TOKEN = "correct horse battery"
FLEET = Documents("the name of the fleet", status_json(Status(Observation({}, ()))), None)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Page:
    """A reconciler's server; `clock` is what it takes for the time."""

    def __init__(self, host: str, token: Path | None) -> None:
        self.clock = 0.0
        board = Board(lambda: Role(leads=True))
        serves = Serves(Listen(host, 0), page_token_file=token)
        self.server = OperatorServer(
            *(board, lambda: FLEET, serves, lambda: None), clock=lambda: self.clock
        )
        self.server.start()
        self.url = f"http://127.0.0.1:{self.server.wait(PATIENCE_S)}"

    def get(self, path: str = "/", **headers: str) -> Reply:
        return request(self.url, "GET", path, headers=headers)

    def send(self, token: str, **headers: str) -> Reply:
        body = f"token={token}".replace(" ", "+").encode()
        return request(self.url, "POST", "/session", headers=FORM | headers, body=body)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def page(token: Path) -> Iterator[Page]:
    opened = Page("0.0.0.0", token)
    yield opened
    opened.server.close()


def test_off_loopback_nothing_is_shown_but_the_form(page: Page) -> None:
    for path in ("/", "/plan", "/services/default/chat", "/v1/events"):
        form = page.get(path)

        assert form.status == 401
        assert 'action="/session"' in form.text
        assert FLEET.title not in form.text


def test_the_token_is_asked_for_once_and_kept_by_nobody(page: Page, token: Path) -> None:
    sent = page.send(TOKEN, Origin=page.url)
    cookie = sent.headers["set-cookie"]
    kept = cookie.partition(";")[0]

    shown = page.get("/", Cookie=f"other=1; {kept}")
    token.write_text("another token, later")

    assert (sent.status, sent.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert shown.status == 200
    assert FLEET.title in shown.text
    assert TOKEN not in f"{sent.headers} {shown.text}"
    assert page.get("/", Cookie=kept).status == 401, "the cookie of another token"
    assert page.get("/", Cookie=f"{kept}é".encode().decode("latin-1")).status == 401


@pytest.mark.parametrize(
    ("given", "headers", "status"),
    [
        ("wrong", {}, 401),
        ("%FF%00", {}, 401),
        ("", {}, 401),
        (TOKEN, {"Origin": "https://elsewhere.example"}, 403),
        (TOKEN, {"Origin": "null"}, 403),
        ("x" * 5000, {}, 413),
    ],
    ids=["wrong", "no text", "empty", "another site", "a page without origin", "too long"],
)
def test_no_cookie_is_given_for(
    page: Page, given: str, headers: dict[str, str], status: int
) -> None:
    answer = page.send(given, **headers)

    assert answer.status == status
    assert "set-cookie" not in answer.headers


def test_guesses_are_few_and_cost_nobody_who_is_known(page: Page) -> None:
    kept = page.send(TOKEN).headers["set-cookie"].partition(";")[0]

    guesses = [page.send("guess").status for _ in range(12)]

    assert guesses == [401] * 10 + [429] * 2
    assert page.send(TOKEN).status == 429, "a right guess among many is none"
    assert page.get("/", Cookie=kept).status == 200
    page.clock += 2.0
    assert page.send(TOKEN).status == 303


@pytest.mark.parametrize(
    ("host", "token_text", "asked_as", "status"),
    [
        ("127.0.0.1", None, "localhost", 200),
        ("127.0.0.1", None, "elsewhere.example", 421),
        ("127.0.0.1", TOKEN, "localhost", 401),
        ("0.0.0.0", None, "localhost", 404),
        ("0.0.0.0", "short", "localhost", 404),
    ],
    ids=["loopback", "a foreign name", "a token on loopback", "no token", "a short token"],
)
def test_who_sees_the_page(
    tmp_path: Path, host: str, token_text: str | None, asked_as: str, status: int
) -> None:
    file = tmp_path / "token" if token_text else None
    if file:
        file.write_text(str(token_text))
    page = Page(host, file)
    try:
        answer = page.get("/", Host=asked_as)
        assert page.get("/healthz", Host=asked_as).status == 200
    finally:
        page.server.close()

    assert answer.status == status
    assert (FLEET.title in answer.text) == (status == 200)
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("named", ["page_token_file", "secret_file"])
def test_a_file_of_secrets_that_is_not_there_is_said_at_the_start(
    named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    absent = tmp_path / "absent"
    serves = Serves(Listen("127.0.0.1", 0), **{named: absent})
    board = Board(lambda: Role(leads=True))
    server = OperatorServer(board, lambda: FLEET, serves, lambda: None)

    server.start()
    server.wait(PATIENCE_S)
    server.close()

    option = {"page_token_file": "--page-token-file", "secret_file": "--webhook-secret-file"}[named]
    said = [text for text in caplog.messages if "there is no such file" in text]
    assert [text.partition(": ")[0] for text in said] == [f"{option} {absent}"]
