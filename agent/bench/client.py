"""One run of a benchmark: a prompt and its answer, from the process that serves, with the time that
each took.

An engine that times its own answers is believed. Any other is timed from outside, by the first
piece of a streamed answer and the last: then the network, and the reading of the text as tokens,
count as well.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from agent.bench.protocol import SEED
from agent.process.exits import one_line
from agent.process.health import EngineAddress
from reconciler.api.benchmark import BATCH_TOKENS
from reconciler.api.errors import BenchmarkError
from reconciler.api.plain_json import parse_json
from reconciler.http.exchange import HttpPolicy, open_lines
from reconciler.runtimes.streamed import events
from reconciler.runtimes.timing import Asked, EngineTimings, Timing

T = TypeVar("T")

ANSWER_S = 600.0  # a large model on a slow machine writes one token in seconds
_LONGEST_LINE = 1 << 20
# Anything will do, as long as it is text: which experts a model asks, and how well guesses of its
# next tokens do, depends on what it reads.
_TEXT = """The lighthouse had been built by hand, from stone that the boats brought over in summer,
and for most of a century somebody had climbed its stairs each evening to light the lamp. When the
lamp was made to light itself, the keepers left. What they left behind were forty notebooks, one for
each second or third year, in which they had written down the weather, the ships that passed, the
repairs, and now and then what they had had for dinner. A student found them in a cupboard behind
the engine room and read all of them in a single winter. She learned that storms come in threes,
that gulls steal soap, and that a man can write the word fog two hundred times in a year without
finding another word for it. Later she counted the words of every keeper, and saw that those who
stayed for long wrote less each year, as if everything worth saying about the sea had been said, and
only the numbers were left. """


def ask_by_engine(
    address: EngineAddress, timings: EngineTimings, model: str, timeout_s: float = ANSWER_S
) -> Iterator[Timing]:
    """Runs without end, timed by the engine. Raises BenchmarkError."""
    tokens = _answered(address, timings.tokenize(model, _TEXT * 2), timeout_s, timings.tokens)
    if len(tokens) < BATCH_TOKENS:
        raise BenchmarkError(f"its text of {len(tokens)} tokens is too short for a micro-batch")
    asked = timings.answer(model, tokens[:BATCH_TOKENS], BATCH_TOKENS, SEED)
    while True:
        yield _answered(address, asked, timeout_s, timings.timing)


def ask_by_clock(
    address: EngineAddress, model: str, timeout_s: float = ANSWER_S
) -> Iterator[Timing]:
    """Runs without end, timed from outside. Each prompt begins otherwise: what an engine keeps of
    an earlier one is no use to it. Raises BenchmarkError."""
    number = 0
    while True:
        number += 1
        body = {
            "model": model,
            "prompt": f"{number}. {_TEXT[: 4 * BATCH_TOKENS]}",
            "max_tokens": BATCH_TOKENS,
            "seed": SEED,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        yield _streamed(address, ("/v1/completions", body), timeout_s)


def _answered(
    address: EngineAddress, asked: Asked, timeout_s: float, read: Callable[[object], T]
) -> T:
    path, body = asked
    try:
        status, answer = address.ask(path, timeout_s, json.dumps(body).encode())
        if status != 200:
            raise ValueError(
                f"{path} answers {status}: {one_line(answer.decode(errors='replace'))}"
            )
        return read(parse_json(answer))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BenchmarkError(f"no answer to measure: {_error_text(error)}") from error


def _streamed(address: EngineAddress, asked: Asked, timeout_s: float) -> Timing:
    path, body = asked
    request = address.request(path, json.dumps(body).encode())
    try:
        began = time.monotonic()
        with open_lines(request, HttpPolicy(_LONGEST_LINE), idle_s=timeout_s) as (status, lines):
            if status != 200:
                error_body = one_line(next(lines, b"").decode(errors="replace"))
                raise ValueError(f"{path} answers {status}: {error_body}")
            return _timed(events(_until(began + timeout_s, lines)), began)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BenchmarkError(f"no answer to measure: {_error_text(error)}") from error


def _timed(answer: Iterator[dict[str, Any]], began: float) -> Timing:
    first = last = None
    usage: dict[str, Any] = {}
    for event in answer:
        choices = event.get("choices")
        if isinstance(choices, list) and any(
            isinstance(c, dict) and c.get("text") for c in choices
        ):
            last = time.monotonic()
            first = first or last
        if isinstance(event.get("usage"), dict):
            usage = event["usage"]
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if first is None or last is None:
        raise ValueError("the answer is empty")
    if not isinstance(read, int) or not isinstance(written, int):
        raise ValueError("the engine does not say how many tokens its answer has")
    return Timing(read, first - began, written - 1, last - first)


def _until(deadline: float, lines: Iterator[bytes]) -> Iterator[bytes]:
    """Raises TimeoutError."""
    for line in lines:
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
        yield line


def _error_text(error: Exception) -> str:
    return one_line(str(error)) or type(error).__name__
