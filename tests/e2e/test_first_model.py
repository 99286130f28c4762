"""What a newcomer asks first: the model of the demo and the pages, by the client that people own.

TALK_ASKS=20 python -m pytest tests/e2e/test_first_model.py     # as the question was chosen
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.demo import QUESTION
from tests.support.fleets import model
from tests.support.llama_server import llama_server
from tests.support.real_models import SMOLLM2, link_model
from tests.support.reconciler import Fleet, Machine

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.e2e
ASKS = int(os.environ.get("TALK_ASKS", "3"))


@pytest.mark.parametrize("engine", ["embedded", "llama-server"])
def test_the_first_model_answers_the_client_that_is_given_the_address_of_the_status(
    engine: str, machine: Machine, fleet: Fleet
) -> None:
    import openai  # a second, which every worker that finds this test would pay

    link_model(SMOLLM2, machine.state / "models")
    declared = model(SMOLLM2.name, source=SMOLLM2.source, sha256=SMOLLM2.sha256)
    fleet.repo.write("models/first.yaml", declared)
    fleet.push_service("chat", SMOLLM2.name, contextSize=2048)
    words = ("--llama-server", str(llama_server())) if engine == "llama-server" else ()
    running = machine.start("-C", fleet.url, "--local", *words, env={"PATH": os.defpath})
    machine.wait_ready("chat")

    (url,) = re.findall(r"base_url (\S+) for chat, completions", machine.agent("status").out)
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        answers = [_answer(client) for _ in range(ASKS)]

    assert [answer for answer in answers if "Paris" not in answer] == []
    assert "has no chat template" not in running.err


def _answer(client: openai.OpenAI) -> str:
    """At the temperature that a client gets which states none."""
    said = client.chat.completions.create(
        model=SMOLLM2.name, messages=[{"role": "user", "content": QUESTION}], max_tokens=32
    )
    return said.choices[0].message.content or ""
