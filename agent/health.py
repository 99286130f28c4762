"""Ask a live process whether it is ready. Blocks for a bounded time: never in the owner thread.

An answer on the port proves nothing by itself: a second server on a taken port dies in 15 ms while
the first one goes on answering 200. So the pid must own the listening socket, too.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.exits import one_line
from agent.identity import describe
from agent.launch import Listening
from agent.sockets import listener, listening_socket, still_listens
from reconciler.workload import Probe

ANSWER_TIMEOUT_S = 2.0
_LOADED = ("loaded", "sleeping")
_Entry = dict[str, object]  # one model in the answer of /v1/models
_LARGEST_ANSWER = 4 * 1024 * 1024  # a router with 500 models answers 262 KiB


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a process is ready; if not, why, in a CamelCase word and a sentence."""

    ready: bool
    reason: str = "Ready"
    message: str = ""
    listening: Listening | None = None


def check(
    pid: int,
    host: str,
    port: int,
    probe: Probe,
    *,
    known: Listening | None = None,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> Verdict:
    """Ready: GET of the path is 200, the pid (or a child of it) owns the socket, and the list
    of models holds what the probe demands. `known`, the proof of an earlier check, saves all but
    the first."""
    try:
        status, body = _get(host, port, probe.path, timeout_s)
    except ConnectionRefusedError:
        return Verdict(False, "Loading", "does not listen yet")
    except (OSError, http.client.HTTPException, ValueError) as error:
        text = one_line(str(error)) or type(error).__name__
        return Verdict(False, "Loading", f"no answer on port {port}: {text}")
    if status != 200:
        return Verdict(False, "Loading", f"{probe.path} answers {status}{_error_message(body)}")
    if known is not None and still_listens(known):
        return Verdict(True, listening=known)
    listening = listening_socket(pid, port)
    if listening is None:
        owner = describe(listener(port))
        return Verdict(False, "PortInUse", f"port {port} is answered by {owner}, not by this one")
    found = _serves(host, port, probe, timeout_s)
    return replace(found, listening=listening)


def busy_slots(
    host: str, port: int, path: str, *, timeout_s: float = ANSWER_TIMEOUT_S
) -> int | None:
    """Requests in flight; None where that cannot be read, which is not 0."""
    try:
        status, body = _get(host, port, path, timeout_s)
        slots = json.loads(body)
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    if status != 200 or not isinstance(slots, list):
        return None
    return sum(1 for slot in slots if isinstance(slot, dict) and slot.get("is_processing"))


def _serves(host: str, port: int, probe: Probe, timeout_s: float) -> Verdict:
    """Whether the list of models holds what the probe demands."""
    path = probe.models_path
    if path is None or (probe.alias is None and not probe.loaded):
        return Verdict(True)
    try:
        status, body = _get(host, port, path, timeout_s)
        entries = _entries(json.loads(body)) if status == 200 else ()
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        return Verdict(False, "Loading", f"{path} gives no list of models: {type(error).__name__}")
    if status != 200:
        return Verdict(False, "Loading", f"{path} answers {status}")
    names = {name for entry in entries for name in _names(entry)}
    if probe.alias is not None and probe.alias not in names:
        found = one_line(", ".join(sorted(names))) or "nothing"
        return Verdict(False, "WrongModel", f"serves {found} instead of {probe.alias}")
    if probe.loaded and not any(_status(entry).get("value") in _LOADED for entry in entries):
        return _none_loaded(entries)
    return Verdict(True)


def _none_loaded(entries: Sequence[_Entry]) -> Verdict:
    failed = [name for entry in entries if _status(entry).get("failed") for name in _names(entry)]
    if failed:
        return Verdict(False, "ModelsFailed", one_line(f"failed to load: {', '.join(failed)}"))
    return Verdict(False, "Loading", "no model is loaded yet")


def _entries(document: object) -> tuple[_Entry, ...]:
    data = document.get("data") if isinstance(document, dict) else None
    return tuple(e for e in (data if isinstance(data, list) else ()) if isinstance(e, dict))


def _names(entry: _Entry) -> tuple[str, ...]:
    aliases = entry.get("aliases")
    words = (entry.get("id"), *(aliases if isinstance(aliases, list) else ()))
    return tuple(word for word in words if isinstance(word, str))


def _status(entry: _Entry) -> _Entry:
    status = entry.get("status")
    return status if isinstance(status, dict) else {}


def _error_message(body: bytes) -> str:
    try:
        return ": " + one_line(str(json.loads(body)["error"]["message"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _get(host: str, port: int, path: str, timeout_s: float) -> tuple[int, bytes]:
    """Status and body, with one deadline for all of it and a cap on the size."""
    deadline = time.monotonic() + timeout_s
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        body = bytearray()
        while chunk := response.read1(65536):
            body += chunk
            if len(body) > _LARGEST_ANSWER:
                raise ValueError("the answer is too long")
            if time.monotonic() > deadline:
                raise TimeoutError("timed out")
        return response.status, bytes(body)
    finally:
        connection.close()
