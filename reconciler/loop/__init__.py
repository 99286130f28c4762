"""One pass, and the loop that decides when to make one.

Whatever happens (a push, a saved file, a child's exit) only wakes the loop: it carries no meaning,
the loop makes a full pass. A source that is gone or wrong changes nothing that runs.

`revisions` decides which revision is followed, `loop` compares a target with it and applies;
`interfaces` says what both need of others.
"""

from reconciler.loop.interfaces import Journal, LoopDelegate, PlannedRevision, Reporter
from reconciler.loop.loop import Loop, poll_delay_s
from reconciler.loop.revisions import LoopTiming, Revisions
from reconciler.loop.wake import Wake

__all__ = [
    "Journal",
    "Loop",
    "LoopDelegate",
    "LoopTiming",
    "PlannedRevision",
    "Reporter",
    "Revisions",
    "Wake",
    "poll_delay_s",
]
