"""The request rate of a server: fewer at once after it asked for a pause, and none before its
end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from reconciler.kube.client.errors import Throttled

T = TypeVar("T")

_RECOVERY = 16  # successful responses in a row after which concurrency rises by one


class Pace:
    """Shared by the threads of one pass. Thread-safe."""

    def __init__(self, most: int, longest_wait_s: float) -> None:
        self._most = most
        self._longest_wait_s = longest_wait_s
        self._limit = most
        self._active = 0
        self._answers = 0
        self._not_before = 0.0  # time.monotonic
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        """How many requests may run at once now."""
        return self._limit

    def run(self, work: Callable[[], T]) -> T:
        """Call `work`, again after each pause that the server asks for. Throttled: the pauses
        exceed the total wait of one call."""
        deadline = time.monotonic() + self._longest_wait_s
        while True:
            self._enter()
            try:
                answer = work()
            except Throttled as error:
                resumes_at = self._slow(error.retry_after_s)
                if resumes_at > deadline:
                    raise
            except BaseException:
                self._leave(answered=False)
                raise
            else:
                self._leave(answered=True)
                return answer

    def _enter(self) -> None:
        with self._changed:
            while True:
                pause_s = self._not_before - time.monotonic()
                if pause_s <= 0 and self._active < self._limit:
                    self._active += 1
                    return
                self._changed.wait(pause_s if pause_s > 0 else None)

    def _leave(self, *, answered: bool) -> None:
        with self._changed:
            self._active -= 1
            self._answers += answered
            if self._answers >= _RECOVERY and self._limit < self._most:
                self._limit, self._answers = self._limit + 1, 0
            self._changed.notify_all()

    def _slow(self, pause_s: float) -> float:
        """When to try again (time.monotonic). Several responses of one burst halve it once."""
        with self._changed:
            now = time.monotonic()
            if now >= self._not_before:
                self._limit = max(1, self._limit // 2)
            self._answers = 0
            self._not_before = max(self._not_before, now + pause_s)
            self._active -= 1
            self._changed.notify_all()
            return self._not_before
