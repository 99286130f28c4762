"""What a run notes in its folder: the tests that were found, and what became of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.wait import CLOSE_FILE


@dataclass(frozen=True, slots=True)
class Failure:
    test: str
    details: str  # a file
    folder: str | None  # where the test had its own files


class Results:
    """Files: `marks.json`, a line a test in `ended.jsonl` and `failed.jsonl`, `failures/N.txt`."""

    def __init__(self, folder: Path) -> None:
        self._marks = folder / "marks.json"
        self._ended = folder / "ended.jsonl"
        self._failed = folder / "failed.jsonl"
        self._details = folder / "failures"
        self._close = folder / CLOSE_FILE

    def write_marks(self, marks: Mapping[str, Sequence[str]]) -> None:
        """Test -> names of its markers."""
        new = self._marks.with_suffix(".new")
        new.write_text(json.dumps(marks))
        new.rename(self._marks)

    def marks(self) -> dict[str, list[str]]:
        """Empty until they are known."""
        if not self._marks.exists():
            return {}
        found: dict[str, list[str]] = json.loads(self._marks.read_text())
        return found

    def note_end(self, test: str, seconds: float) -> None:
        _add(self._ended, {"test": test, "seconds": seconds})

    def note_failure(self, test: str, text: str, folder: str | None) -> Path:
        """The file that has the details."""
        self._details.mkdir(exist_ok=True)
        path = self._details / f"{len([*self._details.iterdir()]) + 1}.txt"
        path.write_text(f"{test}\n\n{text}\n")
        _add(self._failed, {"test": test, "details": str(path), "folder": folder})
        return path

    def close_waits(self) -> tuple[str, ...]:
        """A line for each wait that took more than a tenth of what it was given."""
        rows = sorted(_rows(self._close), key=lambda row: -row["took_s"] / row["timeout_s"])
        return tuple(
            f"{row['took_s']:6.1f} of {row['timeout_s']:g} s  {row['test']}  {row['what']}"
            for row in rows
        )

    def seconds(self) -> dict[str, float]:
        """Test -> how long it took, of those that ended."""
        return {row["test"]: row["seconds"] for row in _rows(self._ended)}

    def failures(self) -> tuple[Failure, ...]:
        return tuple(Failure(**row) for row in _rows(self._failed))


def _add(path: Path, row: Mapping[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
