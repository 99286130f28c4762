"""A model that guesses for another is fetched beside it, and a real llama-server loads both."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.core.observation import Instance
from tests.support.fleets import model, service
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import llama_server
from tests.support.reconciler import Fleet, Machine

pytestmark = pytest.mark.e2e

GUESSES = {"type": "draft-simple", "draftModelRef": "small"}


def test_a_model_is_served_with_the_one_that_guesses_for_it_until_no_one_does(
    machine: Machine, fleet: Fleet
) -> None:
    small = tiny_llama(fleet.repo.work / "small.gguf", layers=1).read_bytes()
    fleet.repo.publish(
        {
            "models/small.gguf": small,
            "models/small.yaml": model("small", source="models/small.gguf"),
            "models/tiny.yaml": model("tiny", source="models/tiny.gguf"),
            "templates/a.jinja": "{% for m in messages %}{{ m.content }}{% endfor %}",
            "services/chat.yaml": service(
                "chat", "tiny", speculativeDecoding=GUESSES, chatTemplate="templates/a.jinja"
            ),
            "services/many.yaml": service(
                "many",
                None,
                runtime="llamacpp-router",
                models=[{"name": "tiny", "speculativeDecoding": GUESSES}],
            ),
        }
    )
    machine.start("-C", fleet.url, "--local", "--llama-server", str(llama_server()))
    first, _ = machine.wait_ready("chat"), machine.wait_ready("many")

    assert _guesses(machine, first) == small
    fleet.repo.publish({"services/chat.yaml": service("chat", "tiny")})
    second = machine.wait_ready("chat", not_pid=first.pid)
    assert _guesses(machine, second) is None


def _guesses(machine: Machine, instance: Instance) -> bytes | None:
    """The file of what guesses, as the process was given it."""
    (process,) = [p for p in machine.processes() if p.pid == instance.pid]
    argv = process.cmdline()
    if "--spec-draft-model" not in argv:
        return None
    return Path(argv[argv.index("--spec-draft-model") + 1]).read_bytes()
