"""What wakes a loop."""

from __future__ import annotations

import threading


class Wake:
    """Reasons to look again, coalesced: any number of them is one look."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._look = False
        self._fetch = True
        self._stop = False

    def look(self) -> None:
        """A target changed."""
        self._set()

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
        with self._changed:
            self._changed.wait_for(lambda: self._look, timeout_s)
            fetch, self._look, self._fetch = self._fetch, False, False
            return fetch

    def _set(self, *, fetch: bool = False, stop: bool = False) -> None:
        with self._changed:
            self._look = True
            self._fetch |= fetch
            self._stop |= stop
            self._changed.notify_all()
