"""How far a revision is, and for how long one pass goes on with it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.core.target import Outcome, Result

_GIVEN_UP = 3  # passes that failed in a row: then waiting does not help

# How long one pass applies a large plan, as who is ready meanwhile is said after it: so many times
# as long as it took to look and to plan, within these seconds.
_APPLIES_TIMES = 3
_APPLIES_S, _APPLIES_AT_MOST_S = 1.0, 5.0


@dataclass(frozen=True, slots=True)
class ApplyProgress:
    """How applying a revision went so far. `held`: why it is not applied, where waiting does not
    help; `stands_by`: because another process applies it, and for as long as it does."""

    revision: str = ""
    failed_passes: int = 0
    held: str = ""
    stands_by: bool = False

    def after(self, revision: str, failed: Sequence[Outcome]) -> ApplyProgress:
        """Count one more pass, and what failed or was skipped in it."""
        before = self.failed_passes if self.revision == revision else 0
        passes = before + 1 if failed else 0
        first = next((o for o in failed if o.result is Result.FAILED), *failed[:1] or (None,))
        reason = first.message if first is not None and passes >= _GIVEN_UP else ""
        return ApplyProgress(revision, passes, reason)


def applies_s(looked_s: float) -> float:
    """For how many seconds a pass begins with changes, after a look and a plan of so many."""
    return min(_APPLIES_AT_MOST_S, max(_APPLIES_S, _APPLIES_TIMES * looked_s))
