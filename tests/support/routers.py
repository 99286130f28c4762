"""Real routers of llama.cpp, as the agent starts them: launches, requests, and their children."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from agent.process.launch import Launch
from agent.state.directory import StateDir
from reconciler.fleet.command import ServedModel
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from tests.support.engines import service, workload
from tests.support.llama_server import llama_server
from tests.support.wait import PATIENCE_S


def router(
    state: StateDir, port: int, files: Mapping[str, Path], models: list[dict[str, Any]], **spec: Any
) -> Launch:
    """The launch of a router named `chat`. `files` are the models' files by name."""
    wanted = service(
        runtime="llamacpp-router",
        models=models,
        **{
            "contextSize": 512,
            "rollout": {"drainTimeout": "1h"},
            "extraArgs": ["--context-shift"],  # a stream may go on for ever
            **spec,
        },
    )
    made = workload(wanted)
    facts = NodeFacts(
        binary=(str(llama_server()),),
        port=str(port),
        threads="1",
        directory=str(state.workload_dir(made.ref)),
        model_paths={name: str(path) for name, path in files.items()},
    )
    command = RUNTIMES[made.runtime].command(made, facts)
    return Launch(
        ref=made.ref,
        command=command,
        inputs=made.inputs,
        inputs_digest=made.inputs_digest,
        render_digest=command.digest,
        runtime=made.runtime,
        port=port,
        models=tuple(model["name"] for model in models),
        drain_timeout_s=made.settings["rollout.drainTimeout"],
    )


def change(before: Launch, after: Launch) -> frozenset[str]:
    """The models that a reload from one to the other concerns."""
    many = RUNTIMES[after.runtime].many
    assert many is not None
    return many.rewritten(before.command, after.command)


def ask(port: int, model: str, tokens: int = 2) -> tuple[int, str]:
    """Status and body of a short completion."""
    body = {"model": model, "prompt": "w1", "max_tokens": tokens, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def listed(port: int) -> dict[str, dict[str, Any]]:
    """The status of each model that the router knows, as it says it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/models", timeout=PATIENCE_S) as answer:
        return {entry["id"]: entry["status"] for entry in json.load(answer)["data"]}


def argument(port: int, model: str, flag: str) -> str:
    """What a model's process was given for a flag."""
    args = listed(port)[model]["args"]
    return str(args[args.index(flag) + 1])


def child(router_pid: int, model: str) -> psutil.Process:
    """The process of one loaded model."""
    for process in psutil.Process(router_pid).children():
        words = process.cmdline()
        if "--alias" in words and words[words.index("--alias") + 1] == model:
            return process
    raise AssertionError(f"no process of {model}")


def states(served: tuple[ServedModel, ...]) -> dict[str, str]:
    return {model.name: model.state for model in served}


@dataclass
class Stream:
    """A long answer as a client reads it."""

    chunks: int = 0
    ended: str = ""  # how: "done" when the server finished it, else what went wrong
    started: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)


@contextmanager
def stream(port: int, model: str, tokens: int = 10_000_000) -> Iterator[Stream]:
    """Hold a request open: the model writes until the block ends, or until its tokens are over:
    hours after a busy machine's slowest test."""
    seen = Stream()
    thread = threading.Thread(target=_read, args=(port, model, tokens, seen))
    thread.start()
    try:
        assert seen.started.wait(PATIENCE_S), seen.ended
        yield seen
    finally:
        seen.stop.set()
        thread.join()


def _read(port: int, model: str, tokens: int, seen: Stream) -> None:
    body = {"model": model, "prompt": "w1", "n_predict": tokens, "stream": True, "ignore_eos": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(
            "POST", "/completion", json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        while line := answer.readline():
            seen.started.set()
            if line.startswith(b"data: "):
                seen.chunks += 1
                if json.loads(line[6:]).get("stop"):
                    seen.ended = "done"
            elif line.strip():
                seen.ended = line.decode(errors="replace")
            if seen.stop.is_set():
                break
    except (OSError, http.client.HTTPException, ValueError) as error:
        seen.ended = seen.ended or repr(error)
    finally:
        connection.close()
        seen.started.set()
