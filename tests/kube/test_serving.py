"""What a reconciler in a cluster answers, asked over real connections."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.console.value import Listen, listen_address
from reconciler.core.observation import Observation, TargetState
from reconciler.core.plan import Action, Blocked, Change
from reconciler.core.target import Outcome, Result
from reconciler.kube.server import Serves
from reconciler.kube.server.board import Board, Role
from reconciler.kube.server.metrics import collect
from reconciler.kube.server.thread import OperatorServer
from reconciler.kube.server.webhook import MOST_BODY_BYTES
from reconciler.kube.status.conditions import Condition
from reconciler.kube.status.fleet_status import FleetView, fleet_status
from reconciler.loop import Pass, Wake
from reconciler.loop.desired import Desired
from reconciler.loop.failure import LoopStep, StepFailure
from reconciler.loop.interfaces import Following
from reconciler.page.values import Documents
from reconciler.report.status import Status
from reconciler.report.status_json import status_json
from reconciler.source.history import RevisionVerdict, SourceRecord, VerdictKind
from tests.support.builders import instance, ref
from tests.support.cluster_views import desired, fleet, nothing_to_do
from tests.support.ports import own_port
from tests.support.wait import PATIENCE_S, wait_for

SECRET = b"hunter2"
BODY = b'{"ref": "refs/heads/main"}'
CHAT = desired(fleet(chat={}))
FLEET = Documents("home", status_json(Status(Observation({}, ()))), None)


NOTHING_SEEN = Observation({}, ())


def nothing_planned(want: Desired = CHAT, **options: Any) -> Pass:
    return Pass(want, NOTHING_SEEN, nothing_to_do(want, **options))


class Served:
    """A server, and the board that it answers from."""

    def __init__(self, board: Board, port: int, woken: Wake) -> None:
        self.board, self.port, self.woken = board, port, woken

    def ask(
        self, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text[:1] == b"{" else {"text": text.decode()}

    def hook(self, body: bytes = BODY, secret: bytes = SECRET) -> int:
        tag = hmac.new(secret, body, hashlib.sha256).hexdigest()
        return self.ask("POST", "/hook", body, X_Hub_Signature_256=f"sha256={tag}")[0]


@contextmanager
def serving(
    secret: Path | None = None,
    *,
    leads: bool = True,
    holder: str = "",
    host: str = "127.0.0.1",
    token: Path | None = None,
    **options: Any,
) -> Iterator[Served]:
    board, woken = Board(lambda: Role(leads, holder)), Wake()
    woken.wait(0)  # a new one asks for a fetch by itself
    serves = Serves(Listen(host, 0), secret, token)
    server = OperatorServer(board, lambda: FLEET, serves, woken.fetch, **options)
    server.start()
    try:
        port = server.wait(PATIENCE_S)
        assert port is not None
        yield Served(board, port, woken)
    finally:
        server.close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    return path


def test_health_is_the_loops_and_readiness_waits_for_a_revision() -> None:
    with serving() as served:
        assert served.ask("GET", "/healthz")[0] == 200
        status, said = served.ask("GET", "/readyz")
        assert (status, said["notReady"]) == (503, ["no revision was followed yet"])

        served.board.on_planned(nothing_planned())

        assert served.ask("GET", "/readyz") == (
            200,
            {"ready": True, "role": "leader", "holder": None, "notReady": []},
        )


def test_one_that_stands_by_is_ready_and_names_who_leads() -> None:
    with serving(leads=False, holder="pod-a_1") as served:
        served.board.on_planned(nothing_planned())

        status, said = served.ask("GET", "/readyz")

        assert (status, said["role"], said["holder"]) == (200, "standby", "pod-a_1")


def test_a_defect_makes_it_not_ready_and_is_the_condition_of_a_fleet_until_it_is_over() -> None:
    message = "InternalError: a bug in this program: KeyError: 'planted'"
    verdict = RevisionVerdict(VerdictKind.FAILED, "new", 1.0, message)
    following = Following("here", "main", "new", "old", SourceRecord(verdict=verdict))
    view = FleetView(following, Condition("Applied", "True", "Applied", ""), "old", 1)
    with serving() as served:
        board = served.board
        board.on_planned(nothing_planned())
        ready = served.ask("GET", "/readyz")[0]
        board.on_fetched(following)
        read = served.ask("GET", "/readyz")
        board.on_fetched(Following("here", "main", "newer", "newer", SourceRecord()))
        board.on_failures({LoopStep.SYNC: StepFailure(message, is_defect=True)})
        passed = served.ask("GET", "/readyz")
        held = gauge(board, "fleet_revision_held")
        board.on_failures({LoopStep.SYNC: StepFailure("the disk is full", is_defect=False)})
        over = served.ask("GET", "/readyz")[0]

    status = fleet_status(view, {"metadata": {"name": "home"}}, "2026-01-01T00:00:00Z")
    current = next(c for c in status["conditions"] if c["type"] == "Current")
    assert (ready, over, held) == (200, 200, {(): 1})
    assert [answer[0] for answer in (read, passed)] == [503, 503]
    assert message in str(read[1])
    assert message in str(passed[1])
    assert (current["status"], current["reason"]) == ("False", "InternalError")
    assert current["message"] == f"{message}; old stays applied"
    assert status["held"]["revision"] == "new"


def test_a_source_that_is_gone_for_long_makes_it_not_ready_and_no_less_alive() -> None:
    with serving() as served:
        served.board.on_planned(nothing_planned())
        served.board.on_source_lost("no route to host", since=0.0)

        assert served.ask("GET", "/readyz")[0] == 503
        assert served.ask("GET", "/healthz")[0] == 200

        served.board.on_source_back()

        assert served.ask("GET", "/readyz")[0] == 200


def test_metrics_are_what_the_loop_saw_last() -> None:
    blocked = Blocked(ref("big"), "MemoryFits", "", None)
    states = {"cluster/prod": TargetState("cluster/prod", reachable=False)}
    change = Change(Action.UPDATE, "cluster/prod", ref(), "SettingsChanged", None)
    observed = Observation(states, (instance(target="cluster/prod"),))
    planned = nothing_planned(blocked=(blocked,), changes=(change,))
    with serving() as served:
        served.board.on_planned(planned)
        served.board.on_observed(observed)
        served.board.on_applied(replace(planned, outcomes=(Outcome(change, Result.APPLIED),)))
        served.board.on_ended(0.25)

        text = served.ask("GET", "/metrics")[1]["text"]

    found = {
        (s.name, *sorted(s.labels.values())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    assert found["fleet_is_leader",] == 1
    assert found["fleet_plan", "update"] == 1
    assert found["fleet_blocked", "MemoryFits"] == 1
    assert found["fleet_target_reachable", "cluster/prod"] == 0
    assert found["fleet_instances", "cluster/prod", "true"] == 1
    assert found["fleet_changes_total", "applied", "update"] == 1
    assert found["fleet_pass_seconds",] == 0.25
    assert found["fleet_source_lost_seconds",] == 0


def gauge(board: Board, name: str) -> dict[tuple[str, ...], float]:
    """Its values by those of its labels."""
    [found] = [family for family in collect(board) if family.name == name]
    return {tuple(sample.labels.values()): sample.value for sample in found.samples}


def a_board() -> Board:
    return Board(lambda: Role(True))


def test_a_service_that_never_came_has_a_series_while_it_is_declared() -> None:
    wanted = desired(fleet(chat={}, search={}, off={"suspend": True}))
    blocked = Blocked(ref("late"), "MemoryFits", "", None)
    board = a_board()
    board.on_observed(Observation({}, (instance(target="cluster/prod"),)))

    board.on_planned(nothing_planned(wanted, blocked=(blocked,)))
    declared = gauge(board, "fleet_service_ready")
    board.on_planned(nothing_planned())

    assert declared == {
        ("default/chat", "cluster/prod"): 1,
        ("default/search", "cluster/prod"): 0,
        ("default/late", ""): 0,
    }
    assert gauge(board, "fleet_service_ready") == {("default/chat", "cluster/prod"): 1}


def test_a_step_counts_as_failing_until_it_succeeds_or_is_not_to_be_made_any_more() -> None:
    steps = [Change(Action.UPDATE, "cluster/prod", ref(name), "", None) for name in "abc"]
    board = a_board()

    def tried(result: Result, *changes: Change) -> dict[tuple[str, ...], float]:
        planned = nothing_planned(changes=changes)
        board.on_planned(planned)
        outcomes = tuple(Outcome(change, result) for change in changes[:1])
        board.on_applied(replace(planned, outcomes=outcomes))
        return gauge(board, "fleet_changes_failing")

    assert tried(Result.FAILED, *steps) == {("cluster/prod",): 1}
    assert tried(Result.FAILED, *reversed(steps)) == {("cluster/prod",): 2}
    assert tried(Result.APPLIED, *steps) == {("cluster/prod",): 1}
    assert tried(Result.SKIPPED, *steps[:2]) == {}


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        (VerdictKind.REFUSED, "fleet_revision_refused"),
        (VerdictKind.HELD, "fleet_revision_held"),
        (VerdictKind.FAILED, "fleet_revision_held"),
    ],
)
def test_a_revision_that_is_not_followed_is_a_gauge_while_it_is_the_newest(
    kind: VerdictKind, metric: str
) -> None:
    board, record = a_board(), SourceRecord(verdict=RevisionVerdict(kind, "new", 1.0, "why"))

    before = gauge(board, metric)
    board.on_fetched(Following("here", "main", "new", "old", record))
    while_so = gauge(board, metric)
    board.on_fetched(Following("here", "main", "newer", "newer", record))

    assert (before, while_so, gauge(board, metric)) == ({(): 0}, {(): 1}, {(): 0})


def test_a_signed_call_wakes_the_loop(secret: Path) -> None:
    with serving(secret) as served:
        assert served.hook() == 202

        assert served.woken.wait(PATIENCE_S)
        assert served.board.hooks == {"taken": 1}


def test_a_call_that_is_not_signed_is_told_nothing_and_wakes_nobody(secret: Path) -> None:
    with serving(secret) as served:
        answers = [
            served.hook(secret=b"guess"),
            served.ask("POST", "/hook", BODY)[0],
            served.ask("POST", "/hook", BODY, X_Gitlab_Token="guess")[0],
            served.ask("POST", "/hook", BODY, X_Hub_Signature_256="sha256=\xff")[0],
        ]

        assert answers == [401] * 4
        assert not served.woken.wait(0.0)


def test_without_a_secret_there_is_no_webhook(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for path in (None, tmp_path / "absent", empty):
        with serving(path) as served:
            assert served.hook(secret=b"") == 404


def test_a_secret_that_changes_counts_at_once(secret: Path) -> None:
    with serving(secret) as served:
        secret.write_bytes(b"next\n")

        assert served.hook() == 401
        assert served.hook(secret=b"next") == 202


def test_a_flood_of_calls_is_held_off_and_keeps_no_signed_one_away(secret: Path) -> None:
    now = [0.0]
    with serving(secret, clock=lambda: now[0]) as served:
        flood = [served.hook(secret=b"guess") for _ in range(40)]
        assert flood == [401] * 20 + [429] * 20
        assert [served.hook() for _ in range(30)] == [202] * 30

        now[0] += 2.0
        assert [served.hook(secret=b"guess") for _ in range(5)] == [401] * 4 + [429]
        assert served.ask("GET", "/healthz")[0] == 200


def _too_long(port: int) -> bytes:
    return _raw(port, b"Content-Length: 1048577\r\n\r\n")


def _unending(port: int) -> bytes:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    return _raw(port, b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 17)


def _no_length(port: int) -> bytes:
    return _raw(port, b"Content-Length: many\r\n\r\n")


def _raw(port: int, rest: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        with contextlib.suppress(OSError):  # it has answered and closed before all was sent
            connection.sendall(b"POST /hook HTTP/1.1\r\nHost: x\r\n" + rest)
        try:
            return connection.recv(64)
        except ConnectionResetError:
            return b"reset"


@pytest.mark.e2e
def test_a_body_that_drips_does_not_keep_its_connection(secret: Path) -> None:
    with (
        serving(secret) as served,
        socket.create_connection(("127.0.0.1", served.port), timeout=0.5) as connection,
    ):
        connection.sendall(b"POST /hook HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")

        wait_for(lambda: _drips_in_vain(connection), "the end of a request that does not end")


def _drips_in_vain(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"x")
        return not connection.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    ("attack", "answers"),
    [(_too_long, (b" 413 ",)), (_unending, (b" 413 ", b"reset")), (_no_length, (b" 400 ",))],
)
def test_a_hostile_body_is_refused_before_it_is_held_in_memory(
    attack: Callable[[int], bytes], answers: tuple[bytes, ...], secret: Path
) -> None:
    with serving(secret) as served:
        answer = attack(served.port)

        assert any(expected in answer for expected in answers), answer
        assert served.hook() == 202


def test_the_largest_body_that_is_let_in_is_read_whole(secret: Path) -> None:
    with serving(secret) as served:
        assert served.hook(b"x" * MOST_BODY_BYTES) == 202


def test_only_what_is_there_is_answered(secret: Path) -> None:
    with serving(secret) as served:
        assert served.ask("GET", "/hook")[0] == 405
        assert served.ask("GET", "/v1/state")[0] == 404
        assert served.ask("POST", "/readyz")[0] == 405


def test_a_port_that_is_taken_stops_nothing_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = own_port()
    with socket.create_server(("127.0.0.1", port)) as other:
        board = Board(lambda: Role(leads=True))
        server = OperatorServer(
            *(board, lambda: FLEET, Serves(Listen("127.0.0.1", port)), lambda: None),
            retry_s=0.05,
        )
        server.start()
        try:
            wait_for(lambda: caplog.text.count("tries again") > 1, "two attempts")
            assert server.port is None
            other.close()

            wait_for(lambda: server.port == port, "the port")
        finally:
            server.close()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("0.0.0.0:8080", "0.0.0.0", 8080),
        ("[::1]:0", "::1", 0),
        (":9", "0.0.0.0", 9),
        ("localhost:80", "localhost", 80),
    ],
)
def test_an_address_to_listen_on_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert listen_address(text) == Listen(host, port)


@pytest.mark.parametrize("text", ["8080", "host:", "host:http", "::1:80", "[::1:80", "a:70000", ""])
def test_what_is_no_address_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        listen_address(text)
