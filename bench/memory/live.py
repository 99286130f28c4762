"""What a real server takes at its peak, beside the estimate: `python -m bench.memory.live`.

Each row is a server as the agent starts it, whose whole context one prompt fills (or one text to
embed), and VmHWM of its process after that. Models: Gemma 3 270M, and files named as arguments.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.gguf.header import read_path
from reconciler.memory import MemoryEstimate, estimate
from reconciler.runtimes.llama_server import memory_settings
from reconciler.runtimes.runtime import NodeFacts
from tests.support.engines import Server, render, service, workload
from tests.support.llama_server import llama_server
from tests.support.ports import own_port

MIB = 2**20
_OPTIONS = ("embeddings", "pooling", "loadMode", "repack", "swaFull")  # of runtimeOptions
SPECS: tuple[dict[str, Any], ...] = (
    {"contextSize": 2048},
    {"contextSize": 8192},
    {"contextSize": 8192, "parallelSlots": 4},
    {"contextSize": 8192, "cacheTypeK": "q8_0", "cacheTypeV": "q8_0"},
    {"contextSize": 8192, "uBatchSize": 2048},
    {"contextSize": 2048, "parallelSlots": 8, "uBatchSize": 128},
    {"contextSize": 4096, "flashAttention": False},
    {"contextSize": 8192, "swaFull": True},
    {"contextSize": 4096, "cacheTypeK": "f32", "cacheTypeV": "f32"},
    {"contextSize": 2048, "loadMode": "mlock"},
    {"contextSize": 2048, "loadMode": "mmap+mlock"},
    {"contextSize": 2048, "loadMode": "none"},
    {"contextSize": 2048, "loadMode": "dio"},
    {"contextSize": 2048, "repack": False},
    {"contextSize": 2048, "extraArgs": ["--context-shift"]},
    {"contextSize": 512, "batchSize": 512, "embeddings": True},
    {"contextSize": 2048, "uBatchSize": 2048, "embeddings": True},
)


@dataclass(frozen=True, slots=True)
class Peak:
    """One server: what it took, and what was said, in MiB."""

    model: str
    settings: str
    taken: float
    said: MemoryEstimate

    @property
    def error(self) -> float:
        return self.said.total_bytes / MIB / self.taken - 1


def peak(model: Path, spec: dict[str, Any]) -> Peak:
    """Start a server, fill its context, and read its peak."""
    options = {name: value for name, value in spec.items() if name in _OPTIONS}
    fields = {name: value for name, value in spec.items() if name not in _OPTIONS}
    wanted = service(promptCache="0", runtimeOptions=options, **fields)
    port = own_port()
    node = NodeFacts(
        binary=(str(llama_server()),),
        port=str(port),
        threads=str(os.cpu_count()),
        model_paths={"tiny": str(model)},
    )
    made = workload(wanted)
    told = memory_settings(made, made.models[0])
    said = estimate(read_path(model), told)
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(render(wanted, node), port, Path(folder)) as server,
    ):
        server.wait_ready()
        _fill(port, told.context, told.embeddings)
        status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    settings = ", ".join(f"{name} {value}" for name, value in spec.items())
    return Peak(model.name, settings, int(found[1]) / 1024, said)


def _fill(port: int, context: int, embeddings: bool) -> None:
    tokens = [100 + i % 400 for i in range(context - 8)]
    path, body = "completion", {"prompt": tokens, "n_predict": 1}
    if embeddings:
        path, body = "embedding", {"content": tokens}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=1800) as answer:
        answer.read()


def rows(models: tuple[Path, ...]) -> Iterator[Peak]:
    for model in models:
        for spec in SPECS:
            yield peak(model, spec)


def show(peaks: Iterator[Peak]) -> None:
    print(f"{'model':<28} {'taken':>7} {'said':>7} {'':>7}  settings")
    for found in peaks:
        print(
            f"{found.model[:28]:<28} {found.taken:7.0f} {found.said.total_bytes / MIB:7.0f}"
            f" {found.error:+7.1%}  {found.settings}",
            flush=True,
        )


if __name__ == "__main__":
    from tests.support.real_models import GEMMA, model_path  # imports the agent

    show(rows((model_path(GEMMA), *map(Path, sys.argv[1:]))))
