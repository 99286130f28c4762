"""One pass, and the loop that decides when to make one.

Whatever happens (a push, a saved file, a child's exit) only wakes the loop: it carries no meaning,
the loop makes a full pass. A source that is gone or wrong changes nothing that runs.

`revisions` decides which revision is followed, `loop` compares the targets with it and applies.
What a pass does is a value of functions (`steps`); who hears of it is a list (`listener`).
"""

from reconciler.loop.interfaces import Following, Journal
from reconciler.loop.listener import Listener, Listeners, Pass
from reconciler.loop.loop import Loop, poll_delay_s
from reconciler.loop.revisions import LoopTiming, Revisions
from reconciler.loop.steps import Gate, Steps, steps_of
from reconciler.loop.wake import Wake

__all__ = [
    "Following",
    "Gate",
    "Journal",
    "Listener",
    "Listeners",
    "Loop",
    "LoopTiming",
    "Pass",
    "Revisions",
    "Steps",
    "Wake",
    "poll_delay_s",
    "steps_of",
]
