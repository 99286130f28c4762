"""Single models behind one process: which are asked for, loaded again, and counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent.process import many
from agent.process.events import Rewrite, Rewritten
from agent.process.launch import Child, Identity, Launch
from agent.process.model_state import Failure, with_reasons
from reconciler.fleet.command import Probe, ServedModel
from reconciler.runtimes import RUNTIMES
from tests.support.owner import launch
from tests.support.ports import own_port
from tests.support.serving import Serving

_ROW = RUNTIMES["llamacpp-router"].many
assert _ROW is not None
ROW = _ROW
CHILD = Child(Identity(7, "1", "b"), "m", 0.0)


class Router(Serving):
    """Answers for itself and, on another port, as the process of each loaded model. `states`: of
    its models; `busy`: slots that work; `refuses`: models that it does not load."""

    def __init__(self, states: Mapping[str, str], busy: int | None = 0) -> None:
        self.states, self.busy = dict(states), busy
        self.refuses = self.hangs = frozenset[str]()
        self.reload: tuple[int, bytes] = (200, b"{}")
        self.loads: list[str] = []
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _handler(self)))
        self.port = self._server.server_port

    def models(self) -> object:
        return {
            "data": [
                {"id": n, "status": {"value": state, "args": ["--port", str(self.port)]}}
                for n, state in self.states.items()
            ]
        }

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        match path:
            case "/models?reload=1":
                return self.reload
            case "/models/load":
                self.loads.append(json.loads(body)["model"])
                return (400 if self.loads[-1] in self.refuses else 200), b"{}"
            case "/v1/models":
                return 200, json.dumps(self.models()).encode()
            case "/slots" if self.busy is not None:
                return 200, json.dumps([{"is_processing": True}] * self.busy).encode()
            case _:
                return (503 if self.hangs else 200), b"{}"


def _handler(router: Router) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def _answer(self, body: bytes) -> None:
            status, said = router.answer(self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: Any) -> None: ...

    return Handler


def routed(port: int, names: str = "abcd", preload: str = "", resident: int = 4) -> Launch:
    settings: dict[str, Any] = {f"models[{name}].preload": name in preload for name in names}
    inputs = {
        "models": [{"name": name} for name in names],
        "settings": settings | {"router.resident": resident},
    }
    made = launch("chat", port, runtime="llamacpp-router", models=tuple(names), inputs=inputs)
    probe = Probe(slots_path="/slots", live=True)
    return replace(made, command=replace(made.command, probe=probe), drain_timeout_s=0.0)


@pytest.mark.parametrize(
    ("states", "preload", "resident", "without", "up", "loads"),
    [
        ({"a": "unloaded", "b": "unloaded"}, "", 4, "", "b", "b"),  # what was up
        ({"a": "unloaded", "b": "unloaded"}, "a", 4, "", "b", "ba"),  # and what is to be
        ({"a": "loaded", "b": "unloaded"}, "ab", 4, "", "", "b"),  # but what is up
        ({"a": "loading", "b": "sleeping"}, "ab", 4, "", "ab", ""),
        ({"a": "unloaded", "b": "unloaded"}, "", 4, "", "", "a"),  # or else any
        ({"a": "loaded", "b": "unloaded"}, "", 4, "", "", ""),
        ({"a": "unloaded", "b": "unloaded"}, "ab", 1, "", "", "a"),  # up to its limit
        ({"a": "loaded", "b": "unloaded", "c": "unloaded"}, "abc", 2, "", "", "b"),
        ({"a": "unloaded", "b": "unloaded"}, "ab", 4, "a", "a", "b"),  # not what is left out
        ({"a": "unloaded", "b": "unloaded"}, "a", 4, "a", "a", "b"),
        ({"b": "unloaded"}, "a", 4, "", "a", "b"),  # nor what it does not list
    ],
)
def test_after_a_reload_what_was_up_and_what_is_to_be_is_loaded(
    states: dict[str, str], preload: str, resident: int, without: str, up: str, loads: str
) -> None:
    with Router(states) as router:
        wanted = routed(router.port, "".join(states), preload, resident)

        done = many.rewrite(Rewrite(3, wanted, CHILD, frozenset(without), tuple(up)), ROW)

    assert router.loads == list(loads)
    assert done == Rewritten(3, True, "", tuple(loads))


def test_a_model_that_a_request_has_loaded_meanwhile_is_refused_and_not_waited_for() -> None:
    with Router({"a": "unloaded", "b": "unloaded", "c": "unloaded"}) as router:
        router.refuses = frozenset("a")
        wanted = routed(router.port, "abc", "abc", resident=2)

        done = many.rewrite(Rewrite(3, wanted, CHILD, frozenset(), ("a",)), ROW)

        assert many.load(wanted, ROW, "ab") == ("b",)
    assert done.loading == ("b",)
    assert many.load(routed(own_port()), ROW, "ab") == ()


def test_a_reload_that_is_refused_says_what_the_router_answered() -> None:
    with Router({"a": "loaded"}) as router:
        wanted = Rewrite(3, routed(router.port, "a"), CHILD, frozenset(), ())
        router.reload = 400, b"no such file"
        refused = many.rewrite(wanted, ROW)
    gone = many.rewrite(replace(wanted, launch=routed(own_port())), ROW)

    assert refused == Rewritten(3, False, "/models?reload=1 answers 400: no such file")
    assert (gone.question, gone.done) == (3, False)
    assert "refused" in gone.message


@pytest.mark.parametrize(
    ("states", "of", "busy", "count"),
    [
        ({"a": "loaded", "b": "loaded", "c": "sleeping"}, None, 2, 4),
        ({"a": "loaded", "b": "loaded"}, "a", 2, 2),
        ({"a": "unloaded", "b": "loaded"}, "a", 2, 0),
        ({"a": "loaded", "b": "loaded"}, None, None, None),  # a process that does not say
        ({"a": "loading", "b": "loaded"}, "a", 2, None),  # it usually loads for a request
        ({"a": "loading", "b": "loaded"}, "b", 2, 2),
    ],
)
def test_requests_are_counted_at_the_processes_of_the_models_that_are_asked_for(
    states: dict[str, str], of: str | None, busy: int | None, count: int | None
) -> None:
    with Router(states, busy) as router:
        found = many.requests_in_flight(
            routed(router.port, "".join(states)), ROW, None if of is None else frozenset(of)
        )

    assert found == count


def test_of_a_router_that_is_gone_nothing_is_known() -> None:
    assert many.requests_in_flight(routed(own_port()), ROW, None) is None
    assert many.silent_models(routed(own_port()), ROW) == frozenset()


def test_a_loaded_model_is_silent_while_its_own_process_does_not_answer_well() -> None:
    with Router({"a": "loaded", "b": "unloaded", "c": "loading"}) as router:
        wanted = routed(router.port, "abc")
        well = many.silent_models(wanted, ROW)
        router.hangs = frozenset("a")
        ill = many.silent_models(wanted, ROW)

    assert (well, ill) == (frozenset(), frozenset("a"))


def test_only_a_model_that_failed_is_given_its_reason() -> None:
    served = (
        ServedModel("a", "failed", "LoadFailed", "code 1"),
        ServedModel("b", "failed", "LoadFailed", "code 1"),
        ServedModel("c", "loaded"),
    )
    why = [Failure("a", 2, "ModelCorrupt", "bytes"), Failure("c", 1, "Crashed", "before")]

    found = with_reasons(served, why)

    assert found == (ServedModel("a", "failed", "ModelCorrupt", "bytes"), *served[1:])
