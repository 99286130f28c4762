"""`GET /v1/events`: the feed as Server-Sent Events, one connection each.

A slow reader falls out of the feed's ring, or does not take a block in time: it is disconnected and
comes back with its last id. Nothing is kept for it. `?past=true` begins with what is kept, and
`?past=only` ends there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from reconciler.http.feed import EventFeed, FeedEvent

HEARTBEAT_S = 15.0
_MOST_READERS = 16
_TAKEN_IN_S = 10.0
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"connection", b"close"),
]


class Streams:
    """All event streams of one server. An ASGI application; runs in the server's event loop."""

    def __init__(self, feed: EventFeed, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._feed = feed
        self._heartbeat_s = heartbeat_s
        self._news: set[asyncio.Event] = set()
        self._closed = False

    def wake(self) -> None:
        """There are new events. In the server's event loop."""
        for news in self._news:
            news.set()

    def close(self) -> None:
        """End every stream."""
        self._closed = True
        self.wake()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self._news) >= _MOST_READERS:
            message = f"{_MOST_READERS} streams are open already"
            document = {"error": {"status": 503, "message": message}}
            await JSONResponse(document, 503, {"retry-after": "30"})(scope, receive, send)
            return
        news = asyncio.Event()
        self._news.add(news)
        gone = asyncio.create_task(_until_gone(receive, news))
        try:
            with contextlib.suppress(TimeoutError):  # too slow: the connection is closed
                await self._serve(scope, news, gone, send)
        finally:
            self._news.discard(news)
            gone.cancel()

    async def _serve(
        self, scope: Scope, news: asyncio.Event, gone: asyncio.Task[None], send: Send
    ) -> None:
        seen, past = _last_seen(scope), _past(scope)
        await _send(send, {"type": "http.response.start", "status": 200, "headers": _HEADERS})
        at = self._feed.last if seen is None else self._feed.number(seen)
        if past and seen is None:
            at = self._feed.oldest
        if at is None or self._feed.after(at) is None:
            at = self._feed.last
            first = self._text("reset", {"message": "events were missed: read all of it again"}, at)
        else:
            first = f"id: {self._feed.name(at)}\n: hello\n\n"
        await _send(send, _block(first))
        while not (self._closed or gone.done()):
            news.clear()
            events = self._feed.after(at)
            if events is None:  # slower than the events
                break
            if events:
                at = events[-1].number
                await _send(send, _block("".join(map(self._event, events))))
                continue
            if past == "only":
                break
            try:
                await asyncio.wait_for(news.wait(), self._heartbeat_s)
            except TimeoutError:
                await _send(send, _block(": still here\n\n"))
        await _send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    def _event(self, event: FeedEvent) -> str:
        return self._text(event.kind, event.data, event.number)

    def _text(self, kind: str, data: object, number: int) -> str:
        # One line: JSON escapes the newlines that would end an event.
        return f"id: {self._feed.name(number)}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"


@contextlib.contextmanager
def streams_of(feed: EventFeed, *, heartbeat_s: float = HEARTBEAT_S) -> Iterator[Streams]:
    """The streams of a feed that any thread writes, for as long as a server's event loop runs."""
    streams = Streams(feed, heartbeat_s=heartbeat_s)
    loop = asyncio.get_running_loop()

    def news() -> None:
        with contextlib.suppress(RuntimeError):  # the server is just ending
            loop.call_soon_threadsafe(streams.wake)

    deaf = feed.listen(news)
    try:
        yield streams
    finally:
        deaf()


def _last_seen(scope: Scope) -> str | None:
    values = [value for name, value in scope["headers"] if name == b"last-event-id"]
    return values[0].decode("latin-1") if values else None


def _past(scope: Scope) -> str:
    """What the query says of it, empty if nothing that is known."""
    asked = parse_qs(scope["query_string"].decode("latin-1")).get("past", [""])[0]
    return asked if asked in ("true", "only") else ""


async def _until_gone(receive: Receive, news: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    news.set()


def _block(text: str) -> Message:
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}


async def _send(send: Send, message: Message) -> None:
    await asyncio.wait_for(send(message), _TAKEN_IN_S)
