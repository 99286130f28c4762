"""`fleet-agent pod bench`: the container of a benchmark's Job, against an engine elsewhere."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.benchmark import BenchmarkKey, DeviceClass
from reconciler.runtimes.runtime import NodeFacts
from tests.support.engines import Server, render, service
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import llama_server
from tests.support.pods import run, running
from tests.support.ports import own_port
from tests.support.routers import stream
from tests.support.serving import Serving
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

KEY = BenchmarkKey(
    model="ab" * 32,
    runtime="llama-server",
    build="image@sha256:1",
    settings="cd" * 32,
    device=DeviceClass(vendor="NVIDIA", arch="sm_89", memory_gib=23, count=1),
)
OK, FAILED, NOT_USED, USAGE = 0, 1, 3, 64


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Server]:
    port = own_port()
    facts = NodeFacts(
        binary=(str(llama_server()),),
        port=str(port),
        threads="1",
        directory=str(tmp_path / "engine"),
        model_paths={"tiny": str(tiny_llama(tmp_path / "tiny.gguf"))},
    )
    command = render(service(contextSize=4096, parallelSlots=2), facts)
    with Server(command, port, tmp_path / "engine") as started:
        yield started.wait_ready()


def words(port: int, log: Path, **changes: str) -> tuple[str, ...]:
    said = {
        "host": "127.0.0.1",
        "port": str(port),
        "model": "tiny",
        "service": "default/chat",
        "node": "edge-1",
        "key": KEY.model_dump_json(by_alias=True, exclude_none=True),
        "warmups": "1",
        "runs": "3",
        "max-variation": "1000",  # the machine of a test is busy with other tests
        "termination-log": str(log),
        **changes,
    }
    return ("bench", *(word for name, value in said.items() for word in (f"--{name}", value)))


def test_it_leaves_its_result_as_the_termination_message(tmp_path: Path, engine: Server) -> None:
    log = tmp_path / "log"

    ended = run(*words(engine.port, log))

    assert ended.code == OK, ended.err
    found: dict[str, Any] = json.loads(log.read_text())
    assert found["key"] == json.loads(KEY.model_dump_json(by_alias=True, exclude_none=True))
    assert (found["service"], found["node"], found["timings"]) == (
        "default/chat",
        "edge-1",
        "engine",
    )
    assert len(found["generation"]["samples"]) == found["iterations"] == 3
    assert "problem" not in found, "its own tokens are not another's"


def test_beside_traffic_nothing_is_measured(tmp_path: Path, engine: Server) -> None:
    log = tmp_path / "log"

    with stream(engine.port, "tiny") as seen:
        wait_for(lambda: seen.chunks > 0, "a request is being served")
        ended = run(*words(engine.port, log, wait="0s"))

    assert ended.code == FAILED
    assert log.read_text() == "Failed: it serves 1 request, and nothing is measured beside them\n"


def test_an_engine_that_dies_in_the_middle_leaves_no_figure(tmp_path: Path, engine: Server) -> None:
    log = tmp_path / "log"
    many = words(engine.port, log, runs="1000", longest="10m")

    with running(tmp_path / "said", *many) as program:
        wait_for(lambda: "run 3 of 100" in program.said, "it measures")
        assert engine.process is not None
        engine.process.send_signal(signal.SIGKILL)
        assert program.ended() == FAILED

    assert log.read_text().startswith("Failed: no answer to measure: ")


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("{", "--key is no key of a benchmark"),
        ('{"model": "x"}', "--key is no key of a benchmark"),
        (
            KEY.model_copy(update={"runtime": "abacus"}).model_dump_json(
                by_alias=True, exclude_none=True
            ),
            "--key: there is no runtime abacus",
        ),
    ],
)
def test_a_key_that_is_none_is_a_wrong_command(tmp_path: Path, key: str, why: str) -> None:
    ended = run(*words(own_port(), tmp_path / "log", key=key))

    assert ended.code == USAGE
    assert why in ended.err


def test_nobody_there_is_said(tmp_path: Path) -> None:
    log = tmp_path / "log"

    ended = run(*words(own_port(), log, wait="0s"))

    assert ended.code == FAILED
    assert "no answer to measure" in log.read_text()


class _Engine(Serving):
    """Answers as llama.cpp does, in no time; `counted` are the tokens that it tells it has written,
    at each time it is asked."""

    def __init__(self, *counted: int) -> None:
        self.counted = list(counted)
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _handler(self)))

    @property
    def port(self) -> int:
        return self._server.server_address[1]


def _handler(engine: _Engine) -> type[BaseHTTPRequestHandler]:
    timings = {"prompt_n": 128, "prompt_ms": 10, "predicted_n": 128, "predicted_ms": 100}
    answers: dict[str, object] = {
        "/slots": [{"is_processing": False}],
        "/tokenize": {"tokens": list(range(200))},
        "/completion": {"timings": timings},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._send(f"llamacpp:tokens_predicted_total {engine.counted.pop(0)}\n")
            else:
                self._send(json.dumps(answers[self.path]))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(json.dumps(answers[self.path]))

        def _send(self, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    return Handler


@pytest.mark.parametrize(
    ("after", "code", "told"),
    [
        (1000 + 4 * 128, OK, '"tokensPerSecond":1270.0'),
        (1000 + 4 * 128 + 7, NOT_USED, "beside traffic: default/chat wrote 7 tokens for others"),
        (12, FAILED, "its engine was started again in the middle of the measurement"),
    ],
    ids=["its own", "others", "another engine"],
)
def test_the_engines_own_counter_tells_whose_tokens_it_wrote(
    tmp_path: Path, after: int, code: int, told: str
) -> None:
    log = tmp_path / "log"

    with _Engine(1000, after) as engine:
        ended = run(*words(engine.port, log))

    assert ended.code == code, ended.err
    assert told in log.read_text()
