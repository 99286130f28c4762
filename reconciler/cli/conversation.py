"""What is asked of a service by what it speaks, and its answers as a person reads them."""

from __future__ import annotations

import argparse
import base64
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.api.errors import ReconcilerError, UsageError, error_text
from reconciler.cli.answers import ServiceClient
from reconciler.console.edge import Exit, tell, width_of
from reconciler.core.observation import Instance
from reconciler.report.status import speaks
from reconciler.report.terminal import printable
from reconciler.report.word_wrap import WordWrap
from reconciler.runtimes.runtime import CHAT, COMPLETIONS, EMBEDDINGS, RERANK
from reconciler.runtimes.streamed import piece

_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "png",
    b"\xff\xd8\xff": "jpeg",
    b"GIF8": "gif",
    b"RIFF": "webp",
}
_MOST_PICTURE = 20 << 20
_RESET = "/reset"
_COMMANDS = "/reset begins anew; Ctrl-C stops an answer, Ctrl-D ends the conversation"
_LIKE_A_COMMAND = re.compile(r"/[a-z]+")

Message = dict[str, Any]  # of OpenAI's API


def hold(
    args: argparse.Namespace,
    client: ServiceClient,
    instance: Instance,
    texts: Sequence[str],
    picture: str | None,
) -> int:
    """Ask, or talk until stdin ends. Raises AgentError, ClusterError, UsageError."""
    model = args.name if args.name in instance.models else next(iter(instance.models), "")
    spoken = speaks(instance)
    if EMBEDDINGS in spoken and CHAT not in spoken:
        return _compare(args, client, model, texts)
    if RERANK in spoken and CHAT not in spoken:
        return _sort(args, client, model, texts)
    if CHAT not in spoken:
        tell(f"{instance.ref.label} has no chat template: the text is completed as it stands")
    asking = _Asking(client, model, args.max_tokens, chats=CHAT in spoken)
    if args.system:
        asking.messages.append({"role": "system", "content": args.system})
    if not texts:
        return _talk(args, asking, picture)
    asking.say(" ".join(texts), picture)
    return _print_json(asking, instance) if args.output == "json" else _print(asking)


def picture(file: str) -> str:
    """A file as a data URL. Raises UsageError: it is no picture, or too large."""
    try:
        with Path(file).expanduser().open("rb") as opened:
            data = opened.read(_MOST_PICTURE + 1)
    except OSError as error:
        raise UsageError(f"--image {file}: {error_text(error, file)}") from error
    if len(data) > _MOST_PICTURE:
        raise UsageError(f"--image {file}: larger than 20 MiB")
    for begins, kind in _PICTURES.items():
        if data.startswith(begins):
            return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    raise UsageError(f"--image {file}: is no PNG, JPEG, GIF or WebP")


@dataclass(slots=True)
class _Asking:
    """A conversation so far, and how quick its last answer was."""

    client: ServiceClient
    model: str
    max_tokens: int | None
    chats: bool
    messages: list[Message] = field(default_factory=list)
    first_s: float | None = None
    tokens_per_second: float | None = None

    def say(self, text: str, picture: str | None = None) -> None:
        content: object = text
        if picture is not None:
            shown = {"type": "image_url", "image_url": {"url": picture}}
            content = [{"type": "text", "text": text}, shown]
        self.messages.append({"role": "user", "content": content})

    def answer(self) -> Iterator[str]:
        """The pieces of the next answer; what came of it is part of the conversation."""
        began, first, pieces, tokens = time.monotonic(), None, list[str](), 0
        measured: float | None = None
        try:
            for event in self._events():
                if isinstance(usage := event.get("usage"), dict):
                    tokens = int(usage.get("completion_tokens") or 0)
                measured = _engines_own_rate(event) or measured
                if text := piece(event):
                    first = first or time.monotonic()
                    pieces.append(text)
                    yield text
        finally:
            self.messages.append({"role": "assistant", "content": "".join(pieces)})
            if first is not None:
                self.first_s = first - began
                writing_s = time.monotonic() - first
                count = (tokens or len(pieces)) - 1
                ours = count / writing_s if writing_s > 0 and count > 0 else None
                self.tokens_per_second = measured or ours

    def _events(self) -> Iterator[dict[str, Any]]:
        body: dict[str, Any] = {"model": self.model, "stream_options": {"include_usage": True}}
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        if self.chats:
            return self.client.stream(CHAT.path, {**body, "messages": self.messages})
        prompt = "\n".join(str(message["content"]) for message in self.messages)
        return self.client.stream(COMPLETIONS.path, {**body, "prompt": prompt})


def _engines_own_rate(event: dict[str, Any]) -> float | None:
    """What llama.cpp says with the last event. What we see may have come in one go."""
    timings = event.get("timings")
    rate = timings.get("predicted_per_second") if isinstance(timings, dict) else None
    return float(rate) if isinstance(rate, int | float) else None


def _print(asking: _Asking) -> int:
    wrap = WordWrap(width_of(sys.stdout))
    for text in asking.answer():
        print(wrap.feed(_shown(text)), end="", flush=True)
    print(wrap.end())
    _tell_speed(asking)
    return Exit.OK


def _print_json(asking: _Asking, instance: Instance) -> int:
    text = "".join(asking.answer())
    document = {
        "formatVersion": 1,
        "service": instance.ref.label,
        "model": asking.model,
        "text": text,
        "firstTokenSeconds": asking.first_s and round(asking.first_s, 3),
        "tokensPerSecond": asking.tokens_per_second and round(asking.tokens_per_second, 1),
    }
    print(json.dumps(document))
    return Exit.OK


def _talk(args: argparse.Namespace, asking: _Asking, picture: str | None) -> int:
    if args.output == "json":
        raise UsageError("-o json answers one question: give it, or - for stdin")
    if sys.stdin.isatty():
        import readline  # noqa: F401 - gives input() a history and its keys

        tell(_COMMANDS)
    beginning = [*asking.messages]
    while True:
        try:
            text = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            if sys.stdin.isatty():
                print()
            return Exit.OK
        if text.strip() == _RESET:
            asking.messages = [*beginning]
        elif _LIKE_A_COMMAND.fullmatch(text.strip()):
            tell(_COMMANDS)
        elif text.strip():
            before = [*asking.messages]
            asking.say(text, picture)
            try:
                _print(asking)
            except KeyboardInterrupt:
                print()
            except ReconcilerError as error:  # it may be back for the next question
                if not sys.stdin.isatty():
                    raise
                asking.messages = before
                tell(printable(str(error)))
                continue
            picture = None


def _compare(
    args: argparse.Namespace, client: ServiceClient, model: str, texts: Sequence[str]
) -> int:
    if not texts:
        raise UsageError(f"{args.name} serves embeddings: give it texts")
    answer = client.ask(EMBEDDINGS.path, {"model": model, "input": [*texts]})
    vectors = [row.get("embedding") or [] for row in _rows(answer, "data")]
    if args.output == "json":
        print(json.dumps({"formatVersion": 1, "model": model, "embeddings": vectors}))
        return Exit.OK
    for text, vector in zip(texts, vectors, strict=False):
        nearness = f"  {_cosine(vectors[0], vector):.3f}" if len(vectors) > 1 else ""
        print(f"{len(vector)} dimensions{nearness}  {printable(text)}")
    return Exit.OK


def _sort(args: argparse.Namespace, client: ServiceClient, model: str, texts: Sequence[str]) -> int:
    if len(texts) < 2:
        raise UsageError(f"{args.name} reranks: give it a question, then the texts to be sorted")
    question, *documents = texts
    body = {"model": model, "query": question, "documents": documents}
    rows = _rows(client.ask(RERANK.path, body), "results")
    scores = sorted(((float(r["relevance_score"]), int(r["index"])) for r in rows), reverse=True)
    if args.output == "json":
        ranked = [{"text": documents[index], "score": score} for score, index in scores]
        print(json.dumps({"formatVersion": 1, "model": model, "results": ranked}))
        return Exit.OK
    for score, index in scores:
        print(f"{score:8.3f}  {printable(documents[index])}")
    return Exit.OK


def _rows(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows = answer.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    length = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=False)) / length if length else 0.0


def _shown(text: str) -> str:
    """A piece of an answer: its lines and tabs are kept, its other control characters shown."""
    return "".join(_plain(part) for part in _cut(text))


def _cut(text: str) -> Iterable[str]:
    return text.replace("\r\n", "\n").splitlines(keepends=True) or [text]


def _plain(line: str) -> str:
    body = line.removesuffix("\n")
    return "\t".join(printable(part) for part in body.split("\t")) + line[len(body) :]


def _tell_speed(asking: _Asking) -> None:
    if asking.first_s is None:
        tell("the answer is empty")
        return
    rate = asking.tokens_per_second
    tell(f"first token after {asking.first_s:.2f} s" + (f", {rate:.1f} tokens/s" if rate else ""))
