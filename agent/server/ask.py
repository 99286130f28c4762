"""`POST /services/NAMESPACE/NAME/ask`: a question from a service's page, passed on to the service.

The answer is plain text, as it comes: a browser shows it with a script and without. Who may ask is
the guard's to say; what asks for a key is not asked, as no browser is given one.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.responses import Response, StreamingResponse

from agent.server.guard import MOST_QUESTION_BYTES, error
from reconciler.api.errors import error_text
from reconciler.api.meta import service_ref
from reconciler.http.body import read_body
from reconciler.page.headers import PAGE_HEADERS
from reconciler.page.values import AskBox
from reconciler.report.status import speaks
from reconciler.runtimes.runtime import CHAT
from reconciler.runtimes.streamed import events, piece, refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from starlette.requests import Request

    from agent.process.launch import Launch, ProcessSnapshot

_AT_ONCE = 4
_BODY_TAKEN_IN_S = 10.0
_SILENT_S = 600.0  # a long prompt on a slow machine
_MOST_LINE = 1 << 20
_MOST_ERROR = 4096
_HEADERS = {**PAGE_HEADERS, "Cache-Control": "no-store"}


def ask_box(state: ProcessSnapshot | None, label: str) -> AskBox:
    """Whether the service of that name can be asked from its page. `state`: its process here."""
    if state is None:
        return AskBox("Nothing of it runs here.")
    spoken = speaks(state.to_instance(""))
    if CHAT not in spoken:
        names = ", ".join(api.name for api in spoken) or "nothing that is known here"
        return AskBox(f"It has no chat: it speaks {names}.")
    if state.launch.command.key is not None:
        return AskBox(
            f"It asks for an API key, which no page has: `reconcile ask {label}` sends it."
        )
    if not state.ready:
        return AskBox(f"It is not ready: {state.reason}.")
    return AskBox("", state.launch.models)


class Questions:
    """The questions that are being answered. In the server's event loop."""

    def __init__(self, running: Callable[[], Iterable[ProcessSnapshot]]) -> None:
        self._running = running
        self._open = 0

    def box(self, namespace: str, name: str) -> AskBox:
        label = f"{namespace}/{name}"
        return ask_box(self._process(label), label)

    async def ask(self, request: Request) -> Response:
        label = "{namespace}/{name}".format(**request.path_params)
        state = self._process(label)
        box = ask_box(state, label)
        if box.refusal or state is None:
            return error(409, box.refusal)
        body = await read_body(request, MOST_QUESTION_BYTES, _BODY_TAKEN_IN_S)
        if body is None:
            return error(413, "the question is too long", connection="close")
        sent = parse_qs(body.decode("latin-1"), errors="replace")
        text, model = (sent.get(key, [""])[0].strip() for key in ("text", "model"))
        if not text:
            return error(400, "ask something")
        if model and model not in box.models:
            return error(400, "it serves no model of that name")
        if self._open >= _AT_ONCE:
            return error(
                503, f"{_AT_ONCE} questions are being answered: try again", retry_after="5"
            )
        asked = {
            "model": model or next(iter(box.models), ""),
            "messages": [{"role": "user", "content": text}],
            "stream": True,
        }
        answer = self._counted(_answer(state.launch, json.dumps(asked).encode()))
        return StreamingResponse(answer, headers=_HEADERS, media_type="text/plain")

    def _process(self, label: str) -> ProcessSnapshot | None:
        ref = service_ref(label)
        return next((state for state in self._running() if state.ref == ref), None)

    async def _counted(self, answer: AsyncIterator[str]) -> AsyncIterator[str]:
        self._open += 1
        try:
            async for text in answer:
                yield text
        finally:
            self._open -= 1


async def _answer(launch: Launch, body: bytes) -> AsyncIterator[str]:
    """The pieces of an answer; a last line says why it is not whole. The engine is left as soon as
    nobody waits for them any more."""
    loop, pieces = asyncio.get_running_loop(), asyncio.Queue[str | None]()
    asking = _Asking(launch, body)

    def hand_on(text: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(pieces.put_nowait, text)

    threading.Thread(target=asking.run, args=(hand_on,), name="asking", daemon=True).start()
    try:
        while (text := await pieces.get()) is not None:
            yield text
    finally:
        asking.leave()


class _Asking:
    """One question, in a thread of its own."""

    def __init__(self, launch: Launch, body: bytes) -> None:
        self._body = body
        self._connection = http.client.HTTPConnection(  # noqa: TID251 - ended by another thread
            launch.host, launch.port, timeout=_SILENT_S
        )
        self._socket: socket.socket | None = None
        self._is_left = False

    def run(self, hand_on: Callable[[str | None], None]) -> None:
        """Hand on each piece, and None behind the last."""
        try:
            self._connection.connect()
            self._socket = self._connection.sock
            for text in self._pieces() if not self._is_left else ():
                hand_on(text)
        except (OSError, http.client.HTTPException, ValueError) as failed:
            hand_on(f"\n[no answer: {error_text(failed)}]")
        finally:
            self._connection.close()
            hand_on(None)

    def leave(self) -> None:
        """From another thread: what it reads ends."""
        self._is_left = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it has ended by itself
                self._socket.shutdown(socket.SHUT_RDWR)

    def _pieces(self) -> Iterator[str]:
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", CHAT.path, self._body, headers)
        response = self._connection.getresponse()
        if response.status != 200:
            why = refusal(response.read(_MOST_ERROR))
            raise ValueError(f"the service answers {response.status}: {why}")
        lines = iter(lambda: response.readline(_MOST_LINE), b"")
        yield from filter(None, map(piece, events(lines)))
