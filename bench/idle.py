"""What a loop costs that has nothing to do: `python -m bench.idle`.

Five tiny services that are ready, on the embedded engine; of our own process, not the models'.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.table import RECONCILE, Row, commit_all, show
from tests.support.fleets import model, node, service, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.wait import wait_for

SERVICES = 5
WATCHED_S = 30.0
CPU_BUDGET, RSS_BUDGET = 0.5, 80.0  # % of a core, MiB
NAMES = [f"tiny-{n}" for n in range(SERVICES)]


def rows() -> Iterator[Row]:
    for words in (["--watch", "--local=here"], ["--local=here"]):
        with tempfile.TemporaryDirectory() as folder, _running(Path(folder), words) as process:
            before, begin = process.cpu_times(), time.monotonic()
            time.sleep(WATCHED_S)
            after, took_s = process.cpu_times(), time.monotonic() - begin
            busy_s = after.user + after.system - before.user - before.system
            rss = process.memory_info().rss / 2**20
        what = f"idle reconcile {words[0]}"
        how = f"{SERVICES} services ready, over {WATCHED_S:.0f} s"
        yield Row(f"{what}: CPU of a core", "%", [100 * busy_s / took_s], how, CPU_BUDGET)
        yield Row(f"{what}: memory", "MiB", [rss], "resident set size", RSS_BUDGET)


@contextmanager
def _running(folder: Path, words: list[str]) -> Iterator[psutil.Process]:
    """The loop over a small git repository, once every service is ready."""
    fleet, said = folder / "fleet", folder / "said"
    _write(fleet)
    argv = (*RECONCILE, "-C", str(fleet), *words, "--state-dir", str(folder / "state"))
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONUNBUFFERED": "1"}
    with said.open("wb") as out:
        process = subprocess.Popen((*argv, "--stop-on-exit"), env=env, stdout=out, stderr=out)
    try:
        wait_for(lambda: _all_ready(said, process), timeout_s=120)
        time.sleep(5)  # what comes after the start: the first polls, the settling of models
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _write(fleet: Path) -> None:
    services = {f"{name}.yaml": service(name, "tiny", contextSize=512) for name in NAMES}
    write_fleet(
        fleet,
        {"node.yaml": node("here"), "tiny.yaml": model("tiny", source="tiny.gguf")} | services,
    )
    tiny_llama(fleet / "tiny.gguf")
    commit_all(fleet, "a small fleet")


def _all_ready(said: Path, process: subprocess.Popen[bytes]) -> bool:
    text = said.read_text(errors="replace")
    if process.poll() is not None:
        sys.exit(f"reconcile ended with {process.returncode}:\n{text}")
    return all(f"{name}  ready" in text for name in NAMES)


if __name__ == "__main__":
    show(rows())
