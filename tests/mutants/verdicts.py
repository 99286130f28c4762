"""What became of the faults that were planted in a room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.faults import Fault

Verdict = Literal["fell", "lives", "equivalent", "not run"]

ENOUGH = 0.9  # of the faults that somebody could see


@dataclass(frozen=True, slots=True)
class Judged:
    fault: Fault
    verdict: Verdict

    @property
    def is_missed(self) -> bool:
        return self.verdict in ("lives", "not run")

    def __str__(self) -> str:
        return f"{self.verdict:8} {self.fault}"


@dataclass(frozen=True, slots=True)
class Seen:
    """`judged`: every fault that was planted in a room, in its order."""

    room: str
    judged: tuple[Judged, ...]

    @property
    def counts(self) -> Mapping[Verdict, int]:
        return Counter(each.verdict for each in self.judged)

    @property
    def missed(self) -> tuple[Judged, ...]:
        return tuple(each for each in self.judged if each.is_missed)

    @property
    def share(self) -> float:
        """How many of those that can be seen were."""
        visible = len(self.judged) - self.counts.get("equivalent", 0)
        return 1.0 - len(self.missed) / visible if visible else 1.0

    def __str__(self) -> str:
        told = ", ".join(f"{number} {verdict}" for verdict, number in sorted(self.counts.items()))
        return f"{self.room:14} {len(self.judged):4} faults  {self.share:4.0%} fell  ({told})"


def why_equivalent(fault: Fault) -> str | None:
    """None: somebody could see it."""
    rows = EQUIVALENT.get(str(fault.path), {})
    return rows.get((fault.line_text, *fault.change))
