"""What tests of the agent share: launches, a clock that can be moved, an owner, and waiting."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.process.admission import ADMITS_ALL
from agent.process.events import ProcessTiming
from agent.process.launch import Launch, ProcessSnapshot
from agent.process.owner import Processes
from agent.process.records import Records
from agent.state.directory import StateDir
from reconciler.api.digest import digest
from reconciler.api.meta import ObjectRef
from reconciler.fleet.command import Command, Probe
from tests.support import servers
from tests.support.wait import PATIENCE_S

HOUR_S = 3600.0  # never, for a test: what waits so long waits for something else
BACKOFF_S = 100.0  # a clock that is moved passes it, and nobody misses what is shown meanwhile
LONGEST_BACKOFF_S = 30 * BACKOFF_S
QUICK = ProcessTiming(
    probe_ready_s=0.2,
    probe_missed_s=0.05,
    terminate_s=0.5,
    slots_s=0.05,
    backoff_first_s=BACKOFF_S,
    backoff_max_s=LONGEST_BACKOFF_S,
)
PROBE = Probe(slots_path="/slots")


class MovedClock:
    """The machine's clocks plus offsets that a test sets."""

    def __init__(self) -> None:
        self.slept_s = 0.0  # seen by the wall clock only, as in a suspended machine
        self.passed_s = 0.0  # seen by both

    def monotonic(self) -> float:
        return time.monotonic() + self.passed_s

    def time(self) -> float:
        return time.time() + self.passed_s + self.slept_s


class LookedAtClock:
    """A clock that stands until it is moved by hand, and counts how often it is looked at."""

    def __init__(self) -> None:
        self.now, self.looks = 0.0, 0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        with self._lock:
            self.looks += 1
            return self.now

    def time(self) -> float:
        return self.now


def service(name: str) -> ObjectRef:
    return ObjectRef("InferenceService", "default", name)


def launch(name: str, port: int, *options: str, **changes: Any) -> Launch:
    """A launch of the tiny server; its digests follow from its arguments."""
    command = Command(servers.argv(port, *options), probe=PROBE)
    inputs = {"options": list(options)}
    made = Launch(
        ref=service(name),
        command=command,
        inputs=inputs,
        inputs_digest=digest(inputs),
        render_digest=command.digest,
        runtime="tiny",
        port=port,
        models=("tiny",),
        drain_timeout_s=HOUR_S,
    )
    return replace(made, **changes)


def state_of(processes: Processes, name: str) -> ProcessSnapshot | None:
    return next((s for s in processes.snapshot() if s.ref == service(name)), None)


def wait_state(
    processes: Processes, name: str, condition: Callable[[ProcessSnapshot], bool]
) -> ProcessSnapshot:
    """Wait until one service fulfils a condition, and return how it stood then."""
    found: list[ProcessSnapshot] = []

    def check(states: tuple[ProcessSnapshot, ...]) -> bool:
        found[:] = [s for s in states if s.ref == service(name) and condition(s)]
        return bool(found)

    if not processes.wait_for(check, PATIENCE_S):
        raise AssertionError(f"{name}: still {state_of(processes, name)}")
    return found[0]


def wait_ready(processes: Processes, name: str) -> ProcessSnapshot:
    return wait_state(processes, name, lambda state: state.ready)


def wait_reason(processes: Processes, name: str, reason: str) -> ProcessSnapshot:
    return wait_state(processes, name, lambda state: state.reason == reason)


def wait_gone(processes: Processes, name: str) -> None:
    gone = processes.wait_for(
        lambda states: all(state.ref != service(name) for state in states), PATIENCE_S
    )
    assert gone, state_of(processes, name)


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
        return json.load(answer)


def post(port: int, path: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=b"", method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE_S):
        pass


def main() -> None:
    """An owner in a process of its own, to be killed: runs every record that it finds and what
    stands in argv as `NAME:PORT`, and prints one line per service when all are ready."""
    state = StateDir.open(Path(sys.argv[1]))
    state.lock()
    processes = Processes(state, ADMITS_ALL, timing=QUICK)
    processes.start()
    for word in sys.argv[2:]:
        name, _, port = word.partition(":")
        processes.run(launch(name, int(port)))
    for word in sys.argv[2:]:
        found = wait_ready(processes, word.partition(":")[0])
        print(found.pid, flush=True)
    print("ready", os.getpid(), len(Records(state).read_all()), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
