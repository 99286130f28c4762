"""What a service becomes in a cluster: the cases, and the laws that hold for every one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.kube.yaml_text import dump_all
from tests.support.manifests import rendered

CASES = Path(__file__).parent / "cases" / "kube"
UPDATE = "FLEET_UPDATE_CASES"  # set it to write the expected objects anew, then review the change


def _cases() -> list[Path]:
    return sorted(path.parent for path in CASES.glob("*/fleet.yaml"))


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case.name)
def test_a_fleet_becomes_the_objects_of_its_case(case: Path) -> None:
    expected = case / "objects.yaml"
    made = dump_all(rendered((case / "fleet.yaml").read_text()))

    if os.environ.get(UPDATE):
        expected.write_text(made)

    assert made == (expected.read_text() if expected.exists() else ""), f"run again with {UPDATE}=1 to accept the new objects"
