"""What an engine answers by OpenAI's API, as it comes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reconciler.api.plain_json import parse_json


def events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The events of a streamed answer, each as soon as its line is here. Raises ValueError: it is
    no JSON, or says that something failed."""
    for line in lines:
        text = line.strip()
        if not text.startswith(b"data:") or text.endswith(b"[DONE]"):
            continue
        event = parse_json(text.removeprefix(b"data:"))
        if not isinstance(event, dict):
            continue
        if error := event.get("error"):
            raise ValueError(_message(error))
        yield event


def piece(event: dict[str, Any]) -> str:
    """The text that an event brings; empty where it brings none."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return ""
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
    return text if isinstance(text, str) else ""


def refusal(body: bytes) -> str:
    """What an error says, or the beginning of any other answer."""
    try:
        answer = parse_json(body)
    except ValueError:
        answer = None
    error = answer.get("error") if isinstance(answer, dict) else None
    return _message(error) if error else " ".join(body.decode(errors="replace").split())


def _message(error: object) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)
