"""What a loop knows of its source, and the journal that it needs of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from reconciler.core.prune import Before
from reconciler.loop.desired import Desired
from reconciler.loop.failure import LoopStep, StepFailure
from reconciler.source.checkout import Checkout
from reconciler.source.history import NotedRevision, RevisionVerdict, SourceRecord, VerdictKind
from reconciler.source.load import Loaded
from reconciler.source.verdict import Acceptance, HeadVerdict


@dataclass(frozen=True, slots=True)
class Following:
    """Which revision of a source is followed, and what is known of a newer one.

    `head` was fetched last, `followed` is what is applied from; `record` is what the journal has of
    the source, `rewritten` how a head that is followed all the same differs from what was applied,
    `failed` what went wrong when the source was last read, and `noted_fleet` the Fleet's name as
    the targets have noted it.
    """

    location: str
    ref: str
    head: str | None
    followed: str | None
    record: SourceRecord
    rewritten: str = ""
    failed: str = ""
    noted_fleet: str = ""

    @property
    def verdict(self) -> RevisionVerdict | None:
        """The reason that the newest revision is not followed, or not as a whole."""
        verdict = self.record.verdict
        return verdict if verdict and self.head in (None, verdict.revision) else None


def defect_of(verdict: RevisionVerdict | None, failures: Mapping[LoopStep, StepFailure]) -> str:
    """The defect of this program in which the newest revision, or a step of the last pass, ended;
    empty: there was none."""
    if verdict is not None and verdict.kind is VerdictKind.FAILED:
        return verdict.message
    return next((failure.message for failure in failures.values() if failure.is_defect), "")


class Journal(Protocol):
    """What was applied before, across our own restarts."""

    @property
    def record(self) -> SourceRecord:
        """All that it knows of its source."""

    @property
    def before(self) -> Before:
        """What the revision that was applied last has to do with removals."""

    def accept(self, checkout: Checkout, acceptance: Acceptance) -> HeadVerdict:
        """Whether this revision may follow the applied one; an older head may not until a person
        lets it in."""

    def judged(self, verdict: RevisionVerdict | None) -> None:
        """Store the verdict on the newest revision; None: it is followed as a whole."""

    def lost(self, why: str) -> float:
        """The source cannot be read: since when, in epoch seconds."""

    def source_answered(self) -> None:
        """The source answers."""

    def held_paths(self) -> frozenset[str]:
        """Files that held fleet documents in the revision that was applied last."""

    def recall(self, noted: NotedRevision, read: Callable[[Checkout], Loaded]) -> None:
        """What was followed last is this, whatever this program remembers. Raises StateError."""

    def last_good(self) -> Checkout | None:
        """The revision that was applied last, where the source still has it."""

    def begins(self, desired: Desired) -> None:
        """This revision is about to be applied, as far as it may be."""

    def applied(self, desired: Desired) -> None:
        """This revision is what the targets were made to be."""
