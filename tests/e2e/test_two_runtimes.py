"""GGUF by llama.cpp and MLX by mlx_lm.server, on one machine at the same time."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.observation import Instance
from tests.support.fleets import model, node, service
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import llama_server
from tests.support.mlx_models import PROGRAM, tiny_mlx
from tests.support.pids import alive
from tests.support.reconciler import Fleet, Machine
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e


def _answered_by(instance: Instance, model_name: str) -> str:
    """The name that the answer to a chat bears."""
    body = {
        "model": model_name,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 2,
    }
    url = f"{instance.endpoint}/v1/chat/completions"
    with urllib.request.urlopen(
        urllib.request.Request(
            url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        ),
        timeout=PATIENCE_S,
    ) as answer:
        return str(json.load(answer)["model"])


def test_both_answer_by_their_models_name_and_each_is_stopped_alone(tmp_path: Path) -> None:
    gguf = tiny_llama(tmp_path / "tiny.gguf")
    mlx = tiny_mlx(tmp_path / "mlx")
    with Machine(tmp_path) as machine:
        fleet = Fleet.create(tmp_path, gguf, "gguf")
        fleet.repo.publish(
            {
                "models/tiny-mlx.yaml": model("tiny-mlx", source="models/mlx/", format="mlx"),
                "services/mlx.yaml": service("mlx", "tiny-mlx", runtime="mlx-lm"),
                **{f"models/mlx/{file.name}": file.read_bytes() for file in mlx.iterdir()},
            },
            "Serve MLX too",
        )
        machine.start(
            *("-C", fleet.url, "--local", "--llama-server", str(llama_server())),
        )

        by_llama, by_mlx = machine.wait_ready("gguf"), machine.wait_ready("mlx")
        assert (by_llama.runtime, by_mlx.runtime) == ("llama-server", "mlx-lm")
        assert _answered_by(by_llama, "tiny") == "tiny"
        assert _answered_by(by_mlx, "tiny-mlx") == "tiny-mlx"
        programs = {p.pid: p.cmdline() for p in machine.processes()}
        assert str(PROGRAM) in programs[by_mlx.pid or 0]

        fleet.push_removal("mlx")
        machine.wait_gone("mlx", by_mlx.pid)
        assert _answered_by(by_llama, "tiny") == "tiny"
        still = machine.instance("gguf")
        assert still is not None
        assert still.pid == by_llama.pid

        fleet.push_service("mlx", "tiny-mlx", runtime="mlx-lm")
        again = machine.wait_ready("mlx")
        fleet.push_removal("gguf")
        machine.wait_gone("gguf", by_llama.pid)
        assert _answered_by(again, "tiny-mlx") == "tiny-mlx"
        assert alive(again.pid or 0)


def _state(machine: Machine) -> tuple[Mapping[str, str], Mapping[str, Any]]:
    """What NodeState says: each ready service with its runtime, and why others may not run."""
    state = machine.node_state()
    ready = {i["name"]: i["runtime"] for i in state.get("instances", []) if i["ready"]}
    return ready, {b["ref"]["name"]: b for b in state.get("blocked", [])}


def test_the_services_runtime_comes_before_the_nodes_and_that_before_the_machines(
    machine: Machine, fleet: Fleet, tmp_path: Path
) -> None:
    mlx = tiny_mlx(tmp_path / "mlx")
    fleet.repo.publish(
        {
            "models/tiny-mlx.yaml": model("tiny-mlx", source="models/mlx/", format="mlx"),
            **{f"models/mlx/{file.name}": file.read_bytes() for file in mlx.iterdir()},
            "services/plain.yaml": service("plain", "tiny-mlx"),
            "services/stated.yaml": service("stated", "tiny", runtime="llamacpp"),
            "services/absent.yaml": service("absent", "tiny-mlx", runtime="mlx-server"),
        }
    )

    machine.daemon("--fleet", fleet.url, "--node", "here", "--runtime", "mlx-lm")

    both = {"default/plain": "mlx-lm", "default/stated": "llama-server"}
    wait_for(lambda: _state(machine)[0] == both, "each by its runtime")
    lacking = _state(machine)[1]["absent"]
    assert lacking["reason"] == "EngineMissing"
    assert "mlx-server is not on PATH" in lacking["message"]
    stated = machine.wait_ready("stated")

    capable = {"runtimes": ["llama-server", "mlx-lm"], "defaultRuntime": "llama-server"}
    fleet.repo.publish(
        {
            "nodes/here.yaml": node("here", hardware={"memory": "16Gi"}, **capable),
            "services/plain.yaml": service("plain", "tiny"),
            "services/own.yaml": service("own", "tiny-mlx", runtime="mlx-lm"),
        }
    )

    now = dict.fromkeys(("default/plain", "default/stated"), "llama-server")
    wait_for(
        lambda: _state(machine)[0] == {**now, "default/own": "mlx-lm"},
        "the node's default before the machine's",
    )
    wait_for(lambda: _state(machine)[1]["absent"]["reason"] == "NodeCapability")
    assert machine.wait_ready("stated").pid == stated.pid
