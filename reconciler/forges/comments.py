"""One comment of a pull request, kept current over a forge's API.

It is found again by its first line. The token goes to the address of the API alone: no redirect is
followed, and no page of a list that is elsewhere.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from reconciler import __version__
from reconciler.api.errors import ForgeError, error_text
from reconciler.api.plain_json import parse_json
from reconciler.forges.forge import ForgeRepository
from reconciler.http.exchange import HttpPolicy, HttpReply, HttpRequest, exchange
from reconciler.http.host import is_loopback
from reconciler.models.url import shown
from reconciler.report.markdown import MOST_BYTES

_DEADLINE_S = 60.0
_POLICY = HttpPolicy(most_bytes=16 << 20, proxies=True)
_MOST_PAGES = 100  # of a hundred comments each
_MOST_WAIT_S = 60.0  # for a forge that says how long it wants us to wait
_TRIES = 3
_NEXT = re.compile(r'<([^<>]+)>\s*;[^,<]*\brel="?next"?')
_DENIED = {
    401: "the token is not known there, or has expired",
    403: "the token may not write comments there (that of a job for a fork's pull request may not)",
    404: "no such repository or pull request, as far as this token may see",
}


@dataclass(frozen=True, slots=True)
class Comments:
    """The comments of one pull request. Methods raise ForgeError."""

    repository: ForgeRepository
    number: int
    token: str = field(repr=False)
    sleep: Callable[[float], None] = time.sleep

    def put(self, name: str, text: str) -> str:
        """Write the comment of this name, or write it anew; what was done. One that somebody else
        has made with the same first line is left alone."""
        body = f"{marker(name)}\n{text}"
        if (size := len(body.encode())) > MOST_BYTES:
            raise ForgeError(f"the text has {size:,} bytes, and a comment takes {MOST_BYTES:,}")
        ours = self._ours(marker(name))
        if ours is None:
            self._json("POST", self.repository.comments(self.number), body)
            return "written"
        if _same(ours.get("body"), body):
            return "current already"
        address = self.repository.comment(self.number, int(ours["id"]))
        self._json(self.repository.forge.comments.update, address, body)
        return "updated"

    def _ours(self, mark: str) -> dict[str, Any] | None:
        forge = self.repository.forge
        marked = [c for c in self._all() if str(c.get("body")).startswith(mark)]
        if not marked:
            return None
        me = self._me()
        who = forge.robots if me is None else re.escape(me)
        # A forge that names neither us nor its robots leaves only the first line to go by.
        ours = (c for c in marked if who is None or re.fullmatch(who, forge.writer(c) or ""))
        return next((c for c in ours if isinstance(c.get("id"), int)), None)

    def _me(self) -> str | None:
        """Who the token is of; None where it is a job's own, or may not ask."""
        reply = self._exchange("GET", f"{self.repository.api}/user")
        answer = _read(reply) if reply.status == 200 else None
        name = (
            answer.get(self.repository.forge.comments.login) if isinstance(answer, dict) else None
        )
        return name if isinstance(name, str) else None

    def _all(self) -> Iterator[dict[str, Any]]:
        address: str | None = f"{self.repository.comments(self.number)}?per_page=100&limit=100"
        for _ in range(_MOST_PAGES):
            if address is None:
                return
            reply = self._answered("GET", address)
            page = _read(reply)
            if not isinstance(page, list):
                raise ForgeError(f"{shown(address)} answers no list of comments")
            yield from (comment for comment in page if isinstance(comment, dict))
            following = _NEXT.search(reply.headers.get("link", ""))
            address = following[1] if following else None
            if address and _origin(address) != _origin(self.repository.api):
                raise ForgeError(
                    f"the next page of comments is at {shown(address)}: not asked, as the token"
                    " would go there"
                )

    def _json(self, method: str, address: str, body: str) -> None:
        self._answered(method, address, json.dumps({"body": body}).encode())

    def _answered(self, method: str, address: str, body: bytes | None = None) -> HttpReply:
        reply = self._exchange(method, address, body)
        if reply.status in (200, 201):
            return reply
        where = f"{shown(address)} answers {reply.status}"
        if 300 <= reply.status < 400:
            to = shown(reply.headers.get("location", "?"))
            raise ForgeError(
                f"{where}, and leads to {to}: not followed, as the token would go there; give the"
                " repository's present address"
            )
        if (wait_s := _wait_s(reply)) is not None:
            raise ForgeError(f"{where}: too many requests; it wants us back in {wait_s:.0f} s")
        why = _DENIED.get(reply.status)
        raise ForgeError(f"{where}: {_message(reply)}{f'; {why}' if why else ''}")

    def _exchange(self, method: str, address: str, body: bytes | None = None) -> HttpReply:
        """Waits as long as a forge asks for, if that is not long, and a moment for one that fails
        a request that changes nothing, or one that it cannot have carried out."""
        for left in reversed(range(_TRIES)):
            reply = self._request(method, address, body)
            wait_s = _wait_s(reply)
            if wait_s is None and method == "GET" and reply.status >= 500:
                wait_s = 1.0
            if wait_s is None or wait_s > _MOST_WAIT_S or not left:
                break
            self.sleep(wait_s)
        return reply

    def _request(self, method: str, address: str, body: bytes | None) -> HttpReply:
        url = urlsplit(address)
        if url.scheme != "https" and not is_loopback(url.hostname or ""):
            raise ForgeError(f"{shown(address)}: a token is sent by https only")
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": f"fleet-reconciler/{__version__}",
        }
        try:
            request = HttpRequest(method, url, headers, body)
            return exchange(request, _POLICY, deadline=time.monotonic() + _DEADLINE_S)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ForgeError(f"{shown(address)}: {error_text(error)}") from error


def marker(name: str) -> str:
    """The first line of the comment of this name; no forge shows it."""
    return f"<!-- fleet-reconciler: {name} -->"


def _same(stored: object, body: str) -> bool:
    """Forges change the ends of lines, and what is behind the last."""
    return str(stored).replace("\r\n", "\n").rstrip() == body.rstrip()


def _wait_s(reply: HttpReply) -> float | None:
    """How long a forge wants us to wait; None: it does not say that it is about that."""
    if reply.status not in (403, 429):
        return None
    stated = reply.headers.get("retry-after", "")
    if stated.isascii() and stated.isdigit():
        return float(stated)
    reset = reply.headers.get("x-ratelimit-reset", "")
    if reply.headers.get("x-ratelimit-remaining") == "0" and reset.isascii() and reset.isdigit():
        return max(float(reset) - time.time(), 1.0)
    return 60.0 if reply.status == 429 else None


def _message(reply: HttpReply) -> str:
    """What an answer says, short; never what we sent."""
    try:
        answer = parse_json(reply.body)
    except ValueError:
        answer = None
    reason = answer.get("message") if isinstance(answer, dict) else None
    text = str(reason) if reason else http.client.responses.get(reply.status, "no reason given")
    return " ".join(text.split())[:200]


def _read(reply: HttpReply) -> object:
    try:
        return parse_json(reply.body)
    except ValueError as error:
        raise ForgeError(f"its answer is not JSON: {error}") from error


def _origin(address: str) -> tuple[str, str]:
    parts = urlsplit(address)
    return parts.scheme, parts.netloc
