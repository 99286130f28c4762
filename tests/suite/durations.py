"""How long each test takes, as it was measured last: `durations.json`, in seconds.

`python -m tests.suite --record` writes it again. A test that is not in it is short, or new;
one that is in it is `slow`, and not part of `make check`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

_FILE = Path(__file__).parent / "durations.json"
_WORTH_S = 0.5  # a table of all tests would change with each run


def known() -> dict[str, float]:
    """Test id -> seconds."""
    table: dict[str, dict[str, float]] = json.loads(_FILE.read_text())
    return {f"{file}::{name}": s for file, names in table.items() for name, s in names.items()}


def record(measured: Mapping[str, float]) -> None:
    """Write what takes long."""
    table: dict[str, dict[str, float]] = {}
    for test_id, seconds in sorted(measured.items()):
        file, _, name = test_id.partition("::")
        if seconds >= _WORTH_S:
            table.setdefault(file, {})[name] = round(seconds, 1)
    _FILE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
