"""The import rules of pyproject.toml hold, and each of them would notice a violation."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"
LINTER = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = {contract["id"]: contract for contract in LINTER["contracts"]}

# One violation a contract: the file that gets it, and the line.
PLANTS = {
    "layers": ("reconciler/fleet.py", "import reconciler.target"),
    "agent-importers": ("reconciler/target.py", "import agent.cli"),
    "agent-shell": ("agent/planted.py", "import reconciler.cli"),
    "pure-core": ("reconciler/plan.py", "import subprocess"),
    "git-home": ("reconciler/source/load.py", "import git"),
    "ruamel-home": ("reconciler/source/load.py", "import ruamel.yaml"),
    "ryaml-home": ("reconciler/source/load.py", "import ryaml"),
    "psutil-home": ("reconciler/loop.py", "import psutil"),
    "runtimes-apart": (
        "reconciler/runtimes/mlx_server.py",
        "import reconciler.runtimes.llama_server",
    ),
}


def test_the_import_contracts_hold() -> None:
    run = _lint_imports(REPOSITORY)

    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_planted_violation_breaks_its_contract(contract: str, tmp_path: Path) -> None:
    for package in LINTER["root_packages"]:
        shutil.copytree(REPOSITORY / package, tmp_path / package)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    path, line = PLANTS[contract]
    with (tmp_path / path).open("a") as file:
        file.write(f"\n{line}\n")

    run = _lint_imports(tmp_path, "--contract", contract)

    assert run.returncode == 1
    assert f"{CONTRACTS[contract]['name']} BROKEN" in " ".join(run.stdout.split())


def test_a_new_room_must_be_given_a_layer(tmp_path: Path) -> None:
    for package in LINTER["root_packages"]:
        shutil.copytree(REPOSITORY / package, tmp_path / package)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    (tmp_path / "reconciler/attic.py").touch()

    run = _lint_imports(tmp_path, "--contract", "layers")

    assert run.returncode == 1
    assert "reconciler.attic" in run.stdout


def test_the_core_opens_no_file_and_prints_nothing() -> None:
    """What no import shows: built-in functions that reach the world."""
    calls = [call for path in _core_files() for call in _built_in_io(path)]

    assert calls == []


def _lint_imports(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache", "--no-logo", *options],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _core_files() -> Iterator[Path]:
    for module in CONTRACTS["pure-core"]["source_modules"]:
        place = REPOSITORY / module.replace(".", "/")
        if place.is_dir():
            yield from sorted(place.rglob("*.py"))
        else:
            yield place.with_suffix(".py")


def _built_in_io(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Name(id="open" | "print" | "input" | "breakpoint")):
                yield f"{path}:{node.lineno}"
