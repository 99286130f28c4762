"""Ask a served model from inside a cluster. Only the standard library: it runs in a pod.

    ask.py URL MODEL                 one short answer
    ask.py URL MODEL --seconds 30    one that takes about so long, streamed; says when it begins

Exit 0 when the answer came to its end with every token that was asked for.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

_TIMEOUT_S = 180.0  # without a byte
_TRIED_FOR_S = 10.0  # a name and its address take a moment to be known everywhere
_SHORT = 16  # tokens
_SAMPLE = 200  # tokens by which speed is measured


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--most", type=int, default=15_000, help="tokens there is room for")
    args = parser.parse_args()
    try:
        if args.seconds is None:
            return _report(*_whole(args.url, args.model, _SHORT), _SHORT)
        began = time.monotonic()
        _whole(args.url, args.model, _SAMPLE)
        speed = _SAMPLE / (time.monotonic() - began)
        count = min(args.most, max(_SAMPLE, int(args.seconds * speed)))
        print(f"{speed:.0f} tokens/s: asks for {count}", flush=True)
        return _report(*_streamed(args.url, args.model, count), count)
    except (OSError, http.client.HTTPException) as error:
        print(f"cut: {type(error).__name__}: {error}", flush=True)
        return 1


def _report(reason: str | None, tokens: int, asked: int) -> int:
    print(f"ended by {reason} with {tokens} of {asked} tokens", flush=True)
    return 0 if (reason, tokens) == ("length", asked) else 1


def _whole(url: str, model: str, tokens: int) -> tuple[str | None, int]:
    """Why it ended, and after how many tokens."""
    with _post(url, _body(model, tokens)) as answer:
        said = json.load(answer)
    assert isinstance(said["choices"][0]["message"]["content"], str), said
    return said["choices"][0]["finish_reason"], said["usage"]["completion_tokens"]


def _streamed(url: str, model: str, tokens: int) -> tuple[str | None, int]:
    """The same. What is cut has no end: no reason and 0 tokens."""
    reason, counted, began = None, 0, time.monotonic()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    with _post(url, _body(model, tokens) | options) as answer:
        for number, event in enumerate(_events(answer)):
            if number == 0:
                print("the answer begins", flush=True)
            for choice in event["choices"]:
                reason = choice["finish_reason"] or reason
            counted = (event.get("usage") or {}).get("completion_tokens", counted)
    print(f"took {time.monotonic() - began:.1f} s", flush=True)
    return reason, counted


def _events(answer: Any) -> Iterator[dict[str, Any]]:
    for line in answer:
        text = line.decode().strip().removeprefix("data: ")
        if text and text != "[DONE]":
            yield json.loads(text)


def _body(model: str, tokens: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello"}]
    return {"model": model, "messages": messages, "max_tokens": tokens, "ignore_eos": True}


def _post(url: str, body: dict[str, Any]) -> Any:
    asked = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    until = time.monotonic() + _TRIED_FOR_S
    while True:
        try:
            return urllib.request.urlopen(asked, timeout=_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            sys.exit(f"{url}: HTTP {error.code}: {error.read()[:500]!r}")
        except urllib.error.URLError as error:
            if time.monotonic() > until:
                sys.exit(f"{url}: {error.reason}")
            print(f"again: {error.reason}", flush=True)
            time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
