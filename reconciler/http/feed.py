"""A bounded log of events for subscribers, which cannot block it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_KEPT = 512


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """`number` grows by one within a feed's life."""

    number: int
    kind: str
    data: Mapping[str, Any]


class EventFeed:
    """Events of one run of this program. Written from any thread, never waits for a reader."""

    def __init__(self) -> None:
        # Numbers of an earlier run are not valid in this one.
        self.life = f"{time.time_ns():x}"
        self._events: deque[FeedEvent] = deque(maxlen=_KEPT)
        self._next = 1
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def publish(self, kind: str, data: Mapping[str, Any]) -> None:
        """Append with its time, unless it has one, and notify the listeners, which must return at
        once."""
        dated = {"at": time.time()} | dict(data)
        with self._lock:
            self._events.append(FeedEvent(self._next, kind, dated))
            self._next += 1
            listeners = tuple(self._listeners)
        for tell in listeners:
            tell()

    def listen(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Have `tell` called after each event, in its writer's thread. Returns a function that ends
        that."""
        with self._lock:
            self._listeners.append(tell)

        def end() -> None:
            with self._lock:
                self._listeners.remove(tell)

        return end

    @property
    def last(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._next - 1

    @property
    def oldest(self) -> int:
        """What comes before the oldest event that is kept."""
        with self._lock:
            return self._next - len(self._events) - 1

    def after(self, number: int) -> tuple[FeedEvent, ...] | None:
        """The events since one; None if some of them were dropped, or it never existed."""
        with self._lock:
            oldest = self._next - len(self._events)
            if not oldest - 1 <= number < self._next:
                return None
            return tuple(event for event in self._events if event.number > number)

    def name(self, number: int) -> str:
        """An event's id on the wire."""
        return f"{self.life}-{number}"

    def number(self, name: str) -> int | None:
        """The number of an id of this run; None for any other text."""
        life, _, digits = name.rpartition("-")
        known = life == self.life and digits.isascii() and digits.isdecimal() and len(digits) < 19
        return int(digits) if known else None
