"""The page's routes. Nothing here changes anything."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from reconciler.page import values

if TYPE_CHECKING:
    from starlette.requests import Request

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
        " img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_STATIC = {"page.css": "text/css", "page.js": "text/javascript"}


class Site:
    """The pages of what `documents` returns at the moment: it is called for each request, in the
    server's own thread."""

    def __init__(self, documents: Callable[[], values.Documents]) -> None:
        self._documents = documents

    def routes(self) -> list[Route]:
        return [
            Route("/", self._page_of("fleet")),
            Route("/plan", self._page_of("plan")),
            Route("/services/{namespace}/{name}", self._service),
            *(Route(f"/{name}", _static(name, kind)) for name, kind in _STATIC.items()),
        ]

    def _page_of(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            from reconciler.page.render import page  # the library, if anybody looks

            return _html(request, page(name, self._documents()))

        return answer

    async def _service(self, request: Request) -> Response:
        from reconciler.page.render import error_page, page

        documents = self._documents()
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        service = values.service_of(documents.status, namespace, name)
        if service is None:
            text = error_page("No such service", f"Nothing is known of {namespace}/{name} here.")
            return _html(request, text, 404)
        return _html(request, page("service", documents, service=service))


def _html(request: Request, text: str, status: int = 200) -> Response:
    """A response with a tag that changes with its content: a page that is looked at asks again and
    again."""
    body = text.encode()
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    headers = {**_HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
    if status == 200 and tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers, "text/html")


def _static(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        content = (files("reconciler.page") / "templates" / name).read_bytes()
        return Response(content, 200, {**_HEADERS, "Cache-Control": "max-age=300"}, kind)

    return answer
