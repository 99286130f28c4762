"""Lets a browser in that has sent the token once.

What it keeps is no token: a digest that only who has the token can make, in a cookie that no script
reads and no other site sends. It is good until the token is another. Nothing is stored here.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response

from reconciler.http.body import read_body
from reconciler.http.host import is_from_elsewhere
from reconciler.http.rate_limit import Allowance
from reconciler.page.headers import PAGE_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

SESSION_PATH = "/session"
FORM_PATHS = (SESSION_PATH, "/page.css")  # what the form is made of, for anyone
_BURST = 10  # wrong tokens at once
_PER_S = 0.5  # and so many a second from then on
_MOST_BODY_BYTES = 4096
_BODY_TAKEN_IN_S = 5.0


class Session:
    """Who may look at the pages of one server. Used by its thread alone.

    `token` is called for each request; None: nobody may. `where` says where the token is.
    `secure`: the cookie goes over TLS alone.
    """

    def __init__(
        self,
        token: Callable[[], bytes | None],
        where: str,
        *,
        secure: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._token, self._where, self._secure = token, where, secure
        self._guesses = Allowance(_BURST, _PER_S, clock)

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has our cookie."""
        token = self._token()
        if token is None:
            return False
        kept = cookie_parser(headers.get("cookie", "")).get(_cookie_name(token), "")
        return hmac.compare_digest(kept.encode(errors="replace"), _cookie(token).encode())

    def form(self, status: int = 401, message: str = "") -> Response:
        """What is shown to whoever is not known: nothing but the question."""
        from reconciler.page.render import sign_in_page

        text = sign_in_page(self._where, message)
        headers = {**PAGE_HEADERS, "Cache-Control": "no-store"}
        return Response(text, status, headers, "text/html")

    async def sign_in(self, request: Request) -> Response:
        """The answer to the form."""
        if is_from_elsewhere(request.headers):
            return self.form(403, "The form has to be sent from this page.")
        body = await read_body(request, _MOST_BODY_BYTES, _BODY_TAKEN_IN_S)
        if body is None:
            return self.form(413, "No token is that long.")
        if not self._guesses.take():
            return self.form(429, "Too many tokens were wrong. Try again in some seconds.")
        given = parse_qs(body.decode("latin-1"), errors="replace").get("token", [""])[0].strip()
        token = self._token()
        # compare_digest takes as long for a wrong token as for a right one
        if token is None or not hmac.compare_digest(given.encode(), token):
            return self.form(401, "That is not the token.")
        self._guesses.give_back()
        answer = RedirectResponse("/", 303, {**PAGE_HEADERS, "Cache-Control": "no-store"})
        answer.set_cookie(
            _cookie_name(token),
            _cookie(token),
            httponly=True,
            samesite="strict",
            secure=self._secure,
        )
        return answer


def _cookie(token: bytes) -> str:
    return hmac.digest(token, b"fleet-reconciler page", hashlib.sha256).hex()


def _cookie_name(token: bytes) -> str:
    """Each token has its own: cookies do not know ports, and two servers may be on one address."""
    return "fleet-" + hmac.digest(token, b"fleet-reconciler cookie", hashlib.sha256).hex()[:12]
