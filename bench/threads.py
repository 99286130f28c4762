"""Six tiny llama-servers that answer at once on all cores: `python -m bench.threads`.

With our settings (as many threads as performance cores, which sleep while they wait), with one
thread each, and with llama.cpp's own settings, whose waiting threads keep the cores busy.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agent.engines.engine import EngineFound, find_engine
from agent.machine.probe import performance_cores
from bench.table import Row, show
from reconciler.fleet.command import Command
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from tests.support.engines import service, workload
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import found_llama_server
from tests.support.ports import own_port
from tests.support.wait import wait_for

SERVERS = 6
ROUNDS = 5
TOKENS = 64
DEADLINE_S = 180.0


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to set threads. `words` and `env` go after, and over, what a service renders."""

    name: str
    threads: int | None  # None: no -t, llama.cpp decides
    passive: bool  # waiting threads sleep


VARIANTS = (
    Variant("ours", performance_cores(), passive=True),
    Variant("one thread each", 1, passive=True),
    Variant("llama.cpp's own", None, passive=False),
)


def rows() -> Iterator[Row]:
    """The default settings come last and get fewer rounds: they can take half a minute."""
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_llama(Path(folder) / "tiny.gguf", layers=4, embedding=256, feed_forward=512)
        for engine in _engines():
            for variant in VARIANTS:
                yield from _measured(engine, variant, Path(folder), model)


def _engines() -> Iterator[EngineFound]:
    given = found_llama_server()
    row = RUNTIMES["llama-server"]
    if given is not None:
        yield find_engine(row, {"llama-server": str(given)})
    yield find_engine(row, path=os.devnull)


def _measured(engine: EngineFound, variant: Variant, folder: Path, model: Path) -> Iterator[Row]:
    threads = "default" if variant.threads is None else variant.threads
    how = (
        f"{engine.kind} engine, -t {threads}, {'passive' if variant.passive else 'active'} waiting"
    )
    what = f"{SERVERS} servers, {variant.name}"
    with contextlib.ExitStack() as stack:
        ports = [own_port() for _ in range(SERVERS)]
        begin = time.perf_counter()
        for port in ports:
            stack.enter_context(_server(engine, variant, folder, model, port))
        for port in ports:
            wait_for(partial(_is_healthy, port), timeout_s=DEADLINE_S)
        started_s = time.perf_counter() - begin
        yield Row(f"{what}: start to all healthy", "s", [started_s], how)
        times = [_all_answer(ports) for _ in range(ROUNDS if variant.passive else 2)]
    yield Row(f"{what}: {SERVERS} answers of {TOKENS} tokens at once", "s", times, how)


@contextlib.contextmanager
def _server(
    engine: EngineFound, variant: Variant, folder: Path, model: Path, port: int
) -> Iterator[None]:
    command = _command(engine, variant, folder, model, port)
    env = {"PATH": os.environ["PATH"], **command.env}
    with (folder / f"log-{port}").open("wb") as log:
        process = subprocess.Popen(
            command.argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _command(
    engine: EngineFound, variant: Variant, folder: Path, model: Path, port: int
) -> Command:
    """What the agent would start, but for the threads of the variant."""
    node = NodeFacts(
        binary=engine.argv_prefix,
        port=str(port),
        threads=str(variant.threads),
        directory=str(folder),
        model_paths={"tiny": str(model)},
    )
    command = RUNTIMES["llama-server"].command(workload(service(contextSize=512)), node)
    argv, env = list(command.argv), dict(command.env)
    if variant.threads is None:
        for flag in ("--threads", "--threads-batch"):
            at = argv.index(flag)
            del argv[at : at + 2]
    if not variant.passive:
        del env["OMP_WAIT_POLICY"]
    return Command(tuple(argv), env)


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _all_answer(ports: list[int]) -> float:
    """Seconds until the last of the simultaneous answers is there."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(ports)) as pool:
        list(pool.map(_complete, ports))
    return time.perf_counter() - begin


def _complete(port: int) -> None:
    wanted = {"prompt": "Once", "n_predict": TOKENS, "ignore_eos": True, "cache_prompt": False}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion", json.dumps(wanted).encode()
    )
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        assert json.load(answer)["tokens_predicted"] == TOKENS


if __name__ == "__main__":
    show(rows())
