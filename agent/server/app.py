"""The routes. Every response is made from memory, in the server's own thread."""

from __future__ import annotations

import functools
import time
from email.utils import formatdate
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agent.server.guard import ASK_PATH, MOST_BODY_BYTES, Access, Guard, error
from agent.server.page import NodeDocuments
from reconciler.http.body import read_body
from reconciler.http.rate_limit import RateLimitedWake
from reconciler.page.pages import Pages

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from agent.server.answer import Answers
    from agent.server.ask import Questions
    from agent.server.board import StateBoard
    from agent.server.logs import Logs
    from agent.server.metrics import NodeCollector
    from reconciler.http.stream import Streams
    from reconciler.loop import Wake

_BODY_TAKEN_IN_S = 2.0


def make_app(
    answers: Answers,
    board: StateBoard,
    metrics: Callable[[], NodeCollector],
    streams: Streams,
    wake: Wake,
    access: Access,
    logs: Logs,
    questions: Questions,
) -> ASGIApp:
    """The whole server, including the guard. `metrics` is called at the first scrape."""
    node = _Node(answers, board, metrics, wake)
    routes = [
        Route("/v1/state", node.state),
        Route("/v1/events", streams, methods=["GET"]),
        Route("/v1/logs", logs.read),
        Route("/v1/wake", node.wake, methods=["POST"]),
        Route("/healthz", node.healthz),
        Route("/readyz", node.readyz),
        Route("/metrics", node.metrics),
        Route(ASK_PATH, questions.ask, methods=["POST"]),
        *Pages(NodeDocuments(answers, board, questions.box), access.session).routes(),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _as_json, Exception: _bug})
    return Guard(app, access)


class _Node:
    def __init__(
        self,
        answers: Answers,
        board: StateBoard,
        metrics: Callable[[], NodeCollector],
        wake: Wake,
    ) -> None:
        self._answers, self._board = answers, board
        self._metrics = functools.cache(metrics)
        self._wake = RateLimitedWake(wake.fetch)

    async def state(self, request: Request) -> Response:
        body = self._answers.state()
        headers = {
            "ETag": body.etag,
            "Cache-Control": "no-cache",
            "Date": formatdate(time.time(), usegmt=True),  # its times are relative to this
        }
        known = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
        if body.etag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(body.json, media_type="application/json", headers=headers)

    async def healthz(self, _: Request) -> Response:
        alive = self._answers.is_alive()
        age_s = round(self._board.since_pass_s(), 1)
        status = "ok" if alive else "the loop does not pass any more: restart the agent"
        document = {"status": status, "secondsSincePass": age_s}
        return JSONResponse(document, 200 if alive else 503)

    async def readyz(self, _: Request) -> Response:
        missing = self._answers.not_ready()
        document = {
            "ready": not missing,
            "notReady": [
                {"service": m.service, "reason": m.reason, "message": m.message} for m in missing
            ],
            "blocked": [
                {"service": b.service, "reason": b.reason, "message": b.message}
                for b in self._answers.blocked()
            ],
        }
        return JSONResponse(document, 503 if missing else 200)

    async def metrics(self, request: Request) -> Response:
        from reconciler.metrics.exposition import exposition  # see Serving._app

        accept = request.headers.get("accept", "")
        body, content_type = exposition(self._metrics().collect, accept)
        return Response(body, headers={"Content-Type": content_type})

    async def wake(self, request: Request) -> Response:
        """The loop itself finds out what has changed."""
        if await read_body(request, MOST_BODY_BYTES, _BODY_TAKEN_IN_S) is None:
            return error(413, "no body is needed", connection="close")
        self._wake()
        return JSONResponse({"status": "the loop reads its source now"}, 202)


async def _as_json(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    answer = error(problem.status_code, problem.detail)
    answer.headers.update(problem.headers or {})
    return answer


async def _bug(_: Request, __: Exception) -> Response:
    """The fence logs it."""
    return error(500, "a bug in this program; the agent's log says more")
