"""What an idle agent has loaded: each of these is memory that it would keep for nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

# what would load it
NOT_LOADED = {
    "git": "reconcile deploy --commit",
    "gguf": "fleet-agent doctor",
    "huggingface_hub": "a download, which has a process of its own",
    "jsonschema": "FLEET_VALIDATOR=reference",
    "kubernetes": "the credentials of a cluster, in a process of its own",
    "numpy": "fleet-agent doctor",
    "oras": "a download, which has a process of its own",
    "prometheus_client": "the first scrape",
    "pynvml": "an NVIDIA driver",
    "ruamel": "a problem in a document, to say its line",
}


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """Every package after the imports of `fleet-agent run`."""
    code = "import sys, agent.daemon.daemon, agent.server.serving; print(*sys.modules)"
    argv = [sys.executable, "-c", code]
    names = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("package", NOT_LOADED)
def test_an_agent_that_begins_does_not_load(package: str, loaded: set[str]) -> None:
    assert package not in loaded, f"only for {NOT_LOADED[package]}"


def test_an_embedded_engine_loads_nothing_of_ours_that_is_large() -> None:
    code = "import sys, agent.embedded; print(*sys.modules)"
    argv = [sys.executable, "-c", code]
    names = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()

    assert "pydantic" not in names
    assert {n for n in names if n.startswith("reconciler.")} <= {
        "reconciler.api",
        "reconciler.api.plain_json",
    }


def test_the_agent_serves_with_uvicorn(loaded: set[str]) -> None:
    assert {"uvicorn", "starlette", "pydantic"} <= loaded
