"""A thread beside a loop, that does one thing again and again until it is ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Worker:
    """Does `work` in a daemon thread. `work` returns in how many seconds to do it again; None: in
    `every_s`, as after a bug, which is logged: `what` is what it stopped."""

    def __init__(
        self,
        name: str,
        work: Callable[[], float | None],
        *,
        every_s: float,
        what: str,
        first_s: float = 0.0,
        end_s: float | None = 2.0,
    ) -> None:
        """`first_s`: before the first time. `end_s`: how long `close` waits for the last one, which
        is left behind then; None: until it has ended."""
        self._work, self._every_s, self._what = work, every_s, what
        self._first_s, self._end_s = first_s, end_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_ending(self) -> bool:
        """Whether work that takes long should be left where it is."""
        return self._ending.is_set()

    def end(self) -> None:
        """Do it no other time, and wait for nothing."""
        self._ending.set()

    def close(self) -> None:
        self.end()
        if self._thread.is_alive():
            self._thread.join(self._end_s)

    def _run(self) -> None:
        pause_s: float | None = self._first_s
        while not self._ending.wait(self._every_s if pause_s is None else pause_s):
            try:
                pause_s = self._work()
            except Exception:  # noqa: BLE001  a thread's edge: the next time may go well
                _log.exception("a bug in this program stopped this %s", self._what)
                pause_s = None
