"""The pause of one kind between two attempts, which ends early when another kind is answered."""

from __future__ import annotations

import threading


class Pause:
    """One thread rests; `hurry` and `end` may come from any.

    Kinds fail together, when a server is away, and each would come back as late as its own pause
    is long: the last of them decides when there is a plan again. One unplanned attempt
    is all that an outage costs a server for it, or two kinds would hurry each other for ever.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._may_hurry = False
        self._hurried = False  # since it worked last

    def expect(self, *, may_hurry: bool) -> None:
        """It is about to rest: what `hurry` says counts from now on, and not only once it does."""
        self._may_hurry = may_hurry and not self._hurried

    def rest(self, pause_s: float, *, may_hurry: bool) -> None:
        self.expect(may_hurry=may_hurry)
        if pause_s > 0:
            self._over.wait(pause_s)
        self._may_hurry = False
        self._over.clear()

    def hurry(self) -> None:
        """Another kind is answered: try now."""
        if self._may_hurry:
            self._may_hurry, self._hurried = False, True
            self._over.set()

    def worked(self) -> None:
        """What comes next is another outage."""
        self._hurried = False

    def end(self) -> None:
        self._over.set()
