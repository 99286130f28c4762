"""How a measurement goes, by parts: when it ends, what is believed, whose figures they are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from agent.bench.client import ask_by_clock, ask_by_engine
from agent.bench.protocol import BenchmarkBudget, figures
from agent.machine.machine import Machine
from agent.machine.processor import processor
from agent.machine.utilisation import device_utilisation
from agent.process.health import EngineAddress
from agent.state.benchmarks import ResultsWatch, alone, keep, read_results, results_file
from agent.state.directory import StateDir
from reconciler.api.errors import BenchmarkError
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.timing import Timing
from tests.api.test_benchmark import KEY, result
from tests.support.machines import RecordedNvml

STEADY = Timing(128, 0.1, 127, 2.0)


def test_it_ends_with_its_runs_or_with_its_time_whichever_comes_first() -> None:
    wanted = BenchmarkBudget(warmups=2, runs=5, longest_s=30.0)

    assert not wanted.is_done(4, 1.0)
    assert wanted.is_done(5, 1.0)
    assert wanted.is_done(2, 30.0)
    assert not wanted.is_done(1, 300.0), "one run tells nothing of its noise"
    assert BenchmarkBudget(warmups=0, runs=1, longest_s=30.0).is_done(1, 1.0), (
        "where one is asked for"
    )


def test_how_much_is_measured_is_what_the_service_says() -> None:
    assert BenchmarkBudget.of({"rollout.drainTimeout": 5.0}) == BenchmarkBudget(2, 5, 30.0)
    said = {"benchmark.warmupIterations": 0, "benchmark.iterations": 9}
    assert BenchmarkBudget.of({**said, "benchmark.minDuration": 1.5}) == BenchmarkBudget(0, 9, 1.5)


def test_the_figures_are_medians_and_apart_for_prompt_and_answer() -> None:
    slow, fast = Timing(128, 0.2, 127, 2.1), Timing(128, 0.1, 127, 1.9)
    found = figures([slow, STEADY, fast], most_variation=1.0)

    assert found.problem is None
    assert found.prompt is not None
    assert found.generation is not None
    assert found.prompt.tokens_per_second == 1280.0
    assert found.generation.tokens_per_second == 63.5


def test_what_is_too_noisy_is_said_and_not_used() -> None:
    found = figures([STEADY, Timing(128, 0.1, 127, 4.0)])

    assert found.problem == "too noisy: generation varies by 47%, and 10% is the most"
    assert found.generation is not None, "shown all the same"


def test_a_measurement_beside_traffic_says_so() -> None:
    found = figures([STEADY, STEADY], others=("default/other wrote 7 tokens for others",))

    assert found.problem == "beside traffic: default/other wrote 7 tokens for others"


def test_a_clock_that_jumps_moves_no_figure_and_leaves_no_time_of_measurement() -> None:
    found = figures([STEADY, STEADY], clock_jump_s=3600.0)

    assert found.generation is not None
    assert found.generation.tokens_per_second == 63.5
    assert found.problem is not None
    assert found.problem.startswith("the time of day jumped by 3600 s")
    assert figures([STEADY, STEADY], clock_jump_s=-0.2).problem is None


def test_an_engine_that_writes_next_to_nothing_has_no_speed() -> None:
    found = figures([STEADY, Timing(128, 0.1, 0, 0.0)])

    assert found.generation is None
    assert found.problem == "the engine wrote too few tokens to tell its speed"


# --- asking


class _Engine(BaseHTTPRequestHandler):
    """Answers each path with what `server.answers` holds for it: JSON, or lines of a stream."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))  # type: ignore[attr-defined]
        status, answer = self.server.answers[self.path]  # type: ignore[attr-defined]
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def engine(answers: dict[str, tuple[int, Any]]) -> Iterator[tuple[EngineAddress, list[Any]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Engine)
    server.answers, server.asked = answers, []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield EngineAddress("127.0.0.1", server.server_port), server.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


TIMINGS = RUNTIMES["llama-server"].timings
assert TIMINGS is not None
LLAMA = {
    "/tokenize": (200, {"tokens": list(range(300))}),
    "/completion": (
        200,
        {"timings": {"prompt_n": 128, "prompt_ms": 64.0, "predicted_n": 128, "predicted_ms": 254}},
    ),
}


def test_an_engine_that_times_itself_gets_128_tokens_and_nothing_from_a_cache() -> None:
    assert TIMINGS is not None
    with engine(LLAMA) as (address, asked):
        (timing,) = islice(ask_by_engine(address, TIMINGS, "tiny"), 1)

    assert timing == Timing(128, 0.064, 127, 0.254), "its first token came with the prompt"
    path, body = asked[1]
    assert path == "/completion"
    assert body["prompt"] == list(range(128))
    assert (body["n_predict"], body["cache_prompt"], body["seed"]) == (128, False, 1)


STREAM = b"".join(
    b"data: " + json.dumps(event).encode() + b"\n\n"
    for event in (
        {"choices": [{"text": ""}]},
        {"choices": [{"text": "fog"}]},
        {"choices": [{"text": " fog"}]},
        {"choices": [], "usage": {"prompt_tokens": 120, "completion_tokens": 101}},
    )
)


def test_any_other_engine_is_timed_by_its_stream_and_counts_its_own_tokens() -> None:
    answers = {"/v1/completions": (200, STREAM + b"data: [DONE]\n\n")}
    with engine(answers) as (address, asked):
        one, other = islice(ask_by_clock(address, "tiny"), 2)

    assert (one.prompt, one.generated) == (120, 100)
    assert one.prompt_s > 0
    assert other.generation_s >= 0
    first, second = (body["prompt"] for _, body in asked)
    assert first[:3] != second[:3], "an engine that keeps prompts must not know it yet"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((500, {"error": "out of memory"}), "/v1/completions answers 500"),
        ((200, b"data: {\n\n"), "no answer to measure"),
        ((200, b""), "the answer is empty"),
        ((200, b'data: {"choices": [{"text": "x"}]}\n\n'), "does not say how many tokens"),
        ((200, b"data: " + b"[" * 9000 + b"\n\n"), "nested too deep"),
    ],
)
def test_an_answer_that_cannot_be_measured_is_said(answer: tuple[int, Any], words: str) -> None:
    with (
        engine({"/v1/completions": answer}) as (address, _),
        pytest.raises(BenchmarkError, match=words),
    ):
        next(ask_by_clock(address, "tiny"))


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("/tokenize", {"tokens": [1, 2]}, "text of 2 tokens is too short"),
        ("/tokenize", {"tokens": ["a"]}, "answers without tokens"),
        ("/completion", {"content": "x"}, "answers without timings"),
        ("/completion", {"timings": {"prompt_n": None}}, "timings of another shape"),
    ],
)
def test_timings_that_make_no_sense_are_said(path: str, answer: Any, words: str) -> None:
    assert TIMINGS is not None
    with (
        engine(LLAMA | {path: (200, answer)}) as (address, _),
        pytest.raises(BenchmarkError, match=words),
    ):
        next(ask_by_engine(address, TIMINGS, "tiny"))


def test_an_engine_that_is_gone_is_said() -> None:
    with engine({}) as (address, _):
        pass
    with pytest.raises(BenchmarkError, match=r"no answer to measure: .*refused"):
        next(ask_by_clock(address, "tiny"))


# --- what is kept


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir.open(tmp_path / "state")


def test_a_newer_result_takes_the_place_of_the_older_one_and_of_no_other(state: StateDir) -> None:
    other = result(key=KEY.model_copy(update={"build": "b2"}))
    for each in (result(), other, result(measured_at=1.0)):
        keep(state, each)

    assert read_results(state.root) == (other, result(measured_at=1.0))


def test_a_measurement_that_went_wrong_leaves_the_good_one(state: StateDir) -> None:
    keep(state, result())
    keep(state, result(problem="too noisy"))

    assert [r.problem for r in read_results(state.root)] == [None, "too noisy"]


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', "[1, null]", "[" * 5000])
def test_a_damaged_file_of_results_is_set_aside(state: StateDir, text: str) -> None:
    results_file(state.root).write_text(text)
    assert read_results(state.root) == ()

    keep(state, result())

    assert read_results(state.root) == (result(),)
    assert results_file(state.root).with_name("benchmarks.json.corrupt").read_text() == text


def test_results_are_read_again_when_there_are_new_ones(state: StateDir) -> None:
    watch = ResultsWatch(state.root)
    assert watch.read() == ()
    keep(state, result())
    first = watch.read()
    assert first == (result(),)
    assert watch.read() is first, "nothing has changed, and nothing is read"

    keep(state, result(measured_at=2.0))

    assert watch.read() == (result(measured_at=2.0),)


def test_two_measurements_at_once_are_refused(state: StateDir) -> None:
    words = "another fleet-agent bench runs here"
    with alone(state), pytest.raises(BenchmarkError, match=words), alone(state):
        pass
    with alone(state):
        pass


# --- the machine


def test_a_device_that_does_not_tell_how_busy_it_is_is_unknown(tmp_path: Path) -> None:
    def machine(nvml: Any) -> Machine:
        return Machine(tmp_path, lambda *_: None, lambda: nvml)

    assert device_utilisation(machine(RecordedNvml({"busy": 40}, {}))) == (0.4, None)
    assert device_utilisation(machine(None)) == ()


@pytest.mark.parametrize(
    ("cpuinfo", "lscpu", "name"),
    [
        ("model name\t: AMD  EPYC 9354\nflags\t: avx2\n", None, "AMD EPYC 9354"),
        ("CPU implementer\t: 0x41\n", "Vendor ID: ARM\nModel name:   Neoverse-N1\n", "Neoverse-N1"),
        ("", None, None),
    ],
)
def test_a_processor_has_the_name_that_the_kernel_or_lscpu_gives(
    tmp_path: Path, cpuinfo: str, lscpu: str | None, name: str | None
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(cpuinfo)

    assert processor(Machine(tmp_path, lambda *_: lscpu, lambda: None)) == name
