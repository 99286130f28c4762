"""`reconcile ask`: from what a service is called to its answer, as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gguf_models import tiny_llama
from tests.support.reconciler import Finished, Fleet, Machine

pytestmark = pytest.mark.e2e


def answers(done: Finished) -> int:
    """How many ended: a model of random weights may end its answer before it has begun."""
    return sum(done.err.count(line) for line in ("first token after", "the answer is empty"))


def test_a_service_is_asked_by_what_it_speaks(tmp_path: Path) -> None:
    fleet = Fleet.create(tmp_path / "git", tiny_llama(tmp_path / "tiny.gguf"), "chat")
    fleet.push_service("vectors", runtimeOptions={"embeddings": True, "pooling": "mean"})
    fleet.push_service("sorter", runtimeOptions={"reranking": True})
    with Machine(tmp_path) as machine:
        early = machine.reconcile("ask", "chat", "Hello", "-C", fleet.url, "--local")
        applied = machine.reconcile("apply", "-C", fleet.url, "--local")
        here = ("-C", fleet.url, "--local")
        plain = machine.reconcile("ask", "chat", "Hello", "--max-tokens=3", "there", *here)
        told = machine.reconcile("ask", "tiny", "Hello", "--max-tokens=3", "-o", "json", *here)
        talked = machine.reconcile(
            *("ask", "chat", "--max-tokens=2", *here),
            prefix=("sh", "-c", 'printf "One\\n/reset\\n/help\\nTwo\\n" | "$@"', "sh"),
        )
        near = machine.reconcile("ask", "vectors", "a cat", "a cat", "a\x1bdog", *here)
        ranked = machine.reconcile("ask", "sorter", "a cat", "a dog", "a cat", *here)
        lonely = machine.reconcile("ask", "sorter", "a cat", *here)
        wrong = machine.reconcile("ask", "chatt", "Hello", *here)
        blind = machine.reconcile("ask", "chat", "Hello", "--image", "/dev/null", *here)

    assert (early.code, applied.code) == (3, 0)
    assert "default/chat does not run" in early.err
    assert plain.code == 0
    assert plain.out.endswith("\n")
    assert answers(plain) == 1
    assert told.json().keys() >= {"service", "model", "text", "tokensPerSecond"}
    assert (talked.code, answers(talked)) == (0, 2)
    assert "/reset begins anew; Ctrl-C stops an answer" in talked.err
    assert near.code == 0, near.err
    assert near.out.splitlines()[1].split()[1:3] == ["dimensions", "1.000"]
    assert "a\\x1bdog" in near.out
    assert ranked.code == 0, ranked.err
    assert sorted(line.split(maxsplit=1)[1] for line in ranked.out.splitlines()) == [
        "a cat",
        "a dog",
    ]
    assert (lonely.code, "give it a question, then the texts" in lonely.err) == (64, True)
    assert (wrong.code, 'did you mean "default/chat"' in wrong.err) == (64, True)
    assert (blind.code, "is no PNG" in blind.err) == (64, True)
