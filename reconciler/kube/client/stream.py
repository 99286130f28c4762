"""The events of a watch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reconciler.kube.client.answers import event_error
from reconciler.kube.client.errors import Unreachable
from reconciler.kube.client.transport import Stream
from reconciler.kube.json_text import from_json

IDLE_S = 75.0  # of a watch: an API server sends a bookmark each minute


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: dict[str, Any]

    @property
    def resource_version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])


class Watch(Iterator[WatchEvent]):
    """The events of one watch. `close` may be called by any thread, and ends the iteration."""

    def __init__(self, stream: Stream, idle_s: float, what: str, cluster: str) -> None:
        self._stream = stream
        self._idle_s = idle_s
        self._what = what
        self._cluster = cluster
        self._lines: deque[bytes] = deque()
        self._is_closed = False

    def __next__(self) -> WatchEvent:
        batch = self.pending() or self._more()
        if batch is None:
            self._stream.release()
            raise StopIteration
        return batch

    def pending(self) -> WatchEvent | None:
        """The next event that has already arrived."""
        return self._event(self._lines.popleft()) if self._lines else None

    @property
    def is_drained(self) -> bool:
        """Whether all that arrived was read, and more has to be waited for."""
        return not self._lines and not self._stream.is_crowded

    def close(self) -> None:
        self._is_closed = True
        self._stream.cut()

    def release(self) -> None:
        """Return the connection; for the reader, which may do so early."""
        self._stream.release()

    def _more(self) -> WatchEvent | None:
        while True:
            try:
                lines = self._stream.lines(self._idle_s)
            except Unreachable:
                self._stream.release()
                if self._is_closed:
                    return None
                raise
            if not lines:
                return None
            self._lines.extend(line for line in lines if line)
            if event := self.pending():
                return event

    def _event(self, line: bytes) -> WatchEvent:
        try:
            event = from_json(line)
            kind, thing = event["type"], event["object"]
        except (ValueError, KeyError, TypeError):
            self._stream.release()
            raise Unreachable(f"cluster {self._cluster}: {self._what}: no event") from None
        if kind == "ERROR":
            self._stream.release()
            raise event_error(thing, what=self._what, cluster=self._cluster)
        return WatchEvent(kind, thing)
