"""The routes. Every answer is made from memory, in the server's own thread."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from reconciler.http.body import read_body
from reconciler.http.fence import Fence
from reconciler.http.rate_limit import Allowance, RateLimitedWake
from reconciler.kube.server import HOOK_PATH
from reconciler.kube.server.webhook import MOST_BODY_BYTES, proven_by, secrets_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from reconciler.http.stream import Streams
    from reconciler.kube.server.board import Board
    from reconciler.page.pages import Pages

_BODY_TAKEN_IN_S = 10.0
_BURST = 20  # calls that are not signed, at once, that are told so
_PER_S = 2.0  # and so many a second from then on
_AT_ONCE = 4  # bodies in memory
_MOST_SECRET_BYTES = 64 << 10
_log = logging.getLogger(__name__)


def make_app(
    board: Board,
    pages: Pages,
    streams: Streams,
    secret_file: Path | None,
    wake: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """The whole server. `wake` is called from its thread."""
    hook = _Hook(board, secret_file, RateLimitedWake(wake), clock)
    state = _State(board)
    routes = [
        Route("/healthz", state.healthz),
        Route("/readyz", state.readyz),
        Route("/metrics", state.metrics),
        Route(HOOK_PATH, hook.receive, methods=["POST"]),
        *pages.routes(),
        Route("/v1/events", pages.guarded(streams), methods=["GET"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _as_json, Exception: _bug})
    return Fence(app)


class _State:
    def __init__(self, board: Board) -> None:
        self._board = board

    async def healthz(self, _: Request) -> Response:
        alive = self._board.is_alive()
        status = "ok" if alive else "the loop does not pass any more: restart the pod"
        document = {"status": status, "secondsSincePass": round(self._board.since_pass_s(), 1)}
        return JSONResponse(document, 200 if alive else 503)

    async def readyz(self, _: Request) -> Response:
        why, role = self._board.not_ready(), self._board.role()
        document = {
            "ready": not why,
            "role": "leader" if role.leads else "standby",
            "holder": role.holder or None,
            "notReady": list(why),
        }
        return JSONResponse(document, 503 if why else 200)

    async def metrics(self, request: Request) -> Response:
        from reconciler.kube.server.metrics import collect  # 1.3 MiB, if anybody scrapes
        from reconciler.metrics.exposition import exposition

        accept = request.headers.get("accept", "")
        body, content_type = exposition(partial(collect, self._board), accept)
        return Response(body, headers={"Content-Type": content_type})


class _Hook:
    """A forge reports something new. A sender that does not know the secret learns nothing else."""

    def __init__(
        self,
        board: Board,
        secret_file: Path | None,
        wake: RateLimitedWake,
        clock: Callable[[], float],
    ) -> None:
        self._board = board
        self._secret_file = secret_file
        self._wake = wake
        self._failures = Allowance(_BURST, _PER_S, clock)
        self._bodies = 0
        if secret_file is not None and not secret_file.is_file():  # a Secret may come later
            _log.warning(
                "--webhook-secret-file %s: there is no such file; nobody can wake us until then",
                secret_file,
            )

    async def receive(self, request: Request) -> Response:
        secrets = self._secrets()
        if not secrets:
            return self._answer("off", 404, "no webhook is received here")
        if self._bodies >= _AT_ONCE:
            return self._limited()
        length = request.headers.get("content-length", "")
        if length and not (length.isdecimal() and len(length) < 10):
            return self._answer("broken", 400, "no such length")
        if length and int(length) > MOST_BODY_BYTES:
            return self._answer("too-large", 413, "a body may have 1 MiB", connection="close")
        self._bodies += 1
        try:
            body = await read_body(request, MOST_BODY_BYTES, _BODY_TAKEN_IN_S)
        finally:
            self._bodies -= 1
        if body is None:
            return self._answer("too-large", 413, "a body may have 1 MiB", connection="close")
        headers = {name.lower(): value for name, value in request.headers.items()}
        if proven_by(headers, body, secrets, time.time()) is None:
            if not self._failures.take():  # who is known is let in all the same
                return self._limited()
            return self._answer("refused", 401, "not signed by anybody known here")
        self._wake()
        return self._answer("taken", 202, "the loop reads its source now")

    def _secrets(self) -> tuple[bytes, ...]:
        """Read each time: a Secret's file changes while we run."""
        if self._secret_file is None:
            return ()
        try:
            with self._secret_file.open("rb") as file:
                return secrets_in(file.read(_MOST_SECRET_BYTES))
        except OSError as error:
            _log.debug("webhook: %s: %s", self._secret_file, error)
            return ()

    def _limited(self) -> Response:
        return self._answer("limited", 429, "too many calls", retry_after="5")

    def _answer(self, result: str, status: int, message: str, **headers: str) -> Response:
        self._board.hooks[result] += 1
        return error(status, message, **headers)


def error(status: int, message: str, **headers: str) -> JSONResponse:
    """The form of all error responses."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse({"status": status, "message": message}, status, headers=named)


async def _as_json(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    answer = error(problem.status_code, problem.detail)
    answer.headers.update(problem.headers or {})
    return answer


async def _bug(_: Request, __: Exception) -> Response:
    """The fence logs it."""
    return error(500, "a bug in this program; the reconciler's log says more")
