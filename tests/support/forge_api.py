"""A forge's API for the comments of one pull request, as GitHub, Forgejo and GitLab publish it.

    with ForgeApi("github") as forge:
        forge.add("somebody", "a comment")
        ... forge.page, forge.api, forge.comments ...

https://docs.github.com/rest/issues/comments, https://codeberg.org/api/swagger,
https://docs.gitlab.com/api/notes. Switches may be turned while it runs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.serving import Serving

TOKEN = "t0ken-that-nobody-may-see"
_ONE = {
    "github": "/repos/me/fleet/issues/comments/",
    "forgejo": "/repos/me/fleet/issues/comments/",
    "gitlab": "/projects/me%2Ffleet/merge_requests/7/notes/",
}
_ALL = {
    "github": "/repos/me/fleet/issues/7/comments",
    "forgejo": "/repos/me/fleet/issues/7/comments",
    "gitlab": "/projects/me%2Ffleet/merge_requests/7/notes",
}
_PREFIX = {"github": "/api/v3", "forgejo": "/api/v1", "gitlab": "/api/v4"}
_UPDATE = {"github": "PATCH", "forgejo": "PATCH", "gitlab": "PUT"}


@dataclass
class Answer:
    """What a request gets in the place of what it asked for."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "no"


class ForgeApi(Serving):
    """`me` is who the token is of; None: of a job, which may not ask."""

    def __init__(self, kind: str, me: str | None = "fleet-bot") -> None:
        self.kind = kind
        self.me = me
        self.robot = {"github": "github-actions[bot]", "forgejo": "forgejo-actions"}.get(kind, "?")
        self.comments: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.tokens: list[str | None] = []
        self.instead: dict[str, list[Answer]] = {}  # by method, one a request
        self.most_a_page = 100
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _handler(self)))
        self.host = f"http://127.0.0.1:{self._server.server_port}"
        self.page = f"{kind}={self.host}/me/fleet"
        self.api = f"{self.host}{_PREFIX[kind]}"

    def add(self, author: str | None, body: str) -> dict[str, Any]:
        who, name = ("author", "username") if self.kind == "gitlab" else ("user", "login")
        made = {"id": 100 + len(self.comments), who: {name: author or self.robot}, "body": body}
        self.comments.append(made)
        return made

    @property
    def bodies(self) -> list[str]:
        return [comment["body"] for comment in self.comments]


def _handler(forge: ForgeApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self._begin()
            if path == "/user":
                name = "username" if forge.kind == "gitlab" else "login"
                self._end(403 if forge.me is None else 200, {name: forge.me})
            elif path == _ALL[forge.kind]:
                self._list()
            elif path is not None:
                self._end(404, {"message": "Not Found"})

        def do_POST(self) -> None:
            if (path := self._begin()) is not None:
                assert path == _ALL[forge.kind], path
                self._end(201, forge.add(forge.me, self._body()))

        def _update(self) -> None:
            if (path := self._begin()) is not None:
                assert self.command == _UPDATE[forge.kind]
                number = re.fullmatch(re.escape(_ONE[forge.kind]) + r"(\d+)", path)
                assert number, path
                (comment,) = (c for c in forge.comments if c["id"] == int(number[1]))
                comment["body"] = self._body()
                self._end(200, comment)

        do_PATCH = do_PUT = _update

        def _begin(self) -> str | None:
            """The path below the API; None: it is answered already."""
            length = int(self.headers["Content-Length"] or 0)
            self.sent = self.rfile.read(length)
            path = urlsplit(self.path).path
            forge.requests.append(f"{self.command} {path}")
            forge.tokens.append(self.headers["Authorization"])
            if path.endswith("/user"):
                return "/user"
            if waiting := forge.instead.get(self.command):
                answer = waiting.pop(0)
                self._end(answer.status, {"message": answer.message}, answer.headers)
                return None
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                self._end(401, {"message": "Bad credentials"})
                return None
            return path.removeprefix(_PREFIX[forge.kind])

        def _list(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            size = min(int(query.get("per_page", ["30"])[0]), forge.most_a_page)
            if forge.kind == "forgejo":  # it has no pages of an issue's comments
                size = len(forge.comments) + 1
            number = int(query.get("page", ["1"])[0])
            rest = forge.comments[(number - 1) * size :]
            path = self.path.partition("?")[0]
            following = f"{forge.host}{path}?per_page={size}&page={number + 1}"
            last = f'<{forge.host}{path}?page=9>; rel="last"'
            more = {"Link": f'<{following}>; rel="next", {last}'} if len(rest) > size else {}
            self._end(200, rest[:size], more)

        def _body(self) -> str:
            return str(json.loads(self.sent)["body"])

        def _end(self, status: int, answer: object, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler
