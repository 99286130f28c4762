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
from tests.support.ports import own_port
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
    """The three files of the tutorial, each named in the sentence before its block."""
    files = re.findall(r"^`([a-z]+\.yaml)`,.*?```yaml\n(.*?)```", README, re.MULTILINE | re.DOTALL)
    assert len(files) == 3
    folder = tmp_path / "fleet"
    folder.mkdir()
    for name, text in files:
        (folder / name).write_text(text)
    return folder


def test_the_first_fleet_is_valid(first_fleet: Path) -> None:
    run = _reconcile("validate", "-C", str(first_fleet))

    assert run.returncode == 0, run.stdout + run.stderr


def test_the_mistake_is_met_with_the_words_shown(first_fleet: Path) -> None:
    (shown,) = re.findall(r"^chat\.yaml:.*$", README, re.MULTILINE)
    chat = first_fleet / "chat.yaml"
    chat.write_text(chat.read_text().replace("smollm2-135m", "smollm2-135"))

    run = _reconcile("validate", "-C", str(first_fleet))

    assert run.returncode == 1
    assert shown in run.stdout.splitlines()


@pytest.mark.e2e
def test_the_five_minutes_end_with_an_answer(first_fleet: Path, tmp_path: Path) -> None:
    """Every line of the block, typed as it stands by somebody with an empty home."""
    (block,) = re.findall(r"^Then, line by line.*?```\n(.*?)```", README, re.MULTILINE | re.DOTALL)
    home, port = tmp_path / "home", str(own_port())
    link_model(
        SMOLLM2, home / ".local/state/fleet-reconciler/models"
    )  # it is not fetched each time
    chat = first_fleet / "chat.yaml"
    chat.write_text(chat.read_text().replace("8088", port))
    env = git_env() | {"HOME": str(home), "PATH": f"{RECONCILE.parent}:{os.environ['PATH']}"}
    env = {name: value for name, value in env.items() if not name.startswith("XDG_")}

    def typed(line: str) -> tuple[int, str]:
        done = subprocess.run(
            ("sh", "-c", line.replace("8088", port)),
            cwd=first_fleet,
            env=env,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE_S,  # a model of 94 MiB is read and warmed up
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    try:
        said = {line: typed(line) for line in ("git init -q", *block.splitlines())}
    finally:
        typed("fleet-agent stop --all")

    wrong = {line: told for line, told in said.items() if told[0] != (" plan " in line) * 2}
    assert wrong == {}
    ((_, answer),) = (told for line, told in said.items() if line.startswith("curl"))
    assert "Paris" in answer
    assert not any("not pinned" in text or "warning" in text for _, text in said.values())


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
    documented = set(re.findall(r"`(--[a-z-]+)`", listed))

    assert documented == {f"--{row.key}" for row in ALLOWED.values()}


def _reconcile(*argv: str) -> subprocess.CompletedProcess[str]:
    words = [str(RECONCILE), *argv]
    return forked.run(words, env=os.environ, cwd=Path.cwd(), timeout_s=PATIENCE_S)
