"""An agent's own slice of a revision with errors: what it holds, what it goes on with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.source.directory import DirectorySource
from tests.support.slices import cases, told

CASES = Path(__file__).parent / "cases" / "slice"
UPDATE = "FLEET_UPDATE_CASES"  # =1 writes what is told now as expected; look at the diff


@pytest.mark.parametrize("case", cases(CASES))
def test_a_node_takes_a_revision_with_errors_as_expected(case: str) -> None:
    folder = CASES / case

    said = told(
        DirectorySource(folder / "before").fetch(), DirectorySource(folder / "after").fetch()
    )

    expected = folder / "expected.txt"
    if os.environ.get(UPDATE):
        expected.write_text(said)
    assert said == expected.read_text(), f"{UPDATE}=1 updates it"
