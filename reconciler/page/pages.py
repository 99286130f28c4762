"""The page's routes. Nothing here changes anything."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from reconciler.http.host import names_loopback
from reconciler.page import values
from reconciler.page.headers import PAGE_HEADERS
from reconciler.page.session import SESSION_PATH

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from reconciler.page.session import Session

_STATIC = {
    "page.css": "text/css",
    **dict.fromkeys(("page.js", "log.js", "ask.js"), "text/javascript"),
}


Refusal = Callable[[Request], Response | None]
"""What is answered instead of a page; None: the page may be seen."""


def only_this_machine(request: Request) -> Response | None:
    """The refusal of a server on loopback."""
    if names_loopback(request.headers.get("host", "")):
        return None
    return not_shown(421, "The address must name this machine's loopback: 127.0.0.1 or localhost.")


def only_known(session: Session) -> Refusal:
    """The refusal of a server that anyone may reach: who is not known gets the form."""
    return lambda request: None if session.knows(request.headers) else session.form()


class _Made(NamedTuple):
    """A page, for all that look at it."""

    body: bytes
    tag: str  # changes with its content
    status: int

    @classmethod
    def of(cls, text: str, status: int = 200) -> _Made:
        body = text.encode()
        return cls(body, f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"', status)


class Pages:
    """The pages of what `documents` returns at the moment: it is called for each request, in the
    server's own thread. `session`: who sends the token to it is known from then on. `refusal`: of
    each request for a page, where nothing before us refuses."""

    def __init__(
        self,
        documents: Callable[[], values.Documents],
        session: Session | None = None,
        refusal: Refusal = lambda _: None,
    ) -> None:
        self._documents, self._session, self._refusal = documents, session, refusal
        self._shown: values.Documents | None = None
        self._made: dict[str, _Made] = {}  # of what is shown

    def routes(self) -> list[Route]:
        known = self._session
        return [
            Route("/", self._page_of("fleet")),
            Route("/plan", self._page_of("plan")),
            Route("/services/{namespace}/{name}", self._service),
            *(Route(f"/{name}", _static(name, kind)) for name, kind in _STATIC.items()),
            *([Route(SESSION_PATH, known.sign_in, methods=["POST"])] if known else ()),
        ]

    def guarded(self, app: ASGIApp) -> ASGIApp:
        """What only those may read who may see the pages."""
        return _Guarded(app, self._refusal)

    def _page_of(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            from reconciler.page.render import page  # the library, if anybody looks

            return self._answer(request, lambda shown: _Made.of(page(name, shown)))

        return answer

    async def _service(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        return self._answer(request, lambda shown: _of_service(shown, namespace, name))

    def _answer(self, request: Request, make: Callable[[values.Documents], _Made]) -> Response:
        """A page that is looked at asks again and again: it is made once while nothing changes."""
        if refused := self._refusal(request):
            return refused
        documents = self._documents()
        if documents is not self._shown:
            self._shown, self._made = documents, {}
        made = self._made.get(request.url.path)
        if made is None:
            made = make(documents)
            if made.status == 200:  # of what is not there, there is no end
                self._made[request.url.path] = made
        headers = {**PAGE_HEADERS, "ETag": made.tag, "Cache-Control": "no-cache"}
        if made.status == 200 and made.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(made.body, made.status, headers, "text/html")


def _of_service(shown: values.Documents, namespace: str, name: str) -> _Made:
    from reconciler.page.render import error_page, page

    service = values.service_of(shown.status, namespace, name)
    if service is None:
        return _Made.of(
            error_page("No such service", f"Nothing is known of {namespace}/{name} here."), 404
        )
    explained, ask_box = shown.explain(namespace, name), shown.ask_box(namespace, name)
    return _Made.of(page("service", shown, service=service, explained=explained, ask_box=ask_box))


class _Guarded:
    """An object: Starlette takes a function for an endpoint of requests."""

    def __init__(self, app: ASGIApp, refusal: Refusal) -> None:
        self._app, self._refusal = app, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._refusal(Request(scope)) or self._app)(scope, receive, send)


def not_shown(status: int, message: str) -> Response:
    """A refusal in words."""
    from reconciler.page.render import error_page

    text = error_page("Not shown", message)
    return Response(text, status, {**PAGE_HEADERS, "Cache-Control": "no-store"}, "text/html")


def _static(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        content = (files("reconciler.page") / "templates" / name).read_bytes()
        return Response(content, 200, {**PAGE_HEADERS, "Cache-Control": "max-age=300"}, kind)

    return answer
