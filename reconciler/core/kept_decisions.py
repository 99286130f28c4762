"""What earlier plans found, so that a plan decides again only what has changed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from reconciler.core.observation import TargetState
from reconciler.core.plan import Blocked, Change
from reconciler.core.resource import Key
from reconciler.memo import Memo


@dataclass(frozen=True, slots=True)
class KeptDecisions:
    """By all that it follows from. `states` are the targets, without when they were seen; `steps`
    what becomes of each service on its target; `alone` what the change of each pod does there."""

    states: Memo[str, TargetState] = field(default_factory=Memo)
    steps: Memo[Key, Change | Blocked | None] = field(default_factory=Memo)
    alone: Memo[Key, Change | Blocked] = field(default_factory=Memo)

    def state(self, state: TargetState) -> TargetState:
        """The same state as long as nothing of it but the time has changed."""
        timeless = replace(state, seen_at=None)
        return self.states.find(state.target, (timeless,), lambda: timeless)
