"""What every end-to-end test begins with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gguf_models import tiny_llama
from tests.support.reconciler import Fleet, Machine


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 230 KB that llama.cpp loads in 0.05 s and that says nonsense."""
    return tiny_llama(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine of its own; whatever is started on it ends with the test."""
    root = tmp_path / "machine"
    root.mkdir()
    with Machine(root) as made:
        yield made


@pytest.fixture
def fleet(tmp_path: Path, tiny: Path) -> Fleet:
    """A pushed fleet with one node, `here`, and the model `tiny`; no service yet."""
    return Fleet.create(tmp_path / "git", tiny)


@pytest.fixture
def other_engine(tmp_path: Path) -> Path:
    """A llama-server under another path than the usual engine, as after an upgrade."""
    program = tmp_path / "other" / "llama-server"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m agent.embedded "$@"\n')
    program.chmod(0o755)
    return program
