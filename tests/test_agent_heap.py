"""What an agent gives back while it has nothing to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.heap import trim
from reconciler.source.validators import validator

_SMAPS = Path("/proc/self/smaps")
_NODE = {
    "apiVersion": "inference.llmkube.dev/v1alpha1",
    "kind": "FleetNode",
    "metadata": {"name": "here"},
    "spec": {"agent": {}, "hardware": {"memory": "16Gi"}},
}


@pytest.mark.skipif(not _SMAPS.exists(), reason="only Linux says what of a library is in memory")
def test_the_code_that_reads_a_revision_leaves_memory_until_the_next_one() -> None:
    assert validator("FleetNode").is_valid(_NODE)
    read_kib = _code_kib("jsonschema_rs")

    trim()

    assert _code_kib("jsonschema_rs") < read_kib / 4
    assert validator("FleetNode").is_valid(_NODE)
    assert not validator("FleetNode").is_valid({**_NODE, "kind": "Model"})


def _code_kib(package: str) -> int:
    """Of a loaded package's code, what is in memory."""
    code = rf"^\S+ r-xp .*/{package}/.*\nSize:.*\n(?:.*\n){{2}}Rss: +(\d+) kB"
    return sum(int(kib) for kib in re.findall(code, _SMAPS.read_text(), re.MULTILINE))
