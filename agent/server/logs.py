"""`GET /v1/logs`: the end of what a service's engine writes, and what was added since.

Each answer is bounded and keeps nothing: who follows a log asks again, with the cursor of the last
answer. A log file is its owner's. Off loopback a token is needed; on loopback, where anyone on this
machine may ask, the program that asks has to be its owner's.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING

from starlette.responses import Response

from agent.process.logreader import LogReader
from agent.server.guard import error
from agent.system.peer import peer_uid
from reconciler.api.logs import CURSOR_HEADER, MOST_LOG_BYTES, MOST_LOG_LINES
from reconciler.api.meta import SUBDOMAIN, service_ref

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

    from agent.server.guard import Access
    from agent.state.directory import StateDir

_NAME = re.compile(rf"{SUBDOMAIN}/{SUBDOMAIN}")
_NOT_HERE = (
    "on loopback a log is served to programs of its owner alone: `fleet-agent logs` shows it, too"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class Logs:
    """The logs of one state directory. One is read at a time."""

    def __init__(self, state: StateDir, access: Access) -> None:
        self._state = state
        self._is_open = access.token is None
        self._one = asyncio.Semaphore(1)

    async def read(self, request: Request) -> Response:
        asked = request.query_params
        name, lines = asked.get("service", ""), asked.get("lines", "100")
        if self._is_open and not await asyncio.to_thread(_is_ours, request):
            return error(403, _NOT_HERE)
        if not _NAME.fullmatch(name) or not (lines.isdecimal() and len(lines) < 9):
            return error(400, "ask with service=NAMESPACE/NAME, and lines=COUNT or after=CURSOR")
        path = self._state.log_file(service_ref(name))
        if not path.exists():
            return error(404, f"no log of {name} here")
        count, previous = min(int(lines), MOST_LOG_LINES), asked.get("previous") == "true"
        try:
            async with self._one:
                text, cursor = await asyncio.to_thread(
                    _part, path, count, asked.get("after"), previous=previous
                )
        except ValueError:
            return error(400, "after= takes the cursor of an earlier answer")
        headers = {CURSOR_HEADER: cursor, **_HEADERS}
        return Response(text, headers=headers, media_type="text/plain")


def _is_ours(request: Request) -> bool:
    """Whether a program of our own user asks, or one of root, who may read the file anyway."""
    client, server = request.scope.get("client"), request.scope.get("server")
    if client is None or server is None:
        return False
    return peer_uid(tuple(client), tuple(server)) in (os.geteuid(), 0)


def _part(path: Path, count: int, after: str | None, *, previous: bool) -> tuple[bytes, str]:
    """Whole lines, and the cursor behind them."""
    reader = LogReader(path, after)
    if after is None:
        lines = reader.last(count, previous=previous, most_bytes=MOST_LOG_BYTES)
    else:
        lines = reader.more()
    text = b"".join(line + b"\n" for line in lines)
    return text[-MOST_LOG_BYTES:], reader.cursor
