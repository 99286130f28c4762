"""The routes. Every answer is made from memory, in the server's own thread."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from functools import partial
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from reconciler.http.fence import Fence
from reconciler.kube.extender.judge import Scored
from reconciler.kube.extender.wire import (
    ExtenderArgs,
    filter_answer,
    prioritize_answer,
    read_args,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from reconciler.kube.extender.tally import Sources, Tally

MOST_BODY_BYTES = 32 << 20  # 10,000 nodes by name take 1 MiB, 3,000 whole ones this
_MOST_BYTES_AT_ONCE = 64 << 20  # of all bodies together
_BODY_TAKEN_IN_S = 2.0  # as long as the scheduler itself waits for the answer
_MOST_SAID = 10_000  # services whose unknown facts were told
_SAID_AGAIN_S = 60.0  # of one service: anybody may ask for it with other nodes each time

_log = logging.getLogger(__name__)


def make_app(sources: Sources, tally: Tally) -> ASGIApp:
    routes = _Routes(sources, tally)
    app = Starlette(
        routes=[
            Route("/filter", routes.filter, methods=["POST"]),
            Route("/prioritize", routes.prioritize, methods=["POST"]),
            Route("/healthz", routes.healthz),
            Route("/readyz", routes.readyz),
            Route("/metrics", routes.metrics),
        ],
        exception_handlers={HTTPException: _refused, Exception: _bug},
    )
    return Fence(app)


class _Routes:
    def __init__(self, sources: Sources, tally: Tally) -> None:
        self._sources, self._tally = sources, tally
        self._bytes = 0  # of the bodies that are being read

    async def filter(self, request: Request) -> Response:
        def answer(args: ExtenderArgs) -> bytes:
            judge = self._sources.judge()
            misfits = judge.misfits(args) if judge else {}
            for misfit in misfits.values():
                self._tally.failed_nodes["lasting" if misfit.lasts else "passing"] += 1
            return filter_answer(args, misfits)

        return await self._answer("filter", request, answer)

    async def prioritize(self, request: Request) -> Response:
        def answer(args: ExtenderArgs) -> bytes:
            judge = self._sources.judge()
            if judge is None:
                return prioritize_answer(args.names, [0] * len(args.names))
            scored = judge.scored(args, self._sources.used(), time.time())
            self._tell(scored)
            return prioritize_answer(args.names, scored.scores)

        return await self._answer("prioritize", request, answer)

    async def _answer(
        self, verb: str, request: Request, answer: Callable[[ExtenderArgs], bytes]
    ) -> Response:
        began = time.perf_counter()
        try:
            made = answer(read_args(await self._body(request)))
        except ValueError as error:
            self._tally.answers[verb, "broken"] += 1
            raise HTTPException(400, f"no request of a scheduler (API v1): {error}") from None
        except HTTPException as error:
            self._tally.answers[verb, "too-large" if error.status_code == 413 else "refused"] += 1
            raise
        self._tally.answers[verb, "ok"] += 1
        self._tally.seconds[verb] += time.perf_counter() - began
        return Response(made, media_type="application/json")

    async def _body(self, request: Request) -> bytes:
        """In bounded memory, whatever is sent. Raises HTTPException."""
        length = request.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 12 or int(length) > MOST_BODY_BYTES):
            raise _too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_TAKEN_IN_S):
                async for part in request.stream():
                    size += len(part)
                    self._bytes += len(part)
                    if size > MOST_BODY_BYTES:
                        raise _too_large()
                    if self._bytes > _MOST_BYTES_AT_ONCE:
                        raise HTTPException(503, "too many large requests at once")
                    parts.append(part)
        except TimeoutError:
            raise HTTPException(408, "the body did not come", {"connection": "close"}) from None
        finally:
            self._bytes -= size
        return b"".join(parts)

    def _tell(self, scored: Scored) -> None:
        """Log what is not known of the nodes, once for each service until it changes."""
        tally, unknown = self._tally, scored.unknown
        if not scored.service:
            return
        tally.unknown = unknown
        now, (before, at) = time.monotonic(), tally.warned.get(scored.service, (None, -math.inf))
        if before == unknown or now - at < _SAID_AGAIN_S:
            return
        if len(tally.warned) >= _MOST_SAID:
            tally.warned.clear()
        tally.warned[scored.service] = unknown, now
        if any(unknown[1:]):
            _log.info(
                "%s: of %d nodes, tokens/s is not known of %d, utilisation of %d, cost of %d;"
                " they count as the mean of the others there",
                *(scored.service, *unknown),
            )

    async def healthz(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        is_read, problems = self._sources.judge() is not None, self._sources.problems()
        document = {"ready": is_read, "problems": list(problems)}
        return JSONResponse(document, 200 if is_read else 503)

    async def metrics(self, request: Request) -> Response:
        from reconciler.kube.extender.metrics import collect
        from reconciler.metrics.exposition import exposition

        accept = request.headers.get("accept", "")
        body, content_type = exposition(partial(collect, self._tally, self._sources), accept)
        return Response(body, headers={"Content-Type": content_type})


def _too_large() -> HTTPException:
    most = MOST_BODY_BYTES >> 20
    return HTTPException(
        413, f"a request may have {most} MiB: set nodeCacheCapable: true", {"connection": "close"}
    )


async def _refused(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    document = {"status": problem.status_code, "message": problem.detail}
    return JSONResponse(document, problem.status_code, headers=problem.headers)


async def _bug(_: Request, __: Exception) -> Response:
    """The fence logs it."""
    message = "a bug in this program; the extender's log says more"
    return JSONResponse({"status": 500, "message": message}, 500)
