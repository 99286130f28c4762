"""What wakes a loop."""

from __future__ import annotations

import threading
import time

LONGEST_GATHER_S = 1.0
_PAUSE_PER_PASS = 3.0  # what comes in crowds keeps a quarter of a core busy, at most


class Wake:
    """Reasons for another pass, coalesced: any number of them is one pass."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pass_now = False
        self._pass_soon = False
        self._fetch = True
        self._stop = False
        self._woke_at = time.monotonic()

    def pass_now(self) -> None:
        """A target changed."""
        self._set()

    def pass_soon(self) -> None:
        """A target changed, as many do at a time: pods come and go one after the other. It is
        looked at at once if the last pass is a while ago, else together with what follows within
        three times what that pass took, and a second at most."""
        with self._changed:
            if not self._pass_soon:  # else the loop is awake, and gathers
                self._pass_soon = True
                self._changed.notify_all()

    def fetch(self) -> None:
        """The source may have moved."""
        self._set(fetch=True)

    def stop(self) -> None:
        self._set(stop=True)

    @property
    def stopped(self) -> bool:
        return self._stop

    def wait(self, timeout_s: float) -> bool:
        """Wait for a reason, at most so long. True: the source may have moved."""
        began = time.monotonic()
        gather_s = min(LONGEST_GATHER_S, _PAUSE_PER_PASS * (began - self._woke_at))
        with self._changed:
            self._changed.wait_for(lambda: self._pass_now or self._pass_soon, timeout_s)
            left_s = began + min(gather_s, timeout_s) - time.monotonic()
            self._changed.wait_for(lambda: self._pass_now, max(0.0, left_s))
            fetch, self._pass_now, self._pass_soon, self._fetch = self._fetch, False, False, False
            self._woke_at = time.monotonic()
            return fetch

    def _set(self, *, fetch: bool = False, stop: bool = False) -> None:
        with self._changed:
            self._pass_now = True
            self._fetch |= fetch
            self._stop |= stop
            self._changed.notify_all()
