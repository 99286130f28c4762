"""Every field is read, and a new one that is added to a copy not quite as CONTRIBUTING.md says is
noticed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from reconciler.api.kinds import KINDS
from tests.support.wait import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]

_SPEC = "reconciler/api/inferenceservice.py"
_RUNTIME = "reconciler/runtimes/mlx_server.py"
_TESTS = "tests/runtimes/test_runtimes.py"
_HERE = "tests/project/test_fields.py"
# A file, what is in it once, and what comes before that. Only `whole` is rendered.
_PLANTS = (
    *(
        (_SPEC, "    replicas: ", f"    {name}: Annotated[int, Purpose(PROCESS)] = 1\n")
        for name in ("forgotten", "claimed", "whole")
    ),
    (_SPEC, "    suspend: ", "    pointless: Annotated[int, Purpose(ELSEWHERE)] = 1\n"),
    (_RUNTIME, '"parallelSlots", "runtimeOptions"', '"claimed", "whole", '),
    (_RUNTIME, '*("--max-slots",', '*("--whole", str(workload.settings["whole"])), '),
    (_TESTS, '    "devices": 2,', '    "forgotten": 2, "claimed": 2, "whole": 2,\n'),
)


def test_every_field_of_a_kind_is_read_by_a_module_of_another_room() -> None:
    """By its name at least: what it is used for has tests of its own."""
    modules = [
        path for room in ("reconciler", "agent") for path in (REPOSITORY / room).rglob("*.py")
    ]
    rest = [path for path in modules if path.parent.name != "api"]
    named = {name for path in rest for name in re.findall(r"[.\"](\w+)", path.read_text())}

    parts = {part for kind in KINDS.values() for part in _parts(kind)}
    unread = {
        f"{part.__name__}.{name}"
        for part in parts
        for name, field in part.model_fields.items()
        if named.isdisjoint((name, field.alias or name))
    }

    assert len(parts) > 20
    assert sorted(unread) == []


def _parts(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _parts(field.annotation)
    for inner in get_args(annotation):
        yield from _parts(inner)


@pytest.mark.e2e
def test_a_field_that_is_in_no_command_is_noticed_and_one_that_is_needs_no_more(
    tmp_path: Path,
) -> None:
    for room in ("reconciler", "agent", "tests"):
        shutil.copytree(REPOSITORY / room, tmp_path / room)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    for path, place, line in _PLANTS:
        text = (tmp_path / path).read_text()
        assert text.count(place) == 1, (path, place)
        (tmp_path / path).write_text(text.replace(place, line + place))

    run = subprocess.run(
        (sys.executable, "-m", "pytest", "-vv", "-k", "render or is_read", _TESTS, _HERE),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    failed = re.findall(r"^FAILED \S+::(\S+)", run.stdout, re.MULTILINE)
    assert sorted(failed) == [
        "test_a_field_that_a_runtime_renders_from_changes_its_command[claimed-mlx-server]",
        "test_each_field_that_a_process_is_rendered_from_is_rendered_by_a_runtime",
        "test_every_field_of_a_kind_is_read_by_a_module_of_another_room",
    ], run.stdout
    assert "['forgotten'] == []" in run.stdout
    assert "'InferenceServiceSpec.pointless'" in run.stdout
