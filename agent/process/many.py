"""Probe, reload and load single models behind one process. Blocks for a bounded time: never in the
owner thread.

The children of llama.cpp's router are asked on their own ports: a request through the router would
hold one of its threads for as long as a child hangs, and some requests load or wake a model
(b11434).
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Mapping

from agent.process.events import Rewrite, Rewritten
from agent.process.health import ANSWER_TIMEOUT_S, EngineAddress, busy_slots, recogniser
from agent.process.launch import Launch
from reconciler.api.plain_json import parse_json
from reconciler.fleet.command import ServedModel
from reconciler.runtimes.many import ManyModels

_RELOAD_SLACK_S = 30.0  # a router waits for models to unload, and reads every header again
_UNREACHABLE = (OSError, http.client.HTTPException, ValueError)


def requests_in_flight(
    launch: Launch, many: ManyModels, models: frozenset[str] | None
) -> int | None:
    """Requests in flight for these models (None: all). None (not 0) if they cannot be read, and
    while one of the models loads, since it usually does so for a request."""
    server = EngineAddress.of(launch)
    path = launch.command.probe.slots_path
    try:
        document = _list_models(server, launch)
    except _UNREACHABLE:
        return None
    wanted = frozenset(launch.models) if models is None else models
    if any(m.state == "loading" for m in _states(launch, document) if m.name in wanted):
        return None
    busy = 0
    for name, port in many.ports(document).items():
        if name not in wanted or path is None:
            continue
        count = busy_slots("127.0.0.1", port, path, key=server.key)
        if count is None:
            return None
        busy += count
    return busy


def silent_models(launch: Launch, many: ManyModels) -> frozenset[str]:
    """The loaded models whose own process does not respond."""
    try:
        document = _list_models(EngineAddress.of(launch), launch)
    except _UNREACHABLE:
        return frozenset()
    ports = many.ports(document)
    path = launch.command.probe.path
    return frozenset(n for n in launch.models if n in ports and not _answers(ports[n], path))


def rewrite(ask: Rewrite, many: ManyModels) -> Rewritten:
    """Have the process read its files again, and load the models that should be up: those that
    were, those to be preloaded, or else any; up to its limit."""
    launch = ask.launch
    server = EngineAddress.of(launch)
    try:
        timeout_s = launch.drain_timeout_s + _RELOAD_SLACK_S
        status, body = server.ask(many.reload_path, timeout_s)
        if status != 200:
            text = body.decode(errors="replace")
            return Rewritten(ask.question, False, f"{many.reload_path} answers {status}: {text}")
        states = {m.name: m.state for m in _states(launch, _list_models(server, launch))}
        loading = _load(server, many, launch.inputs, ask, states)
    except _UNREACHABLE as error:
        return Rewritten(ask.question, False, str(error) or type(error).__name__)
    return Rewritten(ask.question, True, loading=loading)


def load(launch: Launch, many: ManyModels, names: Iterable[str]) -> tuple[str, ...]:
    """Ask the process to load these models; returns those that it accepted."""
    try:
        return tuple(name for name in names if _request_load(EngineAddress.of(launch), many, name))
    except _UNREACHABLE:
        return ()


def _load(
    server: EngineAddress,
    many: ManyModels,
    inputs: Mapping[str, object],
    ask: Rewrite,
    states: Mapping[str, str],
) -> tuple[str, ...]:
    preloads, room = many.preloads(inputs)
    here = [name for name in states if name not in ask.without]
    up = [name for name in here if states[name] in ("loaded", "sleeping", "loading")]
    wanted = [name for name in (*ask.up, *preloads) if name in here] or here[: not up]
    loading = []
    for name in dict.fromkeys(wanted):
        if name in up or len(up) >= room:
            continue
        if _request_load(server, many, name):
            loading.append(name)
        up.append(name)  # also if refused: a request has loaded it meanwhile
    return tuple(loading)


def _request_load(server: EngineAddress, many: ManyModels, name: str) -> bool:
    body = json.dumps({"model": name}).encode()
    status, _ = server.ask(many.load_path, ANSWER_TIMEOUT_S, body)
    return status == 200


def _list_models(server: EngineAddress, launch: Launch) -> object:
    """The list of models. Raises OSError, HTTPException or ValueError."""
    path = launch.command.probe.models_path
    if path is None:
        raise ValueError("it lists no models")
    status, body = server.ask(path, ANSWER_TIMEOUT_S)
    if status != 200:
        raise ValueError(f"{path} answers {status}")
    return parse_json(body)


def _states(launch: Launch, document: object) -> tuple[ServedModel, ...]:
    return recogniser(launch.runtime, launch.models)(document).models


def _answers(port: int, path: str) -> bool:
    try:
        status, _ = EngineAddress("127.0.0.1", port).ask(path, ANSWER_TIMEOUT_S)
    except ConnectionRefusedError:
        return True  # it has ended meanwhile; the next list of models shows that
    except _UNREACHABLE:
        return False
    return status == 200
