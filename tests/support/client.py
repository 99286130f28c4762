"""What a client of a served model asks."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.wait import PATIENCE_S


def get(endpoint: str, path: str) -> Any:
    """The JSON that a server answers."""
    with urllib.request.urlopen(f"{endpoint}{path}", timeout=PATIENCE_S) as answer:
        return json.load(answer)


def complete(endpoint: str, model: str = "tiny", prompt: str = "w1 w2", tokens: int = 4) -> str:
    """The text that a model adds to the prompt, through the API that clients use."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(
        f"{endpoint}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        reply = json.load(answer)
    assert reply["usage"]["completion_tokens"] > 0, reply
    return str(reply["choices"][0]["text"])


def context_size(endpoint: str) -> int:
    """The context that the server really has."""
    return int(get(endpoint, "/props")["default_generation_settings"]["n_ctx"])


@dataclass
class Asking:
    """What a client saw that asks again and again."""

    answers: int = 0
    failures: list[str] = field(default_factory=list)


@contextmanager
def asking(endpoint: str) -> Iterator[Asking]:
    """Ask every 50 ms, as a load balancer would."""
    seen, stop = Asking(), threading.Event()

    def ask() -> None:
        while not stop.wait(0.05):
            try:
                assert get(endpoint, "/health") == {"status": "ok"}
                seen.answers += 1
            except (OSError, AssertionError) as error:
                seen.failures.append(repr(error))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
