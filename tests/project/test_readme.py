"""What README.md tells a newcomer to type is true, and what docs/ list is complete."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.llamacpp_flags import ALLOWED
from reconciler.runtimes.runtime import Runtime
from tests.support import forked
from tests.support.ports import own_row
from tests.support.real_models import SMOLLM2, link_model
from tests.support.reconciler import Machine
from tests.support.repos import git_env
from tests.support.systemctl import end_service, install_manager
from tests.support.typed_pages import Page, shell
from tests.support.wait import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()
GIT_URL = "https://git.example/fleet.git"
RECONCILE = Path(sys.executable).parent / "reconcile"


@pytest.fixture
def first_fleet(tmp_path: Path) -> Path:
    """What the tutorial's first command writes in an empty home."""
    folder, env = tmp_path / "fleet", _empty_home(tmp_path / "home")
    words = (str(RECONCILE), "init", str(folder), "--node", "laptop")
    assert forked.run(words, env=env, cwd=tmp_path, timeout_s=PATIENCE_S).returncode == 0
    return folder


def _empty_home(home: Path) -> dict[str, str]:
    home.mkdir(parents=True, exist_ok=True)
    env = git_env() | {"HOME": str(home), "PATH": f"{RECONCILE.parent}:{os.environ['PATH']}"}
    return {name: value for name, value in env.items() if not name.startswith("XDG_")}


def test_the_first_fleet_is_valid(first_fleet: Path) -> None:
    run = _reconcile("validate", "-C", str(first_fleet))

    assert run.returncode == 0, run.stdout + run.stderr


def test_the_mistake_is_met_with_the_words_shown(first_fleet: Path) -> None:
    (shown,) = re.findall(r"^services/chat\.yaml:.*$", README, re.MULTILINE)
    chat = first_fleet / "services/chat.yaml"
    chat.write_text(chat.read_text().replace("smollm2-135m", "smollm2-135"))

    run = _reconcile("validate", "-C", str(first_fleet))

    assert run.returncode == 1
    assert shown in run.stdout.splitlines()


def test_the_document_that_the_five_minutes_show_is_one_that_is_written(first_fleet: Path) -> None:
    section = Page(README).section("Your own fleet, in five minutes").text
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", section, re.MULTILINE | re.DOTALL)

    assert shown in (first_fleet / "services/chat.yaml").read_text()


@pytest.mark.e2e
def test_the_five_minutes_end_with_an_answer(tmp_path: Path) -> None:
    """Every line of both blocks, typed as it stands by somebody with an empty home, in a shell that
    knows the two programs."""
    env = _empty_home(tmp_path / "home")
    models = tmp_path / "home/.local/state/fleet-reconciler/models"
    link_model(SMOLLM2, models)  # it is not fetched each time
    section = Page(README).section("Your own fleet, in five minutes").text
    blocks = re.findall(
        r"^```\n(?:\. .*?\n)?(reconcile init.*?|git .*?)^```", section, re.MULTILINE | re.DOTALL
    )

    with own_row() as ports, shell(env, tmp_path) as opened:
        opened.type(f"export FLEET_SERVICE_PORTS={ports[0]}-{ports[-1]}")
        try:
            said = {line: opened.type(line) for line in "".join(blocks).splitlines()}
        finally:
            opened.type("fleet-agent stop --all")

    assert len(said) == 9
    wrong = {line: told for line, told in said.items() if told[0] != (" plan " in line) * 2}
    assert wrong == {}
    ((_, answer),) = (told for line, told in said.items() if line.startswith("reconcile ask"))
    assert "Paris" in answer
    assert [text for _, text in said.values() if "not pinned" in text or "warning" in text] == []


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has launchd and no systemctl")
def test_the_block_of_an_agent_goes_from_a_doctor_to_a_model_and_back(tmp_path: Path) -> None:
    """Every line, typed as it stands in the clone of an empty repository."""
    manager = install_manager(tmp_path / "manager")
    with Machine(tmp_path) as machine:
        link_model(SMOLLM2, machine.state / "models")
        found = {"PATH": f"{manager}:{RECONCILE.parent}:{os.environ['PATH']}", "FLEET_PORT": "0"}
        said: dict[str, tuple[int, str]] = {}
        with shell(machine.environment | found, tmp_path) as opened:
            opened.type("git init -q --bare fleet.git && git clone -q fleet.git fleet && cd fleet")
            try:
                for line in _block("An agent on every machine"):
                    said[line] = opened.type(line.replace(GIT_URL, f"{tmp_path}/fleet.git"))
                    if "install --fleet" in line:
                        machine.wait_ready("smollm2-135m")
            finally:
                end_service(manager)
        left = machine.processes()

    assert {line: told for line, told in said.items() if told[0] != 0} == {}
    told = {line.split("#")[0].strip(): text for line, (_, text) in said.items()}
    assert " works " in told["fleet-agent doctor"]
    assert "1 of 1 services ready" in told["fleet-agent status"]
    assert "listening" in told["fleet-agent logs smollm2-135m -n 20"]
    assert left == []


def _block(heading: str) -> list[str]:
    """The lines of a section that are to be typed."""
    text = Page(README).section(heading).text
    return re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0].splitlines()


@pytest.mark.parametrize("document", ["README.md", "AGENTS.md", "CONTRIBUTING.md"])
def test_every_link_and_every_make_target_exists(document: str) -> None:
    text = (REPOSITORY / document).read_text()
    makefile = (REPOSITORY / "Makefile").read_text()

    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    targets = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))

    assert [link for link in links if not (REPOSITORY / link).exists()] == []
    assert targets
    assert [t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []


def test_every_function_that_the_map_names_is_there() -> None:
    text = (REPOSITORY / "AGENTS.md").read_text()

    named = re.findall(r"`((?:reconciler|agent)/[\w/]+\.py)(?:::([\w.]+))?`", text)

    assert len(named) > 50
    assert [(path, name) for path, name in named if not _is_there(path, name)] == []


def _is_there(path: str, name: str) -> bool:
    """Whether a module defines `Class.method` or whatever else is named at its top."""
    if not (REPOSITORY / path).is_file():
        return False
    body: list[ast.stmt] = ast.parse((REPOSITORY / path).read_text()).body
    for part in filter(None, name.split(".")):
        found = [each for each in body if part in _names(each)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def _names(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=lambda runtime: runtime.name)
def test_every_runtime_is_documented_with_its_options(runtime: Runtime) -> None:
    text = (REPOSITORY / "docs/runtimes.md").read_text()

    options = runtime.options.model_json_schema(by_alias=True)["properties"]
    names = {runtime.name, *runtime.aliases, *options}

    assert {name for name in names if f"`{name}`" not in text} == set()


def test_every_argument_that_a_manifest_may_give_is_documented() -> None:
    text = (REPOSITORY / "docs/runtimes.md").read_text()

    listed = text.partition("`spec.extraArgs` takes these")[2].partition("\nEverything else")[0]
    documented = set(re.findall(r"`(--[a-z0-9-]+)`", listed))

    assert documented == {f"--{row.key}" for row in ALLOWED.values()}


def _reconcile(*argv: str) -> subprocess.CompletedProcess[str]:
    words = [str(RECONCILE), *argv]
    return forked.run(words, env=os.environ, cwd=Path.cwd(), timeout_s=PATIENCE_S)
