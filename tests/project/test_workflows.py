"""What the workflows say, as far as a mistake there would be silent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import command_lines

REPOSITORY = Path(__file__).parents[2]
WORKFLOWS = {p.name: p for p in sorted((REPOSITORY / ".github/workflows").glob("*.yml"))}
_ASK = "import tests.conftest; from hypothesis import settings; print(settings.default.derandomize)"


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(WORKFLOWS[name].read_text())
    return loaded


@pytest.mark.parametrize(("job", "same"), [("ci.yml test", True), ("soak.yml soak", False)])
def test_examples_are_the_same_each_time_in_ci_and_new_ones_in_the_soak(
    job: str, same: bool
) -> None:
    file, name = job.split()
    # Hypothesis knows GitHub's machines by itself, and sets CI's ways there.
    github = {"CI": "true", "GITHUB_ACTIONS": "true"} | read(file)["jobs"][name].get("env", {})

    done = subprocess.run(
        (sys.executable, "-c", _ASK),
        cwd=REPOSITORY,
        env={**os.environ, **github},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == str(same)


def test_what_the_jobs_run_is_there_and_every_script_is_run() -> None:
    said = "".join(path.read_text() for path in WORKFLOWS.values())
    named = set(re.findall(r"tests/ci/\w+\.sh", said))
    scripts = {p for p in (REPOSITORY / "tests/ci").glob("*.sh") if os.access(p, os.X_OK)}

    assert named <= {str(p.relative_to(REPOSITORY)) for p in scripts}
    tested = {"workflows.sh"}  # by a test
    assert {p.name for p in scripts} - tested == {Path(name).name for name in named}


def test_actions_are_one_commit_each_with_their_version_beside_it() -> None:
    said = "".join(path.read_text() for path in WORKFLOWS.values())

    used = re.findall(r"uses: (\S+?)(?:/restore)?@(\S+)(.*)", said)

    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for _, commit, _ in used)
    assert all(re.fullmatch(r" # v\d+\.\d+\.\d+", rest) for _, _, rest in used)
    assert len({name for name, _, _ in used}) == len({(n, c) for n, c, _ in used})


def test_the_hook_of_pre_commit_is_a_command_line_that_is_there_for_files_of_a_fleet() -> None:
    (hook,) = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())

    isolated, _, words = hook["entry"].partition(" -m reconciler ")
    assert isolated == "python -I"
    assert command_lines.read(f"reconcile {words}")[0] == "reconcile validate"
    assert hook["pass_filenames"] is False
    files = ("chat.yaml", "a/b.yml", ".fleetignore", "a/.fleetignore", "tiny.gguf")
    assert all(re.search(hook["files"], file) for file in files)
    assert not re.search(hook["files"], "README.md")


def test_the_example_has_the_workflow_of_the_page() -> None:
    page = (REPOSITORY / "docs/github-actions.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    example = (REPOSITORY / "fleet-example/.github/workflows/fleet.yml").read_text()

    assert yaml.safe_load(example) == yaml.safe_load(text)
