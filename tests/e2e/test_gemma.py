"""A real model, from a Python package, asked a real question."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.client import complete
from tests.support.fleets import model
from tests.support.real_models import GEMMA, link_model
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import PATIENCE_S

pytestmark = pytest.mark.e2e


def test_a_pushed_gemma_answers_a_question_token_by_token(machine: Machine, fleet: Fleet) -> None:
    """Its bytes came through `pypi://` when this machine ran these tests first, and are kept."""
    link_model(GEMMA, machine.state / "models")
    fleet.repo.write(
        "models/gemma-270m.yaml", model("gemma-270m", source=GEMMA.source, sha256=GEMMA.sha256)
    )
    fleet.push_service("chat", "gemma-270m", contextSize=2048)
    running = machine.start("-C", fleet.url, "--local")

    chat = machine.wait_ready("chat")

    assert chat.endpoint
    question = "Question: What is the capital of France?\nAnswer:"
    assert "Paris" in complete(chat.endpoint, "gemma-270m", question, tokens=8)
    tokens = list(_stream(chat.endpoint, "Say something about rivers."))
    assert len(tokens) > 3
    assert "download" not in running.out
    # The estimate is what the planner counted with: the process stays below it.
    assert chat.needs
    assert chat.needs[0].bytes < 2**30


def _stream(endpoint: str, question: str) -> Iterator[str]:
    """The pieces of a chat answer as they come."""
    body = {
        "model": "gemma-270m",
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 12,
        "stream": True,
    }
    request = urllib.request.Request(
        f"{endpoint}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        for line in answer:
            word = line.decode().strip().removeprefix("data: ")
            if word and word != "[DONE]":
                delta = json.loads(word)["choices"][0]["delta"]
                if delta.get("content"):
                    yield delta["content"]
