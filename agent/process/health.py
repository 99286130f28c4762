"""Ask a live process whether it is ready. Blocks for a bounded time: never in the owner thread.

An answer on the port proves nothing by itself: a second server on a taken port dies in 15 ms while
the first one goes on answering 200. So the pid must own the listening socket, too.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import SplitResult, urlsplit

from agent.process.exits import one_line
from agent.process.exposition import total
from agent.process.identity import describe
from agent.process.launch import Launch, Listening
from agent.process.sockets import connections, listener, listening_socket, still_listens
from agent.state.apikey import sent_key
from reconciler.api.errors import error_text
from reconciler.api.plain_json import parse_json
from reconciler.fleet.command import Probe, ServedModel
from reconciler.http.exchange import HttpPolicy, HttpRequest, exchange
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import ServingState, lists_all

ANSWER_TIMEOUT_S = 2.0
Recognise = Callable[[object], ServingState]
"""Judges the parsed JSON answer of a probe's `models_path`."""

_TRIAL_TIMEOUT_S = 5.0  # requests queue up while a server loads: few and long rather than many
_POLICY = HttpPolicy(most_bytes=4 << 20)  # a router with 500 models sends 262 KiB


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """Whether a process is ready; if not, a CamelCase reason and a message."""

    ready: bool
    reason: str = "Ready"
    message: str = ""
    listening: Listening | None = None
    served: tuple[ServedModel, ...] = ()
    silent: bool = False  # there was no answer at all


def recogniser(runtime: str, names: tuple[str, ...]) -> Recognise:
    """How to tell that a process serves these names, by the runtime's row. A record may name a
    runtime of a newer version: then the usual list of models is expected."""
    row = RUNTIMES.get(runtime)
    serving = row.serving if row else lists_all
    return lambda document: serving(document, names)


def check(
    pid: int,
    host: str,
    port: int,
    probe: Probe,
    recognise: Recognise,
    *,
    known: Listening | None = None,
    was_ready: bool = False,
    key: str | None = None,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> HealthVerdict:
    """Whether a process is ready: GET of the path is 200, the pid (or a child of it) owns the
    socket, and its list of models is the expected one.

    `known`, the proof of an earlier check, saves all but the first step, and the last where the
    list may have changed. A process that `was_ready` gets no trial request. `key` is its API key;
    it is sent only once the socket's owner is proven.
    """
    if unhealthy := _unhealthy(host, port, probe, timeout_s, was_ready=was_ready):
        return unhealthy
    proven = known is not None and still_listens(known)
    listening = known if proven else listening_socket(pid, port)
    if listening is None:
        owner = describe(listener(port))
        return HealthVerdict(
            False, "PortInUse", f"port {port} is answered by {owner}, not by this one"
        )
    server = EngineAddress(host, port, key)
    verdict = _identify(server, probe, recognise, proven, was_ready or proven, timeout_s)
    return replace(verdict, listening=listening)


def with_sleep(launch: Launch, verdict: HealthVerdict) -> HealthVerdict:
    """Add whether the model is asleep, where the runtime can put it to sleep."""
    row, settings = RUNTIMES.get(launch.runtime), launch.inputs.get("settings")
    if not verdict.ready or row is None or row.asleep is None:
        return verdict
    if not isinstance(settings, Mapping) or not settings.get("sleepIdle"):
        return verdict
    try:
        state = "sleeping" if row.asleep(partial(ask, launch)) else "loaded"
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return verdict
    return replace(verdict, served=tuple(ServedModel(name, state) for name in launch.models))


def check_alone(
    launch: Launch, *, proven: bool = False, timeout_s: float = ANSWER_TIMEOUT_S
) -> HealthVerdict:
    """Like `check`, in a pod: only this process can listen on the port, and its pid is not visible.
    `proven`: it was ready before."""
    probe = launch.command.probe
    if unhealthy := _unhealthy(launch.host, launch.port, probe, timeout_s):
        return unhealthy
    recognise = recogniser(launch.runtime, launch.models)
    return _identify(EngineAddress.of(launch), probe, recognise, proven, proven, timeout_s)


def key_of(launch: Launch) -> str | None:
    """The API key that the process requires; None if it requires none."""
    return None if launch.command.key is None else sent_key(launch.command.key.file)


def ask(launch: Launch, path: str) -> object:
    """GET the path and return the parsed JSON. Raises OSError, HTTPException or ValueError."""
    status, body = EngineAddress.of(launch).ask(path, ANSWER_TIMEOUT_S)
    if status != 200:
        raise ValueError(f"{path} answers {status}")
    return parse_json(body)


def requests_in_flight(launch: Launch) -> int | None:
    """Requests in flight; None (not 0) if they cannot be read."""
    probe = launch.command.probe
    if probe.slots_path is not None:
        busy = busy_slots(launch.host, launch.port, probe.slots_path, key=key_of(launch))
        return busy + _queued(launch, probe) if busy else busy
    return connections(launch.port) if probe.connections else None


def answers(launch: Launch, *, timeout_s: float = ANSWER_TIMEOUT_S) -> bool:
    """Whether it answers at all."""
    unhealthy = _unhealthy(launch.host, launch.port, launch.command.probe, timeout_s)
    return unhealthy is None or not unhealthy.silent


def busy_slots(
    host: str,
    port: int,
    path: str,
    *,
    key: str | None = None,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> int | None:
    """Slots that are processing; None if they cannot be read."""
    try:
        status, body = EngineAddress(host, port, key).ask(path, timeout_s)
        slots = parse_json(body)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    if status != 200 or not isinstance(slots, list):
        return None
    return sum(1 for slot in slots if isinstance(slot, dict) and slot.get("is_processing"))


def _queued(launch: Launch, probe: Probe) -> int:
    """Requests that wait for a busy slot; 0 also if they cannot be read."""
    if probe.queue is None:
        return 0
    path, gauge = probe.queue
    try:
        status, body = EngineAddress.of(launch).ask(path, ANSWER_TIMEOUT_S)
    except (OSError, http.client.HTTPException):
        return 0
    return round(total(body.decode(errors="replace"), gauge) or 0) if status == 200 else 0


def _unhealthy(
    host: str, port: int, probe: Probe, timeout_s: float, *, was_ready: bool = False
) -> HealthVerdict | None:
    """Why the server on the port is not ready, whichever process it is; None if it reports that it
    is. One that `was_ready` does not load any more."""
    not_yet = "NotResponding" if was_ready else "Loading"
    silent = partial(HealthVerdict, False, not_yet, silent=True)
    try:
        status, body = EngineAddress(host, port).ask(probe.path, timeout_s)
    except ConnectionRefusedError:
        return silent("does not listen any more" if was_ready else "does not listen yet")
    except TimeoutError:
        return silent(f"no answer on port {port} within {timeout_s:g} s")
    except (OSError, http.client.HTTPException, ValueError) as error:
        text = one_line(error_text(error)) or type(error).__name__
        return silent(f"no answer on port {port}: {text}")
    if status == 200:
        return None
    # A server that needs a trial request is healthy while it loads, so this is a failure.
    reason = not_yet if probe.trial is None else "EngineFailed"
    return HealthVerdict(False, reason, f"{probe.path} answers {status}{_error_message(body)}")


def _identify(
    server: EngineAddress,
    probe: Probe,
    recognise: Recognise,
    proven: bool,
    tried: bool,
    timeout_s: float,
) -> HealthVerdict:
    """Whether the process serves the expected models, requires its key and passes a trial
    request."""
    if probe.models_path is None or (proven and not probe.live):
        return HealthVerdict(True)
    verdict = _serves(server, probe.models_path, recognise, timeout_s)
    if verdict.ready and server.key is not None and not proven:
        verdict = _require_key(server.host, server.port, probe.models_path, verdict, timeout_s)
    if verdict.ready and probe.trial is not None and not tried:
        verdict = _try(server, probe.trial, verdict)
    return verdict


def _serves(
    server: EngineAddress, path: str, recognise: Recognise, timeout_s: float
) -> HealthVerdict:
    """Whether the process lists the models that it should serve."""
    try:
        status, body = server.ask(path, timeout_s)
        document = parse_json(body) if status == 200 else None
    except (OSError, http.client.HTTPException, ValueError) as error:
        return HealthVerdict(
            False, "Loading", f"{path} returned no list of models: {type(error).__name__}"
        )
    if status != 200:
        return HealthVerdict(False, "Loading", f"{path} answers {status}")
    verdict = recognise(document)
    if verdict.reason:
        return HealthVerdict(
            False, verdict.reason, one_line(verdict.message), served=verdict.models
        )
    return HealthVerdict(True, served=verdict.models)


def _require_key(
    host: str, port: int, path: str, verdict: HealthVerdict, timeout_s: float
) -> HealthVerdict:
    """Not ready if a request without the key is accepted: an engine may ignore its key."""
    try:
        status, _ = EngineAddress(host, port).ask(path, timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        message = f"{path} does not answer without a key: {type(error).__name__}"
        return replace(verdict, ready=False, reason="Loading", message=message)
    if status in (401, 403):
        return verdict
    message = f"{path} answers {status} without the API key; stop it, and use another engine"
    return replace(verdict, ready=False, reason="KeyNotAsked", message=message)


def _try(server: EngineAddress, trial: tuple[str, str], verdict: HealthVerdict) -> HealthVerdict:
    """Turn `verdict` down until a trial request succeeds."""
    path, text = trial
    try:
        status, body = server.ask(path, _TRIAL_TIMEOUT_S, text.encode())
    except (OSError, http.client.HTTPException, ValueError):
        return replace(
            verdict, ready=False, reason="Loading", message="has not answered a request yet"
        )
    if status == 200:
        return verdict
    message = f"{path} answers {status}{_error_message(body)}"
    return replace(verdict, ready=False, reason="EngineFailed", message=message)


def _error_message(body: bytes) -> str:
    """The message of an OpenAI error, or of one that is only a text, as mlx-lm sends it."""
    try:
        error = parse_json(body)["error"]
        return ": " + one_line(error if isinstance(error, str) else str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return ""


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Host and port of a process, and its API key."""

    host: str
    port: int
    key: str | None = None

    @classmethod
    def of(cls, launch: Launch) -> EngineAddress:
        return cls(launch.host, launch.port, key_of(launch))

    def ask(self, path: str, timeout_s: float, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of a GET, or of a POST if there is a body; one deadline for the whole
        exchange and a limit on the size."""
        deadline = time.monotonic() + timeout_s
        reply = exchange(self.request(path, body), _POLICY, deadline=deadline)
        return reply.status, reply.body

    def request(self, path: str, body: bytes | None = None) -> HttpRequest:
        """A GET of the path, or a POST if there is a body."""
        headers = {"Content-Type": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        url = SplitResult("http", f"{host}:{self.port}", *urlsplit(path)[2:])
        return HttpRequest("GET" if body is None else "POST", url, headers, body)
