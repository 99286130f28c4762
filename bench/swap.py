"""How long a request waits for its model behind a router: `python -m bench.swap`.

Two random models of the same size, one place in memory: a model that is loaded, one that must take
the other's place with its file mapped (`loadMode: mmap`), and one whose file is read (`none`). The
files are in the page cache, as they are after their first use; a disk adds its own time.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from bench.table import Row, show
from reconciler.runtimes.runtime import NodeFacts
from tests.support.engines import render, service
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import found_llama_server
from tests.support.ports import own_port
from tests.support.wait import wait_for

ROUNDS = 6
TOKENS = 2
DEADLINE_S = 120.0


def rows() -> Iterator[Row]:
    program = found_llama_server()
    if program is None:
        return  # building one takes longer than all the benchmarks
    with tempfile.TemporaryDirectory() as folder:
        for layers, width in ((2, 64), (8, 1280)):
            files = {
                name: tiny_llama(
                    Path(folder) / f"{name}-{width}.gguf",
                    seed=seed,
                    layers=layers,
                    embedding=width,
                    feed_forward=4 * width,
                )
                for seed, name in enumerate("ab")
            }
            yield from _measured(program, files, Path(folder))


def _measured(program: Path, files: dict[str, Path], folder: Path) -> Iterator[Row]:
    what = f"router, models of {files['a'].stat().st_size / 2**20:.1f} MiB"
    for mode in ("mmap", "none"):
        with _router(program, files, folder, mode) as port:
            _ask(port, "a")
            if mode == "mmap":
                warm = [_ask(port, "a") for _ in range(ROUNDS)]
                yield Row(f"{what}: already loaded", "ms", warm, f"{TOKENS} tokens")
            swaps = [_ask(port, name) for _ in range(ROUNDS // 2) for name in "ba"]
            yield Row(f"{what}: swap, {mode}", "ms", swaps, f"{TOKENS} tokens, page cache warm")


@contextlib.contextmanager
def _router(program: Path, files: dict[str, Path], folder: Path, mode: str) -> Iterator[int]:
    """What the agent would start, with room for one model."""
    port = own_port()
    wanted = service(
        runtime="llamacpp-router",
        models=[{"name": name} for name in files],
        router={"resident": 1},
        contextSize=512,
        runtimeOptions={"loadMode": mode},
    )
    node = NodeFacts(
        binary=(str(program),),
        port=str(port),
        threads=str(os.cpu_count()),
        directory=str(folder),
        model_paths={name: str(path) for name, path in files.items()},
    )
    command = render(wanted, node)
    for name, text in command.files.items():
        (folder / name).write_text(text)
    env = {"PATH": os.environ["PATH"], **command.env}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command.argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_for(lambda: _listens(port), timeout_s=DEADLINE_S)
        yield port
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except OSError:
        return False


def _ask(port: int, model: str) -> float:
    """Milliseconds until a short answer of that model is there."""
    body = {"model": model, "prompt": "w1", "n_predict": TOKENS, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    begin = time.perf_counter()
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        json.load(answer)
    return (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    show(rows())
