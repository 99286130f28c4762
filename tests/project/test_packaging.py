"""The wheel, installed outside the checkout, brings everything that a command prints or runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.wait import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
SCHEMAS = sorted(
    str(path.relative_to(REPOSITORY / "schemas")) for path in (REPOSITORY / "schemas").rglob("*.*")
)
EXAMPLE = sorted(path for path in (REPOSITORY / "fleet-example").rglob("*") if path.is_file())
CHART = sorted(path for path in (REPOSITORY / "deploy/chart").rglob("*") if path.is_file())
USAGE = 64

pytestmark = [pytest.mark.e2e, pytest.mark.together]


@dataclass(frozen=True)
class Installation:
    """A virtual environment with the wheel in it, and an empty folder to work in."""

    wheel: Path
    bin: Path
    folder: Path

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / argv[0], *argv[1:]],
            cwd=self.folder,
            env=_environment(HOME=str(self.folder), XDG_STATE_HOME=str(self.folder / "state")),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Build the wheel, and install it with its dependencies as a user would."""
    root = tmp_path_factory.mktemp("packaging")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(root)]
    _checked([*build, str(REPOSITORY)])
    (wheel,) = root.glob("*.whl")

    bin_ = root / "venv" / "bin"
    _checked([sys.executable, "-m", "venv", "--without-pip", str(root / "venv")])
    pip = [sys.executable, "-m", "pip", "--python", str(bin_ / "python"), "install", "--quiet"]
    _checked([*pip, "--no-compile", str(wheel)])  # a dozen of a thousand modules are run here
    (root / "empty").mkdir()
    return Installation(wheel, bin_, root / "empty")


@pytest.mark.parametrize("program", ["reconcile", "fleet-agent"])
def test_every_command_explains_itself(installed: Installation, program: str) -> None:
    overview = installed.run(program, "--help")
    commands = _commands(overview.stdout)

    helps = installed.run("python", "-c", _HELPS, program, *commands)

    assert overview.returncode == 0, overview.stderr
    assert commands
    assert helps.returncode == 0, helps.stderr
    said = {text.partition("\n")[0]: text for text in helps.stdout.split("\0")[1:]}
    assert [*said] == commands
    for command, text in said.items():
        assert f"usage: {program} {command}" in text


@pytest.mark.parametrize("program", ["reconcile", "fleet-agent"])
def test_an_unknown_command_is_a_usage_error(installed: Installation, program: str) -> None:
    run = installed.run(program, "no-such-command")

    assert run.returncode == USAGE
    assert "no-such-command" in run.stderr
    assert "Traceback" not in run.stderr


def test_the_version_is_the_wheels(installed: Installation) -> None:
    run = installed.run("reconcile", "--version")

    assert run.returncode == 0
    assert installed.wheel.name.split("-")[1] in run.stdout


def test_the_schemas_can_be_had(installed: Installation) -> None:
    run = installed.run("reconcile", "schema")

    assert run.returncode == 0, run.stderr
    written = list(installed.folder.rglob("*.json"))
    assert written or json.loads(run.stdout)


def test_a_cluster_can_be_installed_from_what_the_wheel_brings(installed: Installation) -> None:
    url = "https://git.test/fleet.git"

    exported = installed.run("reconcile", "install", "--export", "-C", url)
    chart = installed.run("reconcile", "schema", "--chart", str(installed.folder / "chart"))

    assert exported.returncode == 0, exported.stderr
    kinds = [d["kind"] for d in yaml.safe_load_all(exported.stdout)]
    assert kinds.count("CustomResourceDefinition") == 4
    assert kinds.count("Deployment") == 1
    assert chart.returncode == 0, chart.stderr
    written = {path.name for path in (installed.folder / "chart/crds").iterdir()}
    assert written == {path.name for path in (REPOSITORY / "deploy/chart/crds").iterdir()}


def test_the_source_archive_can_be_built_and_installed_by_itself(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path)]
    _checked([*build, str(REPOSITORY)])
    (archive,) = tmp_path.glob("*.tar.gz")

    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}

    assert {str(path.relative_to(REPOSITORY)) for path in (*CHART, *EXAMPLE)} <= names
    assert {f"schemas/{name}" for name in SCHEMAS} <= names
    wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    _checked([*wheel, "-w", str(tmp_path), str(archive)])
    assert list(tmp_path.glob("*.whl"))


def test_the_example_fleet_validates(installed: Installation) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        inside = [n for n in wheel.namelist() if n.startswith("reconciler/data/fleet-example/")]
        wheel.extractall(installed.folder / "unpacked", inside)
    example = installed.folder / "unpacked/reconciler/data/fleet-example"

    run = installed.run("reconcile", "validate", "-C", str(example), "-o", "json")

    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads(run.stdout)["valid"] is True


def test_a_node_can_be_probed(installed: Installation) -> None:
    run = installed.run("fleet-agent", "probe")

    assert run.returncode == 0, run.stderr
    assert "memory:" in run.stdout


def test_the_wheel_holds_the_data_and_no_tests(installed: Installation) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = set(wheel.namelist())

    expected = {f"reconciler/data/schemas/{name}" for name in SCHEMAS}
    expected |= {f"reconciler/data/{path.relative_to(REPOSITORY)}" for path in EXAMPLE}
    expected |= {f"reconciler/data/{path.relative_to(REPOSITORY / 'deploy')}" for path in CHART}
    assert expected <= names
    assert {"reconciler/py.typed", "agent/py.typed"} <= names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "reconciler",
        "agent",
    }


# A fork for each command: what it imports for its options is its own business.
_HELPS = """
import importlib.metadata, os, sys
program, *commands = sys.argv[1:]
(entry,) = importlib.metadata.entry_points(group="console_scripts", name=program)
main = entry.load()
for command in commands:
    print(end=f"\\0{command}\\n", flush=True)
    if (pid := os.fork()) == 0:
        sys.argv = [program, command, "--help"]
        sys.exit(main())
    assert os.waitpid(pid, 0)[1] == 0, command
"""


def _commands(help_text: str) -> list[str]:
    """The names in the overview's lists of commands: an indented word, then what it does."""
    listed = "\n".join(part for part in help_text.split("\n\n") if part.startswith("commands"))
    return re.findall(r"^ {2,4}([a-z]+) {2,}[A-Za-z]", listed, re.MULTILINE)


def _checked(argv: list[str]) -> None:
    run = subprocess.run(
        argv,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,  # all that we depend on is fetched and unpacked
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def _environment(**extra: str) -> Mapping[str, str]:
    """The user's own, without what would let the checkout or this environment shine through."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in hidden} | extra
