"""Clients that ask a model again and again, and what became of each request.

with asking(endpoint, model="tiny") as seen:
    ...
    seen.wait_more(5)                # five more answers
assert seen.failures == []
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from tests.support.client import complete
from tests.support.wait import PATIENCE_S, wait_for

_PAUSE_S = 0.05


@dataclass
class Asked:
    """What a client saw that waits for each answer before it asks again."""

    answers: int = 0
    failures: list[str] = field(default_factory=list)

    def wait_more(self, count: int) -> None:
        """Until so many requests were answered that began from now on, but for the first."""
        enough = self.answers + count + 1
        wait_for(lambda: self.answers >= enough or bool(self.failures), "answered")


@contextmanager
def asking(endpoint: str, model: str = "tiny") -> Iterator[Asked]:
    """Ask for completions, up to 20 in a second, as long as the `with` block lasts."""
    seen, stop = Asked(), threading.Event()

    def ask() -> None:
        while not stop.wait(_PAUSE_S):
            try:
                complete(endpoint, model)
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


class Fate(StrEnum):
    ANSWERED = "answered"
    CUT = "cut"  # the server took it, and closed the connection before the answer's end


@contextmanager
def long_requests(
    endpoint: str, model: str, tokens: int, count: int
) -> Iterator[list[Future[Fate]]]:
    """So many requests at once, each for exactly so many tokens."""
    with ThreadPoolExecutor(count) as pool:
        yield [pool.submit(_ask_for, endpoint, model, tokens) for _ in range(count)]


def _ask_for(endpoint: str, model: str, tokens: int) -> Fate:
    body = {"model": model, "prompt": "w1 w2", "max_tokens": tokens, "ignore_eos": True}
    request = urllib.request.Request(
        f"{endpoint}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            reply = json.load(answer)
    except urllib.error.HTTPError:  # an answer, and none that we want
        raise
    except OSError:
        return Fate.CUT
    assert reply["usage"]["completion_tokens"] == tokens, reply["usage"]
    return Fate.ANSWERED
