"""Authentication around every route of the server."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from reconciler.http.fence import Fence
from reconciler.http.host import is_from_elsewhere, names_loopback
from reconciler.http.server import MOST_HEADER_BYTES
from reconciler.page.session import FORM_PATHS

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from reconciler.page.session import Session

MOST_BODY_BYTES = 64 << 10
MOST_QUESTION_BYTES = 256 << 10  # a form writes most characters with three times their bytes
ASK_PATH = "/services/{namespace}/{name}/ask"
_IS_ASK = re.compile(r"/services/[^/]+/[^/]+/ask")
_FREE = ("/healthz", *FORM_PATHS)  # tell nothing but that we are alive


def error(status: int, message: str, **headers: str) -> JSONResponse:
    """The form of all our errors."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"error": {"status": status, "message": message}}
    return JSONResponse(body, status, headers=named)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may connect. `token` None: anyone who can reach us, which is only this machine.
    `session` knows browsers that have sent the token."""

    token: bytes | None = None
    session: Session | None = None


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = Fence(app)
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if sum(len(name) + len(value) for name, value in headers.raw) > MOST_HEADER_BYTES:
            return error(431, f"headers may have {MOST_HEADER_BYTES >> 10} KiB", connection="close")
        if self._access.token is None:
            if not names_loopback(headers.get("host", "")):
                return error(421, "the Host header must name this machine's loopback address")
            if not _is_read(scope) and "origin" in headers and not _is_our_form(scope, headers):
                return error(403, "not for pages in a browser")
        elif scope["path"] not in _FREE and not self._knows(scope, headers):
            if self._access.session and "text/html" in headers.get("accept", ""):
                return self._access.session.form()  # a person's browser
            return error(
                401,
                "a token or a client certificate is needed: the token is in the file tls/token of"
                " the agent's state directory",
                www_authenticate="Bearer",
            )
        length = headers.get("content-length", "0")
        most = MOST_QUESTION_BYTES if _IS_ASK.fullmatch(scope["path"]) else MOST_BODY_BYTES
        if not length.isdecimal() or len(length) > 9 or int(length) > most:
            return error(413, f"a body may have {most >> 10} KiB", connection="close")
        return None

    def _knows(self, scope: Scope, headers: Headers) -> bool:
        if scope["state"].get("client_certificate"):  # verified by TLS, see listening/server.py
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        assert self._access.token is not None
        # compare_digest takes as long for a wrong token as for a right one
        same = hmac.compare_digest(given.strip().encode("latin-1"), self._access.token)
        if same and scheme.lower() == "bearer":
            return True
        session = self._access.session
        # A browser sends the cookie by itself: it is good for what changes nothing.
        may = _is_read(scope) or ("origin" in headers and _is_our_form(scope, headers))
        return bool(session and may and session.knows(headers))


def _is_read(scope: Scope) -> bool:
    return scope["method"] in ("GET", "HEAD")


def _is_our_form(scope: Scope, headers: Headers) -> bool:
    """Whether our own page asks a service."""
    return _IS_ASK.fullmatch(scope["path"]) is not None and not is_from_elsewhere(headers)
