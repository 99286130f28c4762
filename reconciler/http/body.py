"""The body of a request: bounded in size and in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.requests import Request


async def read_body(request: Request, most_bytes: int, taken_in_s: float) -> bytes | None:
    """The whole of it; None where it is too large. 408 where it does not come."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(taken_in_s):
            async for part in request.stream():
                size += len(part)
                if size > most_bytes:
                    return None
                parts.append(part)
    except TimeoutError:
        raise HTTPException(408, "the body did not come", {"connection": "close"}) from None
    return b"".join(parts)
