"""What README.md tells a newcomer to type is true, and what docs/ list is complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.runtime import Runtime
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.llamacpp_flags import ALLOWED
from tests.support.wait import PATIENCE_S

REPOSITORY = Path(__file__).parent.parent
README = (REPOSITORY / "README.md").read_text()
RECONCILE = Path(sys.executable).parent / "reconcile"


@pytest.fixture
def first_fleet(tmp_path: Path) -> Path:
    """The three files of the tutorial, each named in the sentence before its block."""
    files = re.findall(r"^`([a-z]+\.yaml)`,.*?```yaml\n(.*?)```", README, re.MULTILINE | re.DOTALL)
    assert len(files) == 3
    for name, text in files:
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_first_fleet_is_valid(first_fleet: Path) -> None:
    run = _reconcile("validate", "-C", str(first_fleet))

    assert run.returncode == 0, run.stdout + run.stderr


def test_the_mistake_is_met_with_the_words_shown(first_fleet: Path) -> None:
    (shown,) = re.findall(r"^chat\.yaml:.*$", README, re.MULTILINE)
    chat = first_fleet / "chat.yaml"
    chat.write_text(chat.read_text().replace("gemma-270m", "gemma-270"))

    run = _reconcile("validate", "-C", str(first_fleet))

    assert run.returncode == 1
    assert shown in run.stdout.splitlines()


@pytest.mark.parametrize("document", ["README.md", "AGENTS.md", "CONTRIBUTING.md"])
def test_every_link_and_every_make_target_exists(document: str) -> None:
    text = (REPOSITORY / document).read_text()
    makefile = (REPOSITORY / "Makefile").read_text()

    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    targets = set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE))

    assert [link for link in links if not (REPOSITORY / link).exists()] == []
    assert targets
    assert [t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []


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
    return subprocess.run(
        [RECONCILE, *argv], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
