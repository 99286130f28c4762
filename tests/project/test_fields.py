"""A new field of a service, added to a copy as CONTRIBUTING.md says, and not quite so."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wait import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]

_SPEC = "reconciler/api/inferenceservice.py"
_RUNTIME = "reconciler/runtimes/mlx_server.py"
_TESTS = "tests/runtimes/test_runtimes.py"
# A file, what is in it once, and what comes before that. Only `whole` is rendered.
_PLANTS = (
    *(
        (_SPEC, "    replicas: ", f"    {name}: Annotated[int, Purpose(PROCESS)] = 1\n")
        for name in ("forgotten", "claimed", "whole")
    ),
    (_RUNTIME, '"parallelSlots", "runtimeOptions"', '"claimed", "whole", '),
    (_RUNTIME, '*("--max-slots",', '*("--whole", str(workload.settings["whole"])), '),
    (_TESTS, '    "devices": 2,', '    "forgotten": 2, "claimed": 2, "whole": 2,\n'),
)


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
        (sys.executable, "-m", "pytest", "-q", "-k", "settings or render", _TESTS),
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
    ], run.stdout
    assert "['forgotten'] == []" in run.stdout
