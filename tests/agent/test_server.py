"""What a node says of itself over HTTP, asked of a real one with a tiny engine."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema_rs
import psutil
import pytest

from agent.cli import main, status
from agent.server import ListenSettings, served
from reconciler.console.edge import Exit
from reconciler.loop import Wake
from tests.support.builders import ref
from tests.support.fleets import model, service
from tests.support.ports import own_port
from tests.support.served_node import Heard, Reply, ServedNode
from tests.support.wait import PATIENCE_S, wait_for

SCHEMA = Path(__file__).parents[2] / "schemas" / "nodestate.json"
LOG = "/v1/logs?service=default/chat"
CHAT = {"chat.yaml": service("chat", "tiny")}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServedNode]:
    with ServedNode.open(tmp_path, CHAT) as opened:
        opened.wait_ready()
        yield opened


def test_the_state_says_what_runs_and_keeps_to_its_schema(node: ServedNode) -> None:
    answer = node.get("/v1/state")

    state = answer.json()
    [chat] = state["instances"]
    assert answer.headers["content-type"] == "application/json"
    assert (state["node"], state["formatVersion"]) == ("mac", 1)
    assert (chat["name"], chat["ready"], chat["reason"]) == ("default/chat", True, "Ready")
    assert chat["pid"] == node.node.agent.processes.snapshot()[0].pid
    assert state["revision"]["applied"] == state["revision"]["fetched"]
    [llama] = [runtime for runtime in state["runtimes"] if runtime["name"] == "llama-server"]
    assert Path(llama["path"]).exists()
    assert_valid(state)


def test_a_refused_revision_and_a_failed_download_are_in_the_state(node: ServedNode) -> None:
    gone = {
        "gone.yaml": service("gone", "gone"),
        "gone-model.yaml": model("gone", source="https://127.0.0.1:1/gone.gguf"),
    }
    node.write(gone)
    wait_for(lambda: "DownloadFailed" in reasons(node.state_now()), "a failed download")
    waiting = node.state_now()
    node.write({"bad.yaml": service("bad", "nobody")})
    wait_for(lambda: "refused" in node.state_now()["revision"], "a refused revision")

    state = node.state_now()

    [missing] = [i for i in waiting["instances"] if i["name"] == "default/gone"]
    assert not missing["ready"]
    assert waiting["downloads"][0]["reason"] == "DownloadFailed"
    assert "bad.yaml" in state["revision"]["refused"]["problems"][0]
    assert_valid(waiting)
    assert_valid(state)


def test_a_node_has_pages_that_run_nothing_from_elsewhere(node: ServedNode) -> None:
    node.write({"big.yaml": service("big", "tiny", contextSize=2**27)})
    wait_for(lambda: "default/big" in node.get("/").text, "what does not fit is on the page")

    fleet, chat, plan = (node.get(p) for p in ("/", "/services/default/chat", "/plan"))
    nobody = node.get("/services/default/nobody")

    def is_as_it_was() -> bool:
        known = node.get("/").headers["etag"]
        return node.get("/", headers={"If-None-Match": known}).status == 304

    assert [page.status for page in (fleet, chat, plan, nobody)] == [200, 200, 200, 404]
    wait_for(is_as_it_was, "a page between two passes, of which one may have news at any time")
    assert "MemoryFits" in fleet.text
    assert "tiny, loaded" in chat.text
    assert "default of spec.contextSize" in chat.text
    assert "recurrent state" not in chat.text
    assert "weights" in chat.text
    assert "InferenceService default/big" in plan.text
    assert "default-src 'none'" in fleet.headers["content-security-policy"]
    for file, kind in (("/page.css", "text/css"), ("/page.js", "text/javascript")):
        assert node.get(file).headers["content-type"].startswith(kind)


def test_before_the_first_revision_the_node_says_so(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, {"bad.yaml": service("bad", "nobody")}) as node:
        wait_for(lambda: "refused" in node.state_now()["revision"])

        readiness = node.get("/readyz")

        assert_valid(node.state_now())
        assert readiness.status == 503
        assert readiness.json()["notReady"][0]["reason"] == "NoRevision"


def test_a_poller_reads_the_state_again_only_when_it_says_something_new(node: ServedNode) -> None:
    looks: list[tuple[str, Reply]] = []

    def is_the_same_after_two_looks() -> bool:
        before, passes = tag(node), node.board.passes
        wait_for(lambda: node.board.passes > passes + 1, "two more looks")
        after = node.get("/v1/state", headers={"If-None-Match": f'"other", {before}'})
        looks.append((before, after))
        return after.status == 304

    # What the service really takes of the memory may change meanwhile, which is news.
    wait_for(is_the_same_after_two_looks)
    before, same = looks[-1]
    node.write({"more.yaml": service("more", "tiny")})
    wait_for(lambda: len(node.state_now()["instances"]) == 2)
    other = node.get("/v1/state", headers={"If-None-Match": before})

    assert (same.status, same.body) == (304, b"")
    assert same.headers["etag"] == before
    assert other.status == 200
    assert other.headers["etag"] != before


def test_a_service_that_dies_is_not_shown_as_ready_while_the_loop_is_busy(
    node: ServedNode,
) -> None:
    node.stop_loop()  # as in a long fetch
    wait_for(lambda: node.state_now()["instances"][0]["ready"])

    node.node.agent.processes.stop(node.node.agent.processes.snapshot()[0].ref)

    wait_for(lambda: node.state_now()["instances"] == [])
    assert node.get("/readyz").status == 503


def test_an_agent_whose_loop_hangs_is_not_healthy_and_pollers_hear_of_it(node: ServedNode) -> None:
    healthy, before = node.get("/healthz"), tag(node)

    node.stop_loop()
    assert node.board.passed_mono is not None
    node.board.passed_mono -= 1000
    hung = node.get("/healthz")

    assert healthy.json()["status"] == "ok"
    assert hung.status == 503
    assert hung.json()["secondsSincePass"] > 900
    assert node.get("/v1/state", headers={"If-None-Match": before}).status == 200


def test_readiness_lists_what_does_not_answer_yet(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, CHAT, engine=("--load-seconds", "3600")) as node:
        wait_for(lambda: "Loading" in node.get("/readyz").text)

        answer = node.get("/readyz")

        assert answer.status == 503
        assert not answer.json()["ready"]
        assert [m["service"] for m in answer.json()["notReady"]] == ["default/chat"]


def test_a_service_that_does_not_fit_is_blocked_and_not_ready(node: ServedNode) -> None:
    node.write({"node.yaml": _tiny_node(), "big.yaml": service("big", "tiny", contextSize=2**20)})
    wait_for(lambda: bool(node.state_now()["blocked"]), "a blocked service")

    state, readiness = node.state_now(), node.get("/readyz")

    assert state["blocked"][0]["ref"]["name"] == "big"
    assert readiness.status == 503
    assert "default/big" in [m["service"] for m in readiness.json()["notReady"]]
    assert_valid(state)


def test_what_a_damaged_model_holds_and_what_is_suspended_is_in_the_nodes_status(
    node: ServedNode, capsys: pytest.CaptureFixture[str]
) -> None:
    (node.fleet / "damaged.gguf").write_bytes(b"no model")
    damaged = {"m.yaml": model("damaged", source="damaged.gguf"), "x.yaml": service("x", "damaged")}
    node.write({**damaged, "off.yaml": service("off", "tiny", suspend=True)})
    wait_for(lambda: "ModelUnreadable" in {b["reason"] for b in node.state_now()["blocked"]}, "x")

    code = status.run(
        Namespace(state_dir=str(node.state), output="text", follow=False, names=[], not_ready=False)
    )

    said = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()[2:-2]}
    assert code == Exit.BLOCKED
    assert said["default/chat"] == "Ready"
    assert said["default/x"] == "ModelUnreadable"
    assert said["default/off"] == "Suspended"
    assert_valid(node.state_now())


def test_errors_are_json_and_no_answer_names_the_server(node: ServedNode) -> None:
    unknown, wrong = node.get("/etc/passwd"), node.get("/v1/wake")
    answers = [unknown, wrong, node.get("/v1/state"), node.get("/metrics"), node.get("/healthz")]

    assert unknown.json() == {"error": {"status": 404, "message": "Not Found"}}
    assert wrong.json()["error"]["status"] == 405
    for answer in answers:
        assert "server" not in answer.headers
        assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("host", ["evil.test", "evil.test:9090", "10.0.0.1", "localhost.evil.test"])
def test_a_name_that_somebody_points_at_loopback_gets_nothing(node: ServedNode, host: str) -> None:
    answer = node.get("/v1/state", headers={"Host": host})

    assert answer.status == 421
    assert b"instances" not in answer.body


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9090", "127.0.0.1:1", "[::1]:9090", "[::1]"]
)
def test_names_of_this_machine_are_answered(node: ServedNode, host: str) -> None:
    assert node.get("/v1/state", headers={"Host": host}).status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is")
def test_on_loopback_a_log_is_served_to_its_owner(node: ServedNode) -> None:
    node.node.agent.state.log_file(ref("chat")).write_bytes(b"loaded\n")

    own = node.get(LOG)
    foreign = node.get(LOG, headers={"Host": "elsewhere.example"})

    assert (own.status, own.text, foreign.status) == (200, "loaded\n", 421)
    assert own.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in own.headers


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
def test_on_loopback_no_log_is_served_to_others_on_the_machine(node: ServedNode) -> None:
    node.node.agent.state.log_file(ref("chat")).write_bytes(b"loaded\n")

    asked = ("curl", "-sS", f"{node.url}{LOG}")
    answer = subprocess.run(asked, user=65534, capture_output=True, text=True, check=True)

    assert "fleet-agent logs" in json.loads(answer.stdout)["error"]["message"]


def test_a_page_in_a_browser_cannot_wake_the_agent(node: ServedNode) -> None:
    refused = node.post("/v1/wake", headers={"Origin": "http://localhost:8000"})

    assert refused.status == 403


def test_a_wake_makes_the_loop_look_at_its_source(node: ServedNode) -> None:
    (node.fleet / "more.yaml").write_text(service("more", "tiny"))

    answer = node.post("/v1/wake", body=b"anything")

    assert answer.status == 202
    wait_for(lambda: len(node.state_now()["instances"]) == 2)


def test_many_wakes_are_one(tmp_path: Path) -> None:
    wake = CountingWake()
    with ServedNode.open(tmp_path, {}, wake=wake) as node:
        node.wait_ready()
        wake.fetches = 0
        began = time.monotonic()

        answers = {node.post("/v1/wake").status for _ in range(30)}

        assert answers == {202}
        wait_for(lambda: wake.fetches >= 2, "the last wake is not lost")
        assert wake.fetches <= 2 + (time.monotonic() - began)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Length": "70000"}, b""),
        ({"Content-Length": "99999999999999999999"}, b""),
        ({"Content-Length": "-1"}, b""),
        (
            {"Transfer-Encoding": "chunked"},
            b"10000\r\n" + b"x" * 65536 + b"\r\n1\r\nx\r\n0\r\n\r\n",
        ),
        ({"X-Long": "x" * 40_000}, b""),
    ],
    ids=["long", "absurd", "negative", "chunked", "headers"],
)
def test_what_is_too_long_is_refused(
    node: ServedNode, headers: dict[str, str], body: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE_S) as raw:
        lines = [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join(["POST /v1/wake HTTP/1.1", "Host: localhost", *lines, "", ""])
        raw.sendall(head.encode() + body)

        status = int(raw.recv(4096).split()[1])

    assert status in (400, 413, 431)
    assert node.get("/healthz").status == 200


def test_the_stream_tells_what_happens_and_goes_on_where_it_was_left(node: ServedNode) -> None:
    with node.events() as heard:
        hello = next(heard)
        node.write({"more.yaml": service("more", "tiny")})
        told = [event for event in until(heard, "more", "ready") if event.kind]
    missed = node.board.feed.last

    node.write({"more.yaml": service("more", "tiny", contextSize=512)})
    wait_for(lambda: node.board.feed.last > missed)
    with node.events(since=hello.id) as heard:
        resumed = list(islice((event for event in heard if event.kind), len(told)))

    assert hello.id is not None
    assert {"revision", "plan", "outcome", "notice"} <= {event.kind for event in told}
    assert [(e.id, e.kind) for e in resumed] == [(e.id, e.kind) for e in told]


@pytest.mark.parametrize("since", ["nonsense", "1-7", ""])
def test_a_listener_from_an_earlier_life_is_told_to_read_the_state(
    node: ServedNode, since: str
) -> None:
    with node.events(since=since) as heard:
        first = next(heard)

    assert first.kind == "reset"


def test_a_quiet_stream_beats(node: ServedNode) -> None:
    with node.events() as heard:
        comments = list(islice((event for event in heard if event.kind == ""), 4))

    assert len(comments) == 4  # hello, and three beats


def test_a_listener_that_does_not_read_is_dropped_and_holds_nothing_up(node: ServedNode) -> None:
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", node.port))
        deaf.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        deaf.recv(1)
        for number in range(3000):
            node.board.feed.publish("notice", {"message": "x" * 10_000, "number": number})

        assert node.get("/healthz").status == 200
        deaf.settimeout(PATIENCE_S)
        while deaf.recv(1 << 20):
            pass  # until it is closed


def test_an_address_of_another_machine_is_answered_with_the_option_for_addresses(
    tmp_path: Path,
) -> None:
    with ServedNode.open(tmp_path, {}, ListenSettings("192.0.2.1", own_port())) as node:
        problem = node.serving.wait(PATIENCE_S).problem

    assert problem is not None
    assert "192.0.2.1" in problem
    assert "such as --listen 127.0.0.1" in problem
    assert "--port" not in problem


def test_a_taken_port_is_named_and_had_later_and_models_run_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = own_port()
    with (
        socket.create_server(("127.0.0.1", port)) as other,
        ServedNode.open(tmp_path, CHAT, ListenSettings(port=port)) as node,
    ):
        said = node.serving.wait(PATIENCE_S)
        wait_for(lambda: any(s.ready for s in node.node.agent.processes.snapshot()))
        on_disk = served(node.state)
        main(["status", "--state-dir", str(node.state)])
        other.close()
        wait_for(lambda: node.serving.now.url is not None, "the port")

        answer = node.get("/readyz")

    assert said.url is None
    assert said.problem is not None
    assert f"port {port} is taken by pid" in said.problem
    assert "choose another with --port" in said.problem
    assert f"its agent serves no state and no metrics: {said.problem}" in capsys.readouterr().out
    assert on_disk == said
    assert answer.status == 200


def test_where_it_listens_stands_in_the_state_directory_while_it_does(tmp_path: Path) -> None:
    port = own_port()
    with ServedNode.open(tmp_path, {}, ListenSettings(port=port)) as node:
        node.serving.wait(PATIENCE_S)
        during = served(node.state)

    assert during is not None
    assert during.url == f"http://127.0.0.1:{port}"
    assert served(node.state) is None


def test_a_connection_on_which_nothing_is_asked_holds_nobody_up(node: ServedNode) -> None:
    silent = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(40)]
    try:
        assert node.get("/v1/state").status == 200
    finally:
        for connection in silent:
            connection.close()


def test_connections_without_end_leave_the_agent_files_to_work_with(node: ServedNode) -> None:
    before = psutil.Process().num_fds()
    silent = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(400)]
    try:
        wait_for(lambda: _is_refused(silent[0], silent[-1]), "the first one sent away")
        assert node.get("/v1/state").status == 200, "there is room for who asks"

        here = psutil.Process().num_fds() - before - len(silent)
    finally:
        for connection in silent:
            connection.close()

    assert here < 200
    wait_for(lambda: _answers(node), "room for a new client")


def test_requests_that_never_end_shut_nobody_out(node: ServedNode) -> None:
    half = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(200)]
    try:
        for number, connection in enumerate(half):
            with contextlib.suppress(OSError):  # sent away for one that came later
                connection.sendall(
                    b"POST /v1/wake HTTP/1.1\r\nHost: localhost\r\nX: "[: 20 + number]
                )

        answers = [node.get("/v1/state").status for _ in range(5)]
    finally:
        for connection in half:
            connection.close()

    assert answers == [200] * 5


@pytest.mark.e2e
def test_an_answer_that_nobody_reads_is_dropped(node: ServedNode) -> None:
    before = psutil.Process().num_fds()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", node.port))
        asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        deaf.settimeout(PATIENCE_S)
        with contextlib.suppress(OSError):  # dropped while we still ask
            for _ in range(2000):
                deaf.sendall(asked)

        wait_for(lambda: psutil.Process().num_fds() <= before + 1, "dropped")


def _answers(node: ServedNode) -> bool:
    """Until the server has seen that the others left, it refuses new ones."""
    try:
        return node.get("/healthz").status == 200
    except OSError:
        return False


def _is_refused(first: socket.socket, last: socket.socket) -> bool:
    """Before one is closed that came later."""
    assert not _is_closed(last)
    return _is_closed(first)


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


class CountingWake(Wake):
    fetches = 0

    def fetch(self) -> None:
        self.fetches += 1
        super().fetch()


def assert_valid(state: Any) -> None:
    validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))
    assert [str(error) for error in validator.iter_errors(state)] == []


def reasons(state: Any) -> list[str]:
    return [instance["reason"] for instance in state["instances"]]


def tag(node: ServedNode) -> str:
    return node.get("/v1/state").headers["etag"]


def until(heard: Iterator[Heard], *words: str) -> list[Heard]:
    """Every event up to the first notice that holds all of the words."""
    found = []
    for event in heard:
        found.append(event)
        if event.kind == "notice" and all(word in str(event.data) for word in words):
            return found
    raise AssertionError(found)


def _tiny_node() -> str:
    from tests.support.fleets import node as fleet_node

    return fleet_node("mac", hardware={"memory": "1Gi"})
