"""`GET /v1/logs`: the end of what a service's engine writes, and what was added since.

Each answer is bounded and keeps nothing: who follows a log asks again, with the cursor of the last
answer. Off loopback only, where a token is needed: a log file is its owner's, and anyone on this
machine may ask the agent.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from starlette.responses import Response

from agent.process.logreader import LogReader
from agent.server.guard import error
from reconciler.api.logs import CURSOR_HEADER, MOST_LOG_BYTES, MOST_LOG_LINES
from reconciler.api.meta import SUBDOMAIN, service_ref

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

    from agent.server.guard import Access
    from agent.state.directory import StateDir

_NAME = re.compile(rf"{SUBDOMAIN}/{SUBDOMAIN}")
_NOT_HERE = (
    "on loopback no log is served, as everybody on this machine could read it: `fleet-agent logs`"
    " shows it to its owner"
)


class Logs:
    """The logs of one state directory. One is read at a time."""

    def __init__(self, state: StateDir, access: Access) -> None:
        self._state = state
        self._is_open = access.token is None
        self._one = asyncio.Semaphore(1)

    async def read(self, request: Request) -> Response:
        asked = request.query_params
        name, lines = asked.get("service", ""), asked.get("lines", "100")
        if self._is_open:
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
        headers = {CURSOR_HEADER: cursor, "Cache-Control": "no-store"}
        return Response(text, headers=headers, media_type="text/plain")


def _part(path: Path, count: int, after: str | None, *, previous: bool) -> tuple[bytes, str]:
    """Whole lines, and the cursor behind them."""
    reader = LogReader(path, after)
    if after is None:
        lines = reader.last(count, previous=previous, most_bytes=MOST_LOG_BYTES)
    else:
        lines = reader.more()
    text = b"".join(line + b"\n" for line in lines)
    return text[-MOST_LOG_BYTES:], reader.cursor
