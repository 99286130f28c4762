"""What a loop knows of its source, and the journal that it needs of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from reconciler.api.problem import Problem
from reconciler.core.observation import RevisionState
from reconciler.core.prune import Before
from reconciler.loop.desired import Desired
from reconciler.source.checkout import Checkout
from reconciler.source.history import HeldHead, NotedRevision, RefusedHead, SourceRecord
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
    def refused(self) -> RefusedHead | None:
        """The newest revision, where it has errors."""
        head = self.record.refused
        return head if head and self.head in (None, head.revision) else None

    @property
    def held(self) -> HeldHead | None:
        """The newest revision, where it is valid and not followed."""
        head = self.record.held
        return head if head and self.head in (None, head.revision) else None


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

    def held(self, head: str, why: str, *, waits_for_a_person: bool) -> None:
        """Why this revision is not followed; no reason: it is."""

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

    def refused(self, checkout: Checkout, problems: tuple[Problem, ...]) -> None:
        """This revision has errors."""

    def revision_state(self) -> RevisionState:
        """What was applied and what was refused, also in an earlier life of this program."""
