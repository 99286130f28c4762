"""`fleet-agent bench` of engines that time nothing, and of several models behind a router."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fleets import model, service
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import llama_server
from tests.support.mlx_models import tiny_mlx
from tests.support.reconciler import Fleet, Machine

pytestmark = pytest.mark.e2e

_ANY_NOISE = ("--max-variation", "1000")
_QUICK = {"warmupIterations": 1, "iterations": 2, "minDuration": "20s"}


def test_mlx_is_timed_from_outside_and_a_router_by_its_loaded_models(tmp_path: Path) -> None:
    mlx = tiny_mlx(tmp_path / "mlx")
    with Machine(tmp_path) as machine:
        fleet = Fleet.create(tmp_path, tiny_llama(tmp_path / "tiny.gguf"))
        fleet.repo.publish(
            {
                "models/tiny-mlx.yaml": model("tiny-mlx", source="models/mlx/", format="mlx"),
                "services/mlx.yaml": service("mlx", "tiny-mlx", runtime="mlx-lm", benchmark=_QUICK),
                "services/routed.yaml": service(
                    "routed",
                    None,
                    models=[{"name": "tiny", "preload": True}],
                    runtime="llamacpp-router",
                    benchmark=_QUICK,
                ),
                **{f"models/mlx/{file.name}": file.read_bytes() for file in mlx.iterdir()},
            },
            "Serve both",
        )
        machine.start("-C", fleet.url, "--local", "--llama-server", str(llama_server()))
        machine.wait_ready("mlx")
        machine.wait_instance(
            "routed", lambda i: i.ready and any(m.state == "loaded" for m in i.served)
        )

        measured = machine.agent("bench", "-o", "json", *_ANY_NOISE)

    assert measured.err == ""
    assert measured.code == 0, measured.out
    by_mlx, by_router = measured.json()
    assert (by_mlx["service"], by_mlx["timings"]) == ("default/mlx", "clock")
    assert by_mlx["key"]["runtime"] == "mlx-lm"
    assert len(by_mlx["generation"]["samples"]) == 2
    assert (by_router["service"], by_router["timings"]) == ("default/routed", "engine")
    assert by_router["model"] == "tiny"
    assert "loadSeconds" not in by_router, "its models come and go"
