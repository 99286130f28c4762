"""What docs/ cite is there: tests by their names, and pages by their links."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest
import yaml

from agent.cli import parser_of
from reconciler.api.problem import RULES, Severity
from reconciler.api.reasons import REASONS
from reconciler.cli import deploy, install
from reconciler.cli.options import add_fleet_options
from reconciler.console.parser import Parser
from reconciler.report.field_page import field_page
from reconciler.runtimes import RUNTIMES

REPOSITORY = Path(__file__).parents[2]
PAGES = [*sorted((REPOSITORY / "docs").rglob("*.md")), REPOSITORY / "SECURITY.md"]
_CITED = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
_FROM_AN_INDEX = re.compile(
    r"\b(?:(?:pip3?|pipx|uv tool|uv pip|brew)\s+install|uvx|pipx run)\b.*?"
    r"(?<![/\w.@-])fleet[-_]reconciler(?![\w./-])"
)
_IDS = [str(page.relative_to(REPOSITORY)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=_IDS)
def test_every_test_that_a_page_cites_exists(page: Path) -> None:
    cited = set(_CITED.findall(page.read_text()))

    assert {f"{file}::{name}" for file, name in cited if name not in _tests_of(file)} == set()


@pytest.mark.parametrize("page", PAGES, ids=_IDS)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_nothing_tells_people_to_install_our_name_from_an_index() -> None:
    """It is on none. Whoever registers it would run code on every machine that follows the line."""
    tracked = subprocess.run(
        ("git", "ls-files"), cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    told = [
        f"{name}: {line.strip()}"
        for name in tracked.stdout.splitlines()
        if not name.startswith("tests/") and (REPOSITORY / name).is_file()
        for line in (REPOSITORY / name).read_text(errors="replace").splitlines()
        if _FROM_AN_INDEX.search(line)
    ]

    assert told == []
    assert _FROM_AN_INDEX.search("run: pip install -q 'fleet-reconciler[embedded]'")
    assert not _FROM_AN_INDEX.search("pip install git+https://git.example/fleet-reconciler.git")


def test_every_job_that_a_page_names_is_one_of_its_workflow() -> None:
    named = {job for page in (*PAGES, REPOSITORY / "README.md") for job in _jobs_named(page)}

    assert {("macos", "platforms.yml"), ("kind", "platforms.yml")} <= named
    assert [f"{job} of {file}" for job, file in named if job not in _jobs_of(file)] == []


def test_what_only_a_mac_or_a_kubelet_shows_has_a_job_or_says_that_none_does() -> None:
    """And never as proven: a row that is done has its test on this platform."""
    text = (REPOSITORY / "docs/seeds.md").read_text()
    lines = re.findall(r"^\| Mac +\|.*$|^\| .*kubelet.*\|$", text, re.MULTILINE)

    assert len(lines) > 4
    assert [each for each in lines if not re.search(r"shown by the job|no job has it", each)] == []


def test_the_page_of_requirements_has_a_test_in_every_row_that_it_calls_done() -> None:
    text = (REPOSITORY / "docs/seeds.md").read_text()

    rows = re.findall(r"^\| yes +\|.*$", text, re.MULTILINE)

    assert len(rows) > 50
    assert [row for row in rows if not _CITED.search(row)] == []


def test_the_page_of_requirements_explains_every_mark_that_it_gives() -> None:
    text = (REPOSITORY / "docs/seeds.md").read_text()
    sections = re.split(r"^## (.*)$", text, flags=re.MULTILINE)[1:-2]
    explained = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))

    given = re.findall(r"^\| (\w+) +\|", "".join(sections[1::2]), re.MULTILINE)

    assert len(sections[::2]) == 5, "the five documents"
    assert set(given) == explained


def test_the_page_of_runtimes_says_what_a_router_costs() -> None:
    text = (REPOSITORY / "docs/runtimes.md").read_text()

    for heading in ("## The router", "### Swap, or side by side"):
        assert f"\n{heading}\n" in text
    assert re.search(r"^\| must swap, .* \d+ times \|$", text, re.MULTILINE)
    assert "There is no autoscaling of one model behind a router" in text
    assert "Choose `resident: N` where" in text


def test_the_page_of_troubles_names_whatever_holds_a_service_of_a_cluster() -> None:
    text = (REPOSITORY / "docs/kubernetes-troubles.md").read_text()
    blocking = {rule.id for rule in RULES.values() if rule.severity is Severity.BLOCKED}
    held = {"NotOurs", "FieldConflict", "Fight", "Guarded", "NeedsConfirmation", "ObjectRefused"}
    held |= {"PruneDisabled", "Held", "ObjectGoing"}
    of_agents = {"PortConflict", "AgentTooOld"}

    assert held <= REASONS.keys()
    assert {r for r in (blocking | held) - of_agents if f"`{r}`" not in text} == set()


def test_the_page_of_fields_is_what_the_kinds_say() -> None:
    page = (REPOSITORY / "docs/fields.md").read_text()

    assert page == field_page(RUNTIMES), "stale: run `make schemas`"
    assert "| `spec.router.resident` | from 1 to 64 |" in page
    assert re.search(r"`spec\.contextSize` .* Default 8192\. \| process, per model \|", page)


def test_the_readme_leads_to_every_page() -> None:
    readme = (REPOSITORY / "README.md").read_text()

    pages = [page.relative_to(REPOSITORY) for page in PAGES if page.parent.name == "docs"]

    assert [str(page) for page in pages if f"({page})" not in readme] == []


def _jobs_named(page: Path) -> list[tuple[str, str]]:
    text = " ".join(page.read_text().split())
    return re.findall(r"job `(\w+)` of \[?(\w+\.yml)", text)


def _jobs_of(file: str) -> Collection[str]:
    path = REPOSITORY / ".github/workflows" / file
    return yaml.safe_load(path.read_text())["jobs"].keys() if path.is_file() else ()


def _tests_of(file: str) -> set[str]:
    path = REPOSITORY / file
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_option_that_the_page_of_the_metal_agent_offers_is_there() -> None:
    rows = re.findall(r"^\|.*\| (.*) \|$", (REPOSITORY / "docs/metal-agent.md").read_text(), re.M)
    asked = {word for row in rows for word in re.findall(r"(?<!\S)`?(--[a-z-]+)", row)}

    known = parser_of("run").format_help() + "--version"
    for command in (deploy, install):
        parser = Parser()
        add_fleet_options(parser)
        command.add_options(parser)
        known += parser.format_help()

    assert {"--host-ip", "--namespace", "--model-store", "--llama-server", "--port"} <= asked
    assert {option for option in asked if option not in known} == set()
