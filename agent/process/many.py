"""Ask after, and change, single models behind one process. Blocks for a bounded time: never in the
owner thread.

The children of llama.cpp's router are asked on their own ports: a question through the router would
hold one of its threads for as long as a child hangs, and some load or wake a model (b11434).
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Mapping

from agent.process.events import Failure, Rewrite, Rewritten
from agent.process.exits import classify
from agent.process.health import ANSWER_TIMEOUT_S, Server, busy_slots, recogniser
from agent.process.launch import Launch
from reconciler.many import ManyModels
from reconciler.workload import ServedModel

_RELOAD_SLACK_S = 30.0  # a router waits for the models that leave, and reads every header again
_UNREACHABLE = (OSError, http.client.HTTPException, ValueError, RecursionError)


def requests_in_flight(
    launch: Launch, many: ManyModels, models: frozenset[str] | None
) -> int | None:
    """How many these models (None: all) work on. None where that cannot be read, which is not 0,
    and while one loads: it does so for a request, mostly."""
    server = Server.of(launch)
    path = launch.command.probe.slots_path
    try:
        document = _listed(server, launch)
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


def silent(launch: Launch, many: ManyModels) -> frozenset[str]:
    """The loaded models whose own process does not answer."""
    try:
        document = _listed(Server.of(launch), launch)
    except _UNREACHABLE:
        return frozenset()
    ports = many.ports(document)
    path = launch.command.probe.path
    return frozenset(n for n in launch.models if n in ports and not _answers(ports[n], path))


def failures(many: ManyModels, log: str) -> tuple[Failure, ...]:
    """The models whose process ended by itself, and why, from the end of the log of one run."""
    found = []
    for name, load in many.failed_loads(log).items():
        why = classify(load.exit_code, load.log)
        found.append(Failure(name, load.times, why.reason, why.message))
    return tuple(found)


def explained(
    served: Iterable[ServedModel], failures: Iterable[Failure]
) -> tuple[ServedModel, ...]:
    """The models, with the reasons of those that failed."""
    why = {failure.name: failure for failure in failures}
    return tuple(
        ServedModel(model.name, model.state, why[model.name].reason, why[model.name].message)
        if model.state == "failed" and model.name in why
        else model
        for model in served
    )


def rewrite(ask: Rewrite, many: ManyModels) -> Rewritten:
    """Let the process read its files, which are written, and load what should be up: what was, what
    is to be preloaded, and if that is nothing, anything; as many as there is room for."""
    launch = ask.launch
    server = Server.of(launch)
    try:
        timeout_s = launch.drain_timeout_s + _RELOAD_SLACK_S
        status, body = server.ask(many.reload_path, timeout_s)
        if status != 200:
            text = body.decode(errors="replace")
            return Rewritten(ask.question, False, f"{many.reload_path} answers {status}: {text}")
        states = {m.name: m.state for m in _states(launch, _listed(server, launch))}
        loading = _load(server, many, launch.inputs, ask, states)
    except _UNREACHABLE as error:
        return Rewritten(ask.question, False, str(error) or type(error).__name__)
    return Rewritten(ask.question, True, loading=loading)


def load(launch: Launch, many: ManyModels, names: Iterable[str]) -> tuple[str, ...]:
    """Have the process load these; returns the ones that it agreed to."""
    try:
        return tuple(name for name in names if _agrees_to_load(Server.of(launch), many, name))
    except _UNREACHABLE:
        return ()


def _load(
    server: Server,
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
        if _agrees_to_load(server, many, name):
            loading.append(name)
        up.append(name)  # also where it was refused: a request has loaded it meanwhile
    return tuple(loading)


def _agrees_to_load(server: Server, many: ManyModels, name: str) -> bool:
    body = json.dumps({"model": name}).encode()
    status, _ = server.ask(many.load_path, ANSWER_TIMEOUT_S, body)
    return status == 200


def _listed(server: Server, launch: Launch) -> object:
    """The list of models. OSError, HTTPException or ValueError where there is none."""
    path = launch.command.probe.models_path
    if path is None:
        raise ValueError("it lists no models")
    status, body = server.ask(path, ANSWER_TIMEOUT_S)
    if status != 200:
        raise ValueError(f"{path} answers {status}")
    return json.loads(body)


def _states(launch: Launch, document: object) -> tuple[ServedModel, ...]:
    return recogniser(launch.runtime, launch.models)(document).models


def _answers(port: int, path: str) -> bool:
    try:
        status, _ = Server("127.0.0.1", port).ask(path, ANSWER_TIMEOUT_S)
    except ConnectionRefusedError:
        return True  # it has ended since: its state says so, the next time
    except _UNREACHABLE:
        return False
    return status == 200
