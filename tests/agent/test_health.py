"""When a process counts as ready: it owns its port, answers, and serves its model."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from agent.process import health
from agent.process.ports import can_bind
from agent.process.sockets import listening_socket, still_listens
from reconciler.fleet.command import Probe
from tests.support import servers
from tests.support.agents import FakeAgent, sends
from tests.support.owner import launch
from tests.support.pids import alive
from tests.support.ports import own_port
from tests.support.wait import wait_for

PROBE = Probe(slots_path="/slots")
TINY = health.recogniser("llama-server", ("tiny",))
ROUTER = health.recogniser("llamacpp-router", ("tiny",))


class Answering:
    """A server of fixed JSON, which remembers what it was asked, and of who has the key. It finds
    nothing to POST to. A pair is a status and its JSON; `None` closes the connection."""

    def __init__(self, answers: Mapping[str, object], key: str | None = None) -> None:
        outer = self
        self.paths: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(404)

            def _answer(self, status: int) -> None:
                outer.paths.append(self.path)
                said = answers.get(self.path, (404, {}))
                if said is None:
                    self.close_connection = True
                    return
                if isinstance(said, tuple):
                    status, said = said
                if key and self.headers["Authorization"] != f"Bearer {key}":
                    status = 401 if self.path != "/health" else status
                body = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    def __enter__(self) -> Answering:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[tuple[int, int]]:
    """A living server: its pid and port."""
    port = own_port()
    child = subprocess.Popen(servers.argv(port, "--busy", "1"))
    wait_for(lambda: not can_bind("127.0.0.1", port))
    yield child.pid, port
    child.kill()
    child.wait()


def test_the_right_process_with_the_right_model_is_ready(server: tuple[int, int]) -> None:
    pid, port = server

    assert health.check(pid, "127.0.0.1", port, PROBE, TINY).ready


LISTS_TINY = {"data": [{"id": "tiny"}]}
SERVES: dict[str, object] = {"/health": {}, "/v1/models": LISTS_TINY, "/try": None}
READY = (True, "Ready", "")
NO_LIST = "/v1/models returned no list of models: "
TRIAL = Probe(trial=("/try", "{}"))
LOADING = (False, "Loading", "/health answers 503: loading")


# What a process answers, who asks for what, and what is said of it.
VERDICTS: dict[str, tuple[dict[str, object], dict[str, Any], tuple[bool, str, str]]] = {
    "all is well": ({}, {}, READY),
    "it loads": ({"/health": (503, {"error": {"message": "loading"}})}, {}, LOADING),
    "it loads, in a word": ({"/health": (503, {"error": "loading"})}, {}, LOADING),
    "it loads, without a word": ({"/health": (503, b"<html>")}, {},
                                 (False, "Loading", "/health answers 503")),
    "one that is healthy while it loads fails": ({"/health": (503, {})}, {"probe": TRIAL},
                                                 (False, "EngineFailed", "/health answers 503")),
    "it hangs up": ({"/health": None}, {},
                    (False, "Loading", "no answer on port {}: Remote end closed connection"
                     " without response")),
    "it was ready, and hangs up": ({"/health": None}, {"was_ready": True},
                                   (False, "NotResponding", "no answer on port {}: Remote end"
                                    " closed connection without response")),
    "it was ready, and is not well": ({"/health": (503, {})}, {"was_ready": True},
                                      (False, "NotResponding", "/health answers 503")),
    "its list comes later": ({"/v1/models": (503, {})}, {},
                             (False, "Loading", "/v1/models answers 503")),
    "its list is none": ({"/v1/models": b"<html>"}, {},
                         (False, "Loading", f"{NO_LIST}JSONDecodeError")),
    "it hangs up on the list": ({"/v1/models": None}, {},
                                (False, "Loading", f"{NO_LIST}RemoteDisconnected")),
    "it has no list": ({"/v1/models": None}, {"probe": Probe(models_path=None)}, READY),
    "its list is long known": ({"/v1/models": None}, {"proven": True}, READY),
    "its list changes": ({"/v1/models": (503, {})}, {"proven": True, "probe": Probe(live=True)},
                         (False, "Loading", "/v1/models answers 503")),
    "it has not answered a request yet": ({}, {"probe": TRIAL},
                                          (False, "Loading", "has not answered a request yet")),
    "it answered one in another life": ({}, {"probe": TRIAL, "was_ready": True}, READY),
    "it asks for its key": ({}, {"asks": "secret", "key": "secret"}, READY),
    "it asks for another key": ({}, {"asks": "secret", "key": "another"},
                                (False, "Loading", "/v1/models answers 401")),
    "it asks for no key": ({}, {"key": "secret"},
                           (False, "KeyNotAsked", "/v1/models answers 200 without the API key;"
                            " stop it, and use another engine")),
    "it asked for its key before": ({}, {"key": "secret", "proven": True,
                                         "probe": Probe(live=True)}, READY),
}  # fmt: skip


@pytest.mark.parametrize(("answers", "asked", "verdict"), VERDICTS.values(), ids=VERDICTS)
def test_a_process_is_ready_once_all_that_it_is_asked_is_answered_well(
    answers: dict[str, object], asked: dict[str, Any], verdict: tuple[bool, str, str]
) -> None:
    here = os.getpid()
    words = {"probe": PROBE, **asked}
    with Answering(SERVES | answers, words.pop("asks", None)) as server:
        known = listening_socket(here, server.port) if words.pop("proven", False) else None
        probe = words.pop("probe")

        found = health.check(here, "127.0.0.1", server.port, probe, TINY, known=known, **words)

    is_ready, reason, message = verdict
    assert (found.ready, found.reason) == (is_ready, reason)
    assert found.message == message.format(server.port)
    if found.listening is not None:
        assert found.listening.port == server.port


@pytest.mark.parametrize(("was_ready", "reason"), [(False, "Loading"), (True, "NotResponding")])
def test_a_process_that_is_silent_loads_until_it_was_ready_once(
    was_ready: bool, reason: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        found = health.check(
            os.getpid(), "127.0.0.1", port, PROBE, TINY, was_ready=was_ready, timeout_s=0.05
        )

    assert (found.ready, found.reason) == (False, reason)
    assert found.message == f"no answer on port {port} within 0.05 s"


@pytest.mark.parametrize(
    ("slots", "gauge", "busy"),
    [
        ([{"is_processing": True}, {"is_processing": False}, {}, "odd"], b"waits 2\n", 3),
        ([{"is_processing": True}], (503, b"waits 2\n"), 1),
        ([{"is_processing": True}], None, 1),
        ([{"is_processing": False}], b"waits 2\n", 0),
        ((503, [{"is_processing": True}]), b"waits 2\n", None),
        ({"slots": 1}, b"waits 2\n", None),
        (None, b"waits 2\n", None),
    ],
)
def test_requests_that_wait_for_a_busy_slot_count_too(
    slots: object, gauge: object, busy: int | None
) -> None:
    with Answering({"/slots": slots, "/metrics": gauge}) as engine:
        asked = launch("chat", engine.port)
        probe = Probe(slots_path="/slots", queue=("/metrics", "waits"))

        found = health.requests_in_flight(
            replace(asked, command=replace(asked.command, probe=probe))
        )

    assert found == busy


@pytest.mark.parametrize("error", ["no weights", {"message": "no weights"}])
def test_a_refused_request_of_ours_says_why(error: object) -> None:
    answers = {"/health": {}, "/v1/models": {"data": [{"id": "tiny"}]}, "/try": {"error": error}}

    with Answering(answers) as server:
        probe = Probe(trial=("/try", "{}"))
        found = health.check(os.getpid(), "127.0.0.1", server.port, probe, TINY)

    assert (found.ready, found.reason) == (False, "EngineFailed")
    assert found.message == "/try answers 404: no weights"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"value": "unloaded"}, ("Loading", "no model is loaded yet")),
        ({"value": "unloaded", "failed": True}, ("ModelsFailed", "failed to load: tiny")),
        ({"value": "loaded"}, ("Ready", "")),
        ({"value": "sleeping"}, ("Ready", "")),
        ("strange", ("Loading", "no model is loaded yet")),
    ],
)
def test_a_router_is_ready_once_one_model_is_loaded(
    status: object, expected: tuple[str, str]
) -> None:
    port = own_port()
    with subprocess.Popen(servers.argv(port, "--model-status", json.dumps(status))) as router:
        wait_for(lambda: not can_bind("127.0.0.1", port))

        found = health.check(router.pid, "127.0.0.1", port, Probe(live=True), ROUTER)
        router.kill()

    assert (found.reason, found.message) == expected


def test_an_answer_by_another_process_is_no_readiness(server: tuple[int, int]) -> None:
    pid, port = server
    with subprocess.Popen(["sleep", "600"]) as other:
        found = health.check(other.pid, "127.0.0.1", port, PROBE, TINY)
        other.kill()

    assert (found.ready, found.reason) == (False, "PortInUse")
    assert f"is answered by pid {pid} (" in found.message


def test_who_answers_in_a_processs_place_does_not_learn_its_key() -> None:
    with subprocess.Popen(["sleep", "600"]) as ours, FakeAgent("thief") as thief:
        thief.behaves = sends(b'{"data": [{"id": "tiny"}]}')

        found = health.check(ours.pid, "127.0.0.1", thief.port, PROBE, TINY, key="secret")
        ours.kill()

    assert found.reason == "PortInUse"
    assert thief.requests
    assert set(thief.tokens) == {None}


def test_a_socket_of_a_child_counts_as_the_parents(server: tuple[int, int]) -> None:
    _, port = server

    assert listening_socket(os.getpid(), port) is not None


def test_a_dead_process_owns_nothing(server: tuple[int, int]) -> None:
    _, port = server
    child = subprocess.Popen(["true"])
    child.wait()

    assert listening_socket(child.pid, port) is None


def test_the_proof_of_ownership_ends_with_the_process(server: tuple[int, int]) -> None:
    pid, port = server
    proof = health.check(pid, "127.0.0.1", port, PROBE, TINY).listening
    assert proof is not None

    before = still_listens(proof)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))

    assert before
    assert not still_listens(proof)


def test_nothing_on_the_port_is_loading() -> None:
    found = health.check(os.getpid(), "127.0.0.1", own_port(), PROBE, TINY)

    assert found == health.HealthVerdict(False, "Loading", "does not listen yet", silent=True)


def test_in_a_pod_who_answers_with_the_right_model_is_ready() -> None:
    """Nobody else can listen there, and the process is not to be seen."""
    with Answering({"/health": {}, "/v1/models": LISTS_TINY}) as good:
        ready = health.check_alone(launch("chat", good.port))
        assert health.answers(launch("chat", good.port))
    with Answering({"/health": {}, "/v1/models": {"data": [{"id": "other"}]}}) as other:
        wrong = health.check_alone(launch("chat", other.port))
    nobody = launch("chat", own_port())

    assert (ready.ready, wrong.ready, wrong.reason) == (True, False, "WrongModel")
    assert health.check_alone(nobody).silent
    assert not health.answers(nobody)


def test_requests_in_flight_are_counted(server: tuple[int, int]) -> None:
    _, port = server

    assert health.busy_slots("127.0.0.1", port, "/slots") == 1


@pytest.mark.parametrize("path", ["/health", "/nowhere"])
def test_slots_that_cannot_be_read_are_unknown_and_not_zero(
    server: tuple[int, int], path: str
) -> None:
    _, port = server

    assert health.busy_slots("127.0.0.1", port, path) is None
    assert health.busy_slots("127.0.0.1", own_port(), "/slots") is None


@pytest.mark.parametrize(
    ("sleep_idle", "props", "expected"),
    [
        (3.0, {"is_sleeping": True}, ("sleeping",)),
        (3.0, {"is_sleeping": False}, ("loaded",)),
        (3.0, {}, ("loaded",)),
        (None, {"is_sleeping": True}, ()),  # it cannot sleep: nobody asks
    ],
)
def test_a_model_that_sleeps_is_known_without_waking_it(
    sleep_idle: float | None, props: dict[str, bool], expected: tuple[str, ...]
) -> None:
    with Answering({"/props": props}) as engine:
        inputs = {"settings": {"sleepIdle": sleep_idle}}
        asked = launch("chat", engine.port, inputs=inputs, runtime="llama-server")

        found = health.with_sleep(asked, health.HealthVerdict(True))

    assert tuple(model.state for model in found.served) == expected
    assert engine.paths == (["/props"] if sleep_idle else [])


def test_who_does_not_say_whether_it_sleeps_is_as_before() -> None:
    ready = health.HealthVerdict(True)
    inputs = {"settings": {"sleepIdle": 3.0}}

    found = health.with_sleep(
        launch("chat", own_port(), inputs=inputs, runtime="llama-server"), ready
    )

    assert found == ready
