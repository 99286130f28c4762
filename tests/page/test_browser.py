"""The pages in a real Chromium: by keyboard, by axe, without scripts, live, and large."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.console.value import Listen
from reconciler.kube.server import Serves
from reconciler.kube.server.board import Board, Role
from reconciler.kube.server.thread import OperatorServer
from reconciler.page.values import Documents
from tests.page.test_page import EXPLAINED, GIB, HOSTILE, blocked, fleet_of, plan, replaced
from tests.support.builders import ref
from tests.support.chromium import Browser, Tab, axe_source, chromium, missing_browser
from tests.support.fleets import service
from tests.support.served_node import ServedNode
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.together,
    pytest.mark.skipif(missing_browser() is not None, reason=str(missing_browser())),
]
_NAME = HOSTILE.removesuffix("</script>")  # no slash: that would end a part of a path
_TOKEN = "correct horse battery"
_WIDTHS = (360, 1200, 1920)


@dataclass
class Page:
    """A reconciler's page; `shown` is what it is made of now."""

    shown: Documents
    board: Board
    url: str = ""

    def change(self, **status: object) -> None:
        self.shown = self.shown._replace(status={**self.shown.status, **status})
        self.board.on_ended(0.1)


@contextlib.contextmanager
def served(shown: Documents, token: Path | None = None) -> Iterator[Page]:
    page = Page(shown, Board(lambda: Role(leads=True)))
    serves = Serves(Listen("127.0.0.1", 0), page_token_file=token)
    server = OperatorServer(page.board, lambda: page.shown, serves, lambda: None)
    server.start()
    try:
        page.url = f"http://127.0.0.1:{server.wait(PATIENCE_S)}"
        yield page
    finally:
        server.close()


def small() -> Documents:
    """A little of everything, with names that are markup."""
    shown = fleet_of(nodes=2, services=3)
    late = {**shown.status["services"][2], "ready": False, "reason": HOSTILE, "message": HOSTILE}
    late["ref"] = {**late["ref"], "name": _NAME}
    status = {**shown.status, "services": [*shown.status["services"][:2], late]}
    change = replaced("node/n1", 3 * GIB)
    planned = plan(change, held=(blocked("old", "NeedsConfirmation"),))
    return Documents("home", status, planned, lambda _, __: EXPLAINED)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    with served(small()) as opened:
        yield opened


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(_TOKEN)
    return path


@pytest.mark.parametrize("path", ["/", "/plan", "/services/default/s0", "/services/default/none"])
def test_axe_finds_nothing_at_any_size(browser: Browser, page: Page, path: str) -> None:
    with browser.open(f"{page.url}{path}") as tab:
        assert _findings(tab) == {}


def test_axe_finds_nothing_on_the_form(browser: Browser, token: Path) -> None:
    with served(small(), token) as locked, browser.open(locked.url) as tab:
        assert _findings(tab) == {}


def _findings(tab: Tab) -> dict[str, list[str]]:
    """By how it was looked at; a page wider than the window is one, too."""
    axe = axe_source()
    found = {}
    for scheme in ("light", "dark"):
        for width in _WIDTHS:
            tab.look(width, scheme)
            over = tab.run("document.documentElement.scrollWidth - innerWidth")
            found[f"{scheme} {width}"] = tab.axe(axe) + (
                [f"{over} px too wide"] if over > 0 else []
            )
    return {how: findings for how, findings in found.items() if findings}


def test_everything_is_reached_by_keyboard(browser: Browser, page: Page) -> None:
    with browser.open(page.url) as tab:
        reached = []
        for _ in range(7):
            tab.press("Tab")
            reached.append(tab.run("document.activeElement.textContent.trim().split('\\n')[0]"))
            assert tab.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
        assert reached[:3] == ["Fleet", "Plan", f"default/{_NAME}"]
        assert reached[4:7] == ["default/s0", "default/s1", f"default/{_NAME}"]

        tab.run("document.querySelector('tbody a').focus()")
        tab.press("Enter")
        wait_for(lambda: tab.run("location.pathname") == "/services/default/s0")
        wait_for(lambda: "Memory 3.0 GiB" in tab.text)


def test_a_service_that_is_called_script_runs_nothing(browser: Browser, page: Page) -> None:
    with browser.open(page.url) as tab:
        assert _NAME in tab.text
        assert tab.run("document.querySelectorAll('body script').length") == 0

        tab.run("[...document.querySelectorAll('tbody a')].at(-1).click()")
        wait_for(lambda: "/services/" in tab.run("location.pathname"))
        wait_for(lambda: tab.run("document.querySelector('h1')?.textContent") == f"default/{_NAME}")


def test_facts_are_there_without_scripts(browser: Browser, page: Page) -> None:
    with browser.open("about:blank#none") as tab:
        tab.without_scripts()
        tab.call("Page.navigate", url=page.url)

        wait_for(lambda: "default/s1 Ready" in tab.text)


def test_a_page_changes_as_the_fleet_does_and_leaves_the_focus(browser: Browser) -> None:
    with served(small()) as own, browser.open(own.url) as tab:
        wait_for(lambda: tab.run("events?.readyState") == 1, "the stream of events")
        tab.run("document.querySelector('tbody a').focus()")
        own.change(revision="abcdef0123")

        wait_for(lambda: "revision abcdef0" in tab.text)
        assert tab.run("document.activeElement.textContent") == "default/s0"


def test_the_token_is_typed_once_and_no_script_has_it(browser: Browser, token: Path) -> None:
    with served(small(), token) as locked, browser.open(f"{locked.url}/plan") as tab:
        assert "default" not in tab.text

        _send(tab, "a wrong one")
        wait_for(lambda: "That is not the token." in tab.text)
        _send(tab, _TOKEN)

        wait_for(lambda: "default/s0" in tab.text, tab.text)
        tab.go(f"{locked.url}/plan")
        wait_for(lambda: "NeedsConfirmation" in tab.text)
        assert tab.run("document.cookie") == ""
        assert _TOKEN not in tab.run("location.href + document.documentElement.outerHTML")


def _send(tab: Tab, token: str) -> None:
    """By somebody who types as soon as the form is there."""
    wait_for(lambda: tab.run("document.activeElement?.id") == "token", "the cursor in the form")
    tab.type(token)
    tab.press("Enter")


def test_no_page_of_another_origin_reads_it(browser: Browser, page: Page) -> None:
    with browser.open("data:text/html,a page with no policy of ours") as tab:
        asked = f"fetch('{page.url}/').then(() => 'read', () => 'refused')"

        assert tab.run(asked) == "refused"


def test_a_large_fleet_is_painted_with_its_first_part(browser: Browser) -> None:
    with served(fleet_of(nodes=300, services=3000)) as large, browser.open(large.url) as tab:
        wait_for(lambda: tab.run("performance.getEntriesByType('paint').length") > 0)

        shown_ms = tab.run(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            " - performance.getEntriesByType('navigation')[0].responseStart"
        )

        print(f"painted {shown_ms:.0f} ms after the answer began")  # 225 where nothing else runs
        assert tab.run("document.querySelectorAll('tbody tr').length") == 3000


def test_an_agents_page_shows_the_log_as_it_grows(browser: Browser, tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, {"chat.yaml": service("chat", "tiny")}) as node:
        node.wait_ready()
        log = node.node.agent.state.log_file(ref("chat"))
        with browser.open(f"{node.url}/services/default/chat") as tab:
            for line in ("the <b>first</b>", "and the next"):
                with log.open("a") as file:
                    file.write(f"{line}\n")
                wait_for(lambda line=line: line in tab.text, "the line")
            assert _findings(tab) == {}


def test_a_service_is_asked_from_its_page(browser: Browser, tmp_path: Path) -> None:
    files = {"chat.yaml": service("chat", "tiny")}
    with ServedNode.open(tmp_path, files, engine=None) as node:
        node.wait_ready()
        with browser.open(f"{node.url}/services/default/chat") as tab:
            tab.run("document.getElementById('question').focus()")
            tab.type("Why is the sky blue?")
            tab.press("Tab")

            def has_answer() -> bool:
                """A model of random weights may end its answer before it has begun."""
                if tab.run("document.querySelector('#ask button').textContent") == "Ask":
                    tab.press("Enter")
                return bool(tab.run("document.getElementById('answer').textContent"))

            wait_for(has_answer, tab.text)
            assert "[no answer" not in tab.text
            assert _findings(tab) == {}
