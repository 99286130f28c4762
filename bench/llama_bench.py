"""Our benchmark beside llama.cpp's own: `python -m bench.llama_bench`, on an idle machine.

The same build, model, threads and settings: `fleet-agent bench` asks a llama-server, llama-bench
calls the library. Rounds of both in turns, so that neighbours slow both alike, and the best of
each. llama-bench writes at a depth of 128 tokens, where an answer to a prompt of 128 begins; the
server also samples each token from the whole vocabulary, which llama-bench does not.

Minutes, and Gemma 3 270M (241 MiB, fetched once): not part of `make bench`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from statistics import median

from agent.bench.client import ask_by_engine
from agent.process.health import EngineAddress
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from tests.support.engines import Server, render, service
from tests.support.llama_server import llama_server
from tests.support.ports import own_port
from tests.support.real_models import GEMMA, model_path

ROUNDS = 5
THREADS = "1"
# What the program llama-bench does, out of the library that has it: the build for tests keeps no
# other programs than it needs.
_CALL = """
import ctypes, sys
words = [b"llama-bench", *(word.encode() for word in sys.argv[2:])]
library = ctypes.CDLL(sys.argv[1])
run = library._Z11llama_benchiPPc
sys.exit(run(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None)))
"""
_SETTINGS = ("-t", THREADS, "-b", "2048", "-ub", "512", "-ctk", "f16", "-ctv", "f16", "-ngl", "0")
_ONCE = ("-r", "1", "-o", "json")


def main() -> None:
    model, program = model_path(GEMMA), llama_server()
    timings = RUNTIMES["llama-server"].timings
    assert timings is not None
    ours: dict[str, list[float]] = {"read": [], "write": []}
    its: dict[str, list[float]] = {"read": [], "write": []}
    with tempfile.TemporaryDirectory() as folder:
        port = own_port()
        facts = NodeFacts(
            binary=(str(program),),
            port=str(port),
            threads=THREADS,
            directory=folder,
            model_paths={"tiny": str(model)},
        )
        command = render(service(contextSize=2048, gpuLayers=0), facts)
        with Server(command, port, Path(folder)) as server:
            server.wait_ready()
            answers = ask_by_engine(EngineAddress("127.0.0.1", port), timings, "tiny")
            next(answers)
            for _ in range(ROUNDS):
                (run,) = islice(answers, 1)
                ours["read"].append(run.prompt / run.prompt_s)
                ours["write"].append(run.generated / run.generation_s)
                its["read"].append(_llama_bench(program, model, "-p", "128", "-n", "0"))
                its["write"].append(
                    _llama_bench(program, model, "-p", "0", "-n", "128", "-d", "128")
                )
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    print(f"load {load:.1f} on {cores} cores{'; not idle' if load > cores / 2 else ''}")
    for what in ("read", "write"):
        best, its_best = max(ours[what]), max(its[what])
        middles = f"medians {median(ours[what]):.1f}, {median(its[what]):.1f}"
        print(
            f"{what:<6} ours {best:8.1f}  llama-bench {its_best:8.1f} tokens/s"
            f"  {best / its_best - 1:+.1%}  ({middles})"
        )


def _llama_bench(program: Path, model: Path, *words: str) -> float:
    """Tokens a second of one run, after its own warm-up."""
    library = program.parent / "libllama-bench-impl.so"
    done = subprocess.run(
        (sys.executable, "-c", _CALL, library, *("-m", model), *_SETTINGS, *words, *_ONCE),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        check=True,
    )
    return float(json.loads(done.stdout)[0]["avg_ts"])


if __name__ == "__main__":
    main()
