"""mlx_lm.server as a service of a node: who it is, what it serves, how it ends."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.process.admission import ADMITS_ALL
from agent.process.launch import Launch
from agent.process.owner import Processes
from agent.state.directory import StateDir
from reconciler.api.digest import digest
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from tests.support import engines
from tests.support.mlx_models import PROGRAM, tiny_mlx
from tests.support.owner import HOUR_S, QUICK, wait_gone, wait_ready, wait_reason
from tests.support.ports import own_port
from tests.support.wait import PATIENCE_S, wait_for

MLX = RUNTIMES["mlx-lm"]

# --- who it is


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        (["/state/workloads/default_chat/tiny"], ""),
        (["org/elsewhere", "/state/workloads/default_chat/tiny"], ""),
        (["/models/sha256/abc"], "WrongModel"),
        (["/models/tiny/snapshot"], "WrongModel"),
        ([], "WrongModel"),
    ],
)
def test_it_is_known_by_the_name_of_the_folder_that_it_lists(
    listed: list[str], reason: str
) -> None:
    found = MLX.serving({"data": [{"id": path} for path in listed]}, ("tiny",))

    assert found.reason == reason
    assert [model.name for model in found.models] == ([] if reason else ["tiny"])


@pytest.mark.parametrize("document", [None, [], {"data": 1}, {"data": [{"id": 7}]}, ""])
def test_an_answer_that_is_no_list_of_models_is_no_proof(document: object) -> None:
    assert MLX.serving(document, ("tiny",)).reason == "WrongModel"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--model", "x"), "set modelRef"),
        (("--trust-remote-code",), "runs programs"),
        (("--adapter-path", "/x"), "files of the node"),
        (("--prompt-cache-bytes", "1"), "set promptCache"),
        (("--pipeline",), "not in the list"),
        (("--temp", "warm"), "not a valid value for --temp"),
    ],
)
def test_an_argument_that_would_change_what_was_admitted_is_refused(
    args: tuple[str, ...], why: str
) -> None:
    ((_, reason),) = MLX.check_args(args)

    assert why in reason


# --- the real program


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(StateDir.open(tmp_path / "state"), ADMITS_ALL, timing=QUICK)
    processes.start()
    yield processes
    processes.close(stop_children=True)


def _launch(state: Path, model: Path, name: str = "tiny-mlx", **spec: Any) -> Launch:
    wanted = engines.service(runtime="mlx-lm", modelRef=name, **spec)
    port = own_port()
    directory = StateDir.open(state).workload_dir(wanted.ref)
    facts = NodeFacts(
        (str(PROGRAM),), str(port), directory=str(directory), model_paths={name: str(model)}
    )
    command = engines.render(wanted, facts)
    return Launch(
        ref=wanted.ref,
        command=command,
        inputs={},
        inputs_digest=digest([name, spec]),
        render_digest=command.digest,
        runtime="mlx-lm",
        port=port,
        models=(name,),
        drain_timeout_s=HOUR_S,
    )


def _chat(port: int, model: str, tokens: int = 2) -> tuple[int, dict[str, Any]]:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": tokens,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode()
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.e2e
def test_it_answers_by_the_models_name_and_by_no_name_of_a_hub(
    owner: Processes, tmp_path: Path
) -> None:
    launch = _launch(tmp_path / "state", tiny_mlx(tmp_path / "store" / "abc"))

    owner.run(launch)
    ready = wait_ready(owner, "chat")

    assert [(m.name, m.state) for m in ready.served] == [("tiny-mlx", "loaded")]
    status, answer = _chat(launch.port, "tiny-mlx")
    assert (status, answer["model"], answer["usage"]["completion_tokens"]) == (200, "tiny-mlx", 2)
    refused = [_chat(launch.port, name)[0] for name in ("abc", "org/tiny-mlx", "..", "tiny")]
    assert refused == [404, 404, 404, 404]
    assert _chat(launch.port, "tiny-mlx")[0] == 200


@pytest.mark.e2e
def test_the_model_before_cannot_be_asked_for_any_more(owner: Processes, tmp_path: Path) -> None:
    first = _launch(tmp_path / "state", tiny_mlx(tmp_path / "store" / "abc"), "old")
    second = _launch(tmp_path / "state", tiny_mlx(tmp_path / "store" / "def", seed=1), "new")
    owner.run(first)
    before = wait_ready(owner, "chat")

    owner.run(second)
    wait_for(lambda: wait_ready(owner, "chat").pid != before.pid, "replaced")

    assert _chat(second.port, "old")[0] == 404
    assert _chat(second.port, "new")[0] == 200


@pytest.mark.e2e
def test_a_model_that_cannot_be_loaded_is_never_ready(owner: Processes, tmp_path: Path) -> None:
    model = tiny_mlx(tmp_path / "store" / "abc")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])

    owner.run(_launch(tmp_path / "state", model))
    failed = wait_reason(owner, "chat", "EngineFailed")

    assert not failed.ready
    # either is the first to know
    assert re.match(r"/health answers 503|/v1/completions answers 404: .*\w", failed.message)


@pytest.mark.e2e
def test_a_stop_waits_for_the_requests_in_flight(owner: Processes, tmp_path: Path) -> None:
    launch = _launch(tmp_path / "state", tiny_mlx(tmp_path / "store" / "abc"))
    owner.run(launch)
    wait_ready(owner, "chat")
    answers: list[tuple[int, dict[str, Any]]] = []
    asking = threading.Thread(target=lambda: answers.append(_chat(launch.port, "tiny-mlx", 600)))
    asking.start()
    log = StateDir(tmp_path / "state").log_file(launch.ref)
    wait_for(lambda: "/v1/chat/completions" in log.read_text(), "the request is in flight")

    owner.stop(launch.ref)
    asking.join(timeout=PATIENCE_S)
    wait_gone(owner, "chat")

    ((status, answer),) = answers
    assert (status, answer["usage"]["completion_tokens"]) == (200, 600)
