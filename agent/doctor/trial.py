"""One engine with one model, by the code that runs services: started, sent one request, and
stopped."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.doctor.tiny import NAME
from agent.machine.probe import performance_cores
from agent.process.admission import ADMITS_ALL
from agent.process.health import EngineAddress
from agent.process.launch import Launch, ProcessSnapshot
from agent.process.owner import Processes
from agent.state.directory import StateDir
from reconciler.api.errors import error_text
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import API_VERSION
from reconciler.api.plain_json import parse_json
from reconciler.fleet.fleet import Origin
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import Workload
from reconciler.runtimes.runtime import NodeFacts
from reconciler.runtimes.settings import lifecycle, settings

if TYPE_CHECKING:
    from agent.engines.engine import EngineFound
    from reconciler.runtimes.runtime import Runtime

_ANOTHER = "use another version of this engine: what is refused is what every service is given"
_REMEDIES = {"BadFlag": _ANOTHER, "ModelUnsupported": _ANOTHER, "ModelCorrupt": _ANOTHER}
_PATH = "/v1/chat/completions"
_QUESTION = {"messages": [{"role": "user", "content": "Are you there?"}], "max_tokens": 8}
_LOG_LINES = 8
_ANSWER_S = 30.0  # the model is tiny: an engine that takes longer does not work
_LOOK_S = 0.2  # a signal is noticed this late at most
_STOP_S = 5.0  # then it is killed: its last output does not matter
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Success:
    """It came up and answered. Seconds from the start, and from the question."""

    ready_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """Why it failed, and its last output."""

    message: str
    log: tuple[str, ...] = ()


def serve(
    runtime: Runtime,
    engine: EngineFound,
    model: Path,
    kind: str,
    folder: Path,
    timeout_s: float,
    is_over: Callable[[], bool],
) -> Success | Failed:
    """Serve a model of that format, send a request, and stop. Works in `folder` only. Raises
    KeyboardInterrupt once everything has ended, if `is_over` returns True before."""
    if is_over():
        raise KeyboardInterrupt
    state = StateDir.open(folder / "state")
    launch = _launch(runtime, engine, model, kind, state)
    began = time.monotonic()
    with _running(state, launch) as processes:
        snapshot = _settled(processes, timeout_s, is_over)
        ready = time.monotonic()
        if not snapshot.ready:
            return Failed(_why(snapshot, timeout_s), _log(state, launch))
        if why := _unanswered(launch, min(timeout_s, _ANSWER_S)):
            return Failed(why, _log(state, launch))
        if is_over():
            raise KeyboardInterrupt
        return Success(ready - began, time.monotonic() - ready)


def _launch(
    runtime: Runtime, engine: EngineFound, model: Path, kind: str, state: StateDir
) -> Launch:
    service = InferenceService.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "InferenceService",
            "metadata": {"name": "doctor"},
            "spec": {
                "runtime": runtime.name,
                "contextSize": 512,
                "promptCache": 0,
                **({"models": [{"name": NAME}]} if runtime.serves_many else {"modelRef": NAME}),
            },
        }
    )
    wanted = Workload(
        ref=service.ref,
        node="here",
        runtime=runtime.name,
        models=(ModelFile(NAME, str(model), kind),),
        settings=settings(service, runtime),
        lifecycle=lifecycle(service, runtime),
        origin=Origin("doctor", 1),
    )
    port = _free_port()
    facts = NodeFacts(
        binary=engine.argv_prefix,
        port=str(port),
        host=_HOST,
        threads=str(performance_cores()),
        directory=str(state.workload_dir(service.ref)),
        model_paths={NAME: str(model)},
    )
    command = runtime.command(wanted, facts)
    return Launch(
        ref=service.ref,
        command=command,
        inputs={},
        inputs_digest="",
        render_digest=command.digest,
        runtime=runtime.name,
        port=port,
        models=(NAME,),
        drain_timeout_s=0.0,
        host=_HOST,
    )


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def _running(state: StateDir, launch: Launch) -> Iterator[Processes]:
    processes = Processes(state, ADMITS_ALL)
    processes.start()
    try:
        processes.run(launch)
        yield processes
    finally:
        processes.close(stop_children=True, deadline_s=_STOP_S)


def _settled(
    processes: Processes, timeout_s: float, is_over: Callable[[], bool]
) -> ProcessSnapshot:
    """Its state once it is ready, has failed, or the time is over."""
    ends = time.monotonic() + timeout_s
    while (left := ends - time.monotonic()) > 0:
        if is_over():
            raise KeyboardInterrupt
        if processes.wait_for(_is_settled, min(left, _LOOK_S)):
            break
    (snapshot,) = processes.snapshot()
    return snapshot


def _is_settled(states: Sequence[ProcessSnapshot]) -> bool:
    return any(state.ready or state.failures for state in states)


def _why(snapshot: ProcessSnapshot, timeout_s: float) -> str:
    """The cause, with advice: no field of a service is wrong here, so it is the program or the
    machine."""
    cause = ": ".join(filter(None, (snapshot.reason, snapshot.message)))
    if not snapshot.failures:
        return f"not ready after {timeout_s:g} s: {cause}; give it longer with --timeout"
    return f"{cause}; {_REMEDIES[snapshot.reason]}" if snapshot.reason in _REMEDIES else cause


def _unanswered(launch: Launch, timeout_s: float) -> str | None:
    """Why a question was not answered; None: it was."""
    body = json.dumps({"model": NAME, **_QUESTION}).encode()
    try:
        status, answer = EngineAddress.of(launch).ask(_PATH, timeout_s, body)
        document = parse_json(answer)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"ready, but {_PATH} gives no answer: {error_text(error)}"
    if status != 200 or not (isinstance(document, dict) and document.get("choices")):
        return f"ready, but {_PATH} answers {status}: {answer[:300].decode(errors='replace')}"
    return None


def _log(state: StateDir, launch: Launch) -> tuple[str, ...]:
    try:
        text = state.log_file(launch.ref).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(line for line in text.splitlines() if line.strip())[-_LOG_LINES:]
