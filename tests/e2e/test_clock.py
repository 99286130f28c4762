"""The machine's clock jumps. No test can set that of the real commands, so this one wires the owner
of the processes by itself, with a clock that it can move, around a real engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.engines.engine import find_engine
from agent.process.admission import ADMITS_ALL
from agent.process.launch import Launch
from agent.process.owner import Processes
from agent.state.directory import StateDir
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from tests.support import engines
from tests.support.client import complete
from tests.support.owner import QUICK, MovedClock, wait_ready
from tests.support.owner import service as ref_of
from tests.support.ports import own_port
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def owner(tmp_path: Path, clock: MovedClock) -> Iterator[Processes]:
    processes = Processes(StateDir.open(tmp_path / "state"), ADMITS_ALL, clock=clock, timing=QUICK)
    processes.start()
    yield processes
    processes.close(stop_children=True)


def _launch(model: Path, folder: Path) -> Launch:
    wanted = engines.service("chat", contextSize=512)
    workload = engines.workload(wanted)
    port = own_port()
    facts = NodeFacts(
        binary=find_engine(RUNTIMES["llama-server"], {}).argv_prefix,
        port=str(port),
        host="127.0.0.1",
        threads="1",
        directory=str(folder),
        model_paths={"tiny": str(model)},
    )
    command = RUNTIMES["llama-server"].command(workload, facts)
    return Launch(
        ref=ref_of("chat"),
        command=command,
        inputs=workload.inputs,
        inputs_digest=workload.inputs_digest,
        render_digest=command.digest,
        runtime=workload.runtime,
        port=port,
        models=("tiny",),
        drain_timeout_s=5.0,
    )


@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0], ids=["a-day-on", "a-day-back"])
def test_the_clock_jumps_and_nothing_restarts(
    owner: Processes, clock: MovedClock, tiny: Path, tmp_path: Path, jump_s: float
) -> None:
    launch = _launch(tiny, tmp_path)
    owner.run(launch)
    before = wait_ready(owner, "chat")
    heard = len(owner.notices())

    clock.slept_s += jump_s
    owner.update(launch)  # wakes the owner, as anything would
    until = time.monotonic() + 3 * QUICK.probe_ready_s
    wait_for(lambda: time.monotonic() > until)  # three rounds of questions

    after = wait_ready(owner, "chat")
    assert (after.pid, after.failures) == (before.pid, 0)
    assert len(owner.notices()) == heard
    assert complete(f"http://127.0.0.1:{launch.port}")
