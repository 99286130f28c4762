"""The import rules of pyproject.toml hold, and each of them would notice a violation."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import tests.support
from tests.support.wait import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"
LINTER = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = {contract["id"]: contract for contract in LINTER["contracts"]}

# One violation a contract: the file that gets it, and the line.
PLANTS = {
    "layers": ("reconciler/fleet/fleet.py", "import reconciler.core.target"),
    "agent-importers": ("reconciler/core/target.py", "import agent.cli"),
    "agent-layers": ("agent/state/directory.py", "import agent.process.owner"),
    "agent-shell": ("agent/cli/planted.py", "import reconciler.cli"),
    "pure-core": ("reconciler/core/plan.py", "import subprocess"),
    "ruamel-home": ("reconciler/source/load.py", "import ruamel.yaml"),
    "ryaml-home": ("reconciler/source/load.py", "import ryaml"),
    "jsonschema-home": ("reconciler/source/load.py", "import jsonschema"),
    "git-home": ("reconciler/source/git.py", "import git"),
    "gguf-home": ("reconciler/gguf/limits.py", "import gguf"),
    "psutil-home": ("reconciler/loop/loop.py", "import psutil"),
    "server-home": ("agent/node/node.py", "import starlette"),
    "engine-home": ("agent/system/clock.py", "import xllamacpp"),
    "kubernetes-home": ("reconciler/kube/objects.py", "import kubernetes"),
    "cluster-layers": ("reconciler/kube/objects.py", "import reconciler.kube.target"),
    "measuring-apart": (
        "reconciler/kube/target.py",
        "import reconciler.kube.benchmarks.observer",
    ),
    "cluster-room": ("agent/node/node.py", "import reconciler.kube.objects"),
    "runtimes-apart": (
        "reconciler/runtimes/mlx_server.py",
        "import reconciler.runtimes.llama_server",
    ),
}


def test_the_import_contracts_hold() -> None:
    run = _lint_imports(REPOSITORY)

    assert run.returncode == 0, run.stdout


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Contract -> what the linter says of it in a copy of the code that has every violation."""
    copy = _copied(tmp_path_factory.mktemp("planted"))
    for path, line in PLANTS.values():
        with (copy / path).open("a") as file:
            file.write(f"\n{line}\n")

    run = _lint_imports(copy, "--no-cache")

    assert run.returncode == 1
    names = "|".join(re.escape(contract["name"]) for contract in CONTRACTS.values())
    _, *parts = re.split(rf"^({names})\n-+$", run.stdout, flags=re.MULTILINE)
    said = dict(zip(parts[::2], parts[1::2], strict=True))
    return {contract: said.get(CONTRACTS[contract]["name"], "") for contract in CONTRACTS}


def _copied(folder: Path) -> Path:
    for package in LINTER["root_packages"]:
        shutil.copytree(REPOSITORY / package, folder / package)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return folder


@pytest.mark.e2e
@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_planted_violation_breaks_its_contract(contract: str, planted: Mapping[str, str]) -> None:
    path, line = PLANTS[contract]
    importer, imported = path.removesuffix(".py").replace("/", "."), line.removeprefix("import ")
    if (package := imported.partition(".")[0]) not in LINTER["root_packages"]:
        imported = package  # others are known as a whole

    assert re.search(rf"{importer} -> {imported}\b", planted[contract])


@pytest.mark.e2e
def test_a_new_room_must_be_given_a_layer(tmp_path: Path) -> None:
    (_copied(tmp_path) / "reconciler/attic.py").touch()

    run = _lint_imports(tmp_path, "--no-cache", "--contract", "layers")

    assert run.returncode == 1
    assert "reconciler.attic" in run.stdout


def test_the_core_and_every_module_that_calls_itself_pure_reach_for_nothing() -> None:
    """Built-in functions that no import shows, and pure modules outside of the core as well."""
    pure = [path for path in _modules() if _is_core(path) or _is_pure(path)]

    found = [f"{path.relative_to(REPOSITORY)}:{place}" for path in pure for place in _io(path)]

    assert len(pure) > 20
    assert found == []


def _lint_imports(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-logo", *options],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def _modules() -> list[Path]:
    return [
        path
        for package in LINTER["root_packages"]
        for path in sorted((REPOSITORY / package).rglob("*.py"))
    ]


def _is_core(path: Path) -> bool:
    module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
    core = CONTRACTS["pure-core"]["source_modules"]
    return any(f"{module}.".startswith(f"{name}.") for name in core)


def _is_pure(path: Path) -> bool:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return re.search(r"\bPure\.|\bNo IO\b", docstring) is not None


def _io(path: Path) -> Iterator[str]:
    """Line and name of everything in a module that reads or changes the world."""
    forbidden = set(CONTRACTS["pure-core"]["forbidden_modules"])
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                imported = {alias.name for alias in names}
            case ast.ImportFrom(module=str() as module, level=0):
                imported = {module}
            case ast.Call(func=ast.Name(id="open" | "print" | "input" | "breakpoint" as call)):
                yield f"{node.lineno} {call}()"
                continue
            case _:
                continue
        # Cutting strings apart, and the names of signals: no world in it.
        for name in imported - {"urllib.parse", "signal"}:
            if name.split(".")[0] in forbidden:
                yield f"{node.lineno} import {name}"


def test_the_folders_of_the_tests_are_the_rooms() -> None:
    tests = {path.parent.name for path in REPOSITORY.glob("tests/*/test_*.py")}
    rooms = {path.parent.name for path in REPOSITORY.glob("reconciler/*/__init__.py")}

    assert tests <= rooms | {"agent", "e2e", "project"}


def test_the_index_of_what_tests_share_names_everything() -> None:
    modules = {path.stem for path in REPOSITORY.glob("tests/support/*.py")} - {"__init__"}

    assert modules <= set(re.findall(r"\w+", tests.support.__doc__ or ""))


@pytest.mark.parametrize(
    ("habit", "spelling"),
    [
        (
            "a value named after how it came",
            r"^\s*(?:for )?(?:said|told|found)\b(?: :?=|: \w| in |, )",
        ),
        ("a docstring that begins with a case", r'^\s*"""(?:Of|As|With) '),
    ],
)
def test_names_and_docstrings_say_what_a_thing_is(habit: str, spelling: str) -> None:
    sources = [p for room in ("reconciler", "agent") for p in (REPOSITORY / room).rglob("*.py")]
    sought = re.compile(spelling, re.MULTILINE)

    places = [
        f"{path.relative_to(REPOSITORY)}: {match[0].strip()}"
        for path in sources
        for match in sought.finditer(path.read_text())
    ]

    assert not places, habit


def test_no_two_classes_have_one_name() -> None:
    """Those of a page are named after what they show."""
    places: dict[str, list[str]] = {}
    for room in ("reconciler", "agent"):
        for path in (REPOSITORY / room).rglob("*.py"):
            if "page" not in path.parent.parts:
                for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
                    places.setdefault(name, []).append(str(path.relative_to(REPOSITORY)))

    assert {name: files for name, files in places.items() if len(files) > 1} == {}
