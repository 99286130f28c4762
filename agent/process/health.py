"""Ask a live process whether it is ready. Blocks for a bounded time: never in the owner thread.

An answer on the port proves nothing by itself: a second server on a taken port dies in 15 ms while
the first one goes on answering 200. So the pid must own the listening socket, too.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.apikey import sent_key
from agent.process.exits import one_line
from agent.process.identity import describe
from agent.process.launch import Launch, Listening
from agent.process.sockets import connections, listener, listening_socket, still_listens
from agent.server.exposition import total
from reconciler.runtime import Serving, lists_all
from reconciler.runtimes import RUNTIMES
from reconciler.workload import Probe, ServedModel

ANSWER_TIMEOUT_S = 2.0
Recognise = Callable[[object], Serving]
"""What the answer of a probe's `models_path`, as parsed JSON, says of a process."""

_TRIAL_TIMEOUT_S = 5.0  # while a server loads, requests wait: few and long rather than many
_LARGEST_ANSWER = 4 * 1024 * 1024  # a router with 500 models answers 262 KiB


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a process is ready; if not, why, in a CamelCase word and a sentence."""

    ready: bool
    reason: str = "Ready"
    message: str = ""
    listening: Listening | None = None
    served: tuple[ServedModel, ...] = ()


def recogniser(runtime: str, names: tuple[str, ...]) -> Recognise:
    """How the runtime's row knows a process that should serve these names. A record may name a
    runtime of a newer version: then the usual list of models must do."""
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
) -> Verdict:
    """Ready: GET of the path is 200, the pid (or a child of it) owns the socket, and what it says
    of its models is recognised. `known`, the proof of an earlier check, saves all but the first,
    and the last where the answer may have changed. A process that `was_ready` is not tried again.
    `key` is what it asks of its clients; nobody sees it but who is proven to be the process."""
    if unhealthy := _unhealthy(host, port, probe, timeout_s):
        return unhealthy
    proven = known is not None and still_listens(known)
    listening = known if proven else listening_socket(pid, port)
    if listening is None:
        owner = describe(listener(port))
        return Verdict(False, "PortInUse", f"port {port} is answered by {owner}, not by this one")
    server = Server(host, port, key)
    found = _identify(server, probe, recognise, proven, was_ready or proven, timeout_s)
    return replace(found, listening=listening)


def check_alone(
    launch: Launch, *, proven: bool = False, timeout_s: float = ANSWER_TIMEOUT_S
) -> Verdict:
    """The same where nobody else can listen on the port, and no pid can be seen: in a pod. With
    `proven`, this process was ready before."""
    probe = launch.command.probe
    if unhealthy := _unhealthy(launch.host, launch.port, probe, timeout_s):
        return unhealthy
    recognise = recogniser(launch.runtime, launch.models)
    return _identify(Server.of(launch), probe, recognise, proven, proven, timeout_s)


def key_of(launch: Launch) -> str | None:
    """The API key that its process asks of clients; None: it asks for none."""
    return None if launch.command.key is None else sent_key(launch.command.key.file)


def ask(launch: Launch, path: str) -> object:
    """The answer to a GET, as parsed JSON. OSError, HTTPException or ValueError: there is none."""
    status, body = Server.of(launch).ask(path, ANSWER_TIMEOUT_S)
    if status != 200:
        raise ValueError(f"{path} answers {status}")
    return json.loads(body)


def requests_in_flight(launch: Launch) -> int | None:
    """How many the process works on; None where that cannot be read, which is not 0."""
    probe = launch.command.probe
    if probe.slots_path is not None:
        busy = busy_slots(launch.host, launch.port, probe.slots_path, key=key_of(launch))
        return busy + _queued(launch, probe) if busy else busy
    return connections(launch.port) if probe.connections else None


def busy_slots(
    host: str,
    port: int,
    path: str,
    *,
    key: str | None = None,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> int | None:
    """Slots that are processing; None where that cannot be read."""
    try:
        status, body = Server(host, port, key).ask(path, timeout_s)
        slots = json.loads(body)
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    if status != 200 or not isinstance(slots, list):
        return None
    return sum(1 for slot in slots if isinstance(slot, dict) and slot.get("is_processing"))


def _queued(launch: Launch, probe: Probe) -> int:
    """Requests that wait for one of the busy slots; 0 as well where that cannot be read."""
    if probe.queue is None:
        return 0
    path, gauge = probe.queue
    try:
        status, body = Server.of(launch).ask(path, ANSWER_TIMEOUT_S)
    except (OSError, http.client.HTTPException):
        return 0
    return round(total(body.decode(errors="replace"), gauge) or 0) if status == 200 else 0


def _unhealthy(host: str, port: int, probe: Probe, timeout_s: float) -> Verdict | None:
    """Why what answers on the port is not ready yet, whoever it is; None where it says it is."""
    try:
        status, body = Server(host, port).ask(probe.path, timeout_s)
    except ConnectionRefusedError:
        return Verdict(False, "Loading", "does not listen yet")
    except (OSError, http.client.HTTPException, ValueError) as error:
        text = one_line(str(error)) or type(error).__name__
        return Verdict(False, "Loading", f"no answer on port {port}: {text}")
    if status == 200:
        return None
    # One that has to be tried is healthy while it loads: it has given up.
    reason = "Loading" if probe.trial is None else "EngineFailed"
    return Verdict(False, reason, f"{probe.path} answers {status}{_error_message(body)}")


def _identify(
    server: Server,
    probe: Probe,
    recognise: Recognise,
    proven: bool,
    tried: bool,
    timeout_s: float,
) -> Verdict:
    """Whether it serves what it should, and answers a first request."""
    if probe.models_path is None or (proven and not probe.live):
        return Verdict(True)
    found = _serves(server, probe.models_path, recognise, timeout_s)
    if found.ready and server.key is not None and not proven:
        found = _refuse_strangers(server.host, server.port, probe.models_path, found, timeout_s)
    if found.ready and probe.trial is not None and not tried:
        found = _try(server, probe.trial, found)
    return found


def _serves(server: Server, path: str, recognise: Recognise, timeout_s: float) -> Verdict:
    """Whether the answer about its models is the one that we mean."""
    try:
        status, body = server.ask(path, timeout_s)
        document = json.loads(body) if status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        return Verdict(False, "Loading", f"{path} gives no list of models: {type(error).__name__}")
    if status != 200:
        return Verdict(False, "Loading", f"{path} answers {status}")
    found = recognise(document)
    if found.reason:
        return Verdict(False, found.reason, one_line(found.message), served=found.models)
    return Verdict(True, served=found.models)


def _refuse_strangers(host: str, port: int, path: str, found: Verdict, timeout_s: float) -> Verdict:
    """`found`, where a client without the key is sent away: an engine may not know of it."""
    try:
        status, _ = Server(host, port).ask(path, timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        message = f"{path} does not answer without a key: {type(error).__name__}"
        return replace(found, ready=False, reason="Loading", message=message)
    if status in (401, 403):
        return found
    message = f"{path} answers {status} without the API key; stop it, and use another engine"
    return replace(found, ready=False, reason="KeyNotAsked", message=message)


def _try(server: Server, trial: tuple[str, str], found: Verdict) -> Verdict:
    """`found`, once a first request is answered."""
    path, text = trial
    try:
        status, body = server.ask(path, _TRIAL_TIMEOUT_S, text.encode())
    except (OSError, http.client.HTTPException, ValueError):
        return replace(found, ready=False, reason="Loading", message="has answered nothing yet")
    if status == 200:
        return found
    message = f"{path} answers {status}{_error_message(body)}"
    return replace(found, ready=False, reason="EngineFailed", message=message)


def _error_message(body: bytes) -> str:
    try:
        return ": " + one_line(str(json.loads(body)["error"]["message"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


@dataclass(frozen=True, slots=True)
class Server:
    """Where a process answers, and the key that it asks of its clients."""

    host: str
    port: int
    key: str | None = None

    @classmethod
    def of(cls, launch: Launch) -> Server:
        """The process of a launch, with the key that it asks for."""
        return cls(launch.host, launch.port, key_of(launch))

    def ask(self, path: str, timeout_s: float, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of a GET, or of a POST where there is a body, with one deadline for all
        of it and a cap on the size."""
        deadline = time.monotonic() + timeout_s
        headers = {"Connection": "close", "Content-Type": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            response = connection.getresponse()
            answer = bytearray()
            while chunk := response.read1(65536):
                answer += chunk
                if len(answer) > _LARGEST_ANSWER:
                    raise ValueError("the answer is too long")
                if time.monotonic() > deadline:
                    raise TimeoutError("timed out")
            return response.status, bytes(answer)
        finally:
            connection.close()
