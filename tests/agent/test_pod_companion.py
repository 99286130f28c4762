"""The companion of an engine in a pod: ready when the engine is, silent until a drain is over."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agent.pod.companion import Companion, Delays
from agent.pod.engine import Engine
from agent.state.directory import StateDir
from reconciler.fleet.command import Command
from reconciler.runtimes.runtime import NodeFacts
from tests.support import servers
from tests.support.engines import Server, render, service
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import llama_server
from tests.support.owner import HOUR_S, MovedClock
from tests.support.platforms import IS_LINUX
from tests.support.pods import Program, get, running, wait_readyz
from tests.support.ports import own_port
from tests.support.routers import ask, listed, router, stream
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e


QUICK = Delays(ready_s=0.05, loading_s=0.05, settle_s=0.05, forget_s=HOUR_S)


@contextmanager
def companion(
    folder: Path, port: int, *words: str, runtime: str = "llama-server", is_forked: bool = True
) -> Iterator[tuple[Program, int]]:
    """Beside an engine on `port`; the port where it answers itself."""
    own = own_port()
    told = ("--runtime", runtime, "--port", str(port), "--listen", f"127.0.0.1:{own}")
    log = folder / "companion.log"
    settle = () if "--settle" in words else ("--settle", "0.2")
    with running(log, "companion", *told, *settle, *words, is_forked=is_forked) as program:
        wait_for(lambda: _listens(own), "it answers")
        yield program, own


def _listens(port: int) -> bool:
    try:
        return get(port, "/healthz")[0] == 200
    except OSError:
        return False


@pytest.fixture
def engine(tmp_path: Path) -> Server:
    """A real llama-server, not started yet."""
    port = own_port()
    facts = NodeFacts(
        binary=(str(llama_server()),),
        port=str(port),
        threads="1",
        directory=str(tmp_path / "engine"),
        model_paths={"tiny": str(tiny_llama(tmp_path / "tiny.gguf"))},
    )
    wanted = service(contextSize=512, extraArgs=["--context-shift"])
    return Server(render(wanted, facts), port, tmp_path / "engine")


def tiny_server(folder: Path, *options: str) -> Server:
    """A small server with bad manners on demand."""
    port = own_port()
    return Server(Command(servers.argv(port, *options)), port, folder / "engine")


def test_an_engine_is_ready_once_it_answers_for_its_model(tmp_path: Path, engine: Server) -> None:
    with companion(tmp_path, engine.port, "--name", "tiny") as (program, own):
        wait_for(lambda: "does not listen yet" in get(own, "/readyz")[1], "it says why not")
        with engine:
            wait_readyz(own, 200)
            assert get(own, "/healthz") == (200, "ok")

        wait_readyz(own, 503)
        assert get(own, "/healthz") == (200, "ok")
        assert "ready" in program.said


def test_what_the_engine_writes_is_a_metric_of_its_node(tmp_path: Path, engine: Server) -> None:
    words = ("--name", "tiny", "--node", "worker-1", "--sample-interval", "0.05")
    ready = 'fleet_engine_ready{backend="llama-server",node="worker-1"}'
    tokens = 'flexinfer_tokens_per_second{backend="llama-server",model="tiny",node="worker-1"}'
    with companion(tmp_path, engine.port, *words) as (_, own):
        assert f"{ready} 0.0" in get(own, "/metrics")[1]
        assert tokens not in get(own, "/metrics")[1]
        with engine:
            wait_for(lambda: f"{tokens} 0.0" in get(own, "/metrics")[1], "a rate without traffic")
            assert f"{ready} 1.0" in get(own, "/metrics")[1]

            assert ask(engine.port, "tiny")[0] == 200

            wait_for(lambda: f"{tokens} 0.0" not in get(own, "/metrics")[1], "a rate with traffic")
            assert tokens in get(own, "/metrics")[1]


def test_an_engine_of_another_model_is_not_ready(tmp_path: Path, engine: Server) -> None:
    with engine, companion(tmp_path, engine.port, "--name", "other") as (_, own):
        wait_for(lambda: "WrongModel" in get(own, "/readyz")[1], "it is known for what it is")

        assert get(own, "/readyz")[0] == 503


def test_an_engine_that_was_started_anew_is_ready_again(tmp_path: Path, engine: Server) -> None:
    with companion(tmp_path, engine.port, "--name", "tiny") as (_, own):
        with engine:
            wait_readyz(own, 200)
        wait_readyz(own, 503)

        with engine:
            wait_readyz(own, 200)


def test_a_drain_ends_when_the_request_in_flight_does(tmp_path: Path, engine: Server) -> None:
    with engine, companion(tmp_path, engine.port, "--name", "tiny") as (program, own):
        wait_readyz(own, 200)
        answers: list[tuple[int, str]] = []
        drain = threading.Thread(target=lambda: answers.append(get(own, "/drain")))
        with stream(engine.port, "tiny") as seen:
            drain.start()
            wait_readyz(own, 503)
            wait_for(lambda: "waiting for 1 request" in program.said, "it waits")
            read = seen.chunks
            wait_for(lambda: seen.chunks > read + 20, "the request goes on")
            assert answers == []

        drain.join(PATIENCE_S)
        ((status, text),) = answers
        assert (status, "nothing was cut" in text) == (200, True)
        assert engine.terminate() == 0, "it has nothing left to wait for"


def test_what_the_deadline_of_a_drain_cuts_is_said(tmp_path: Path, engine: Server) -> None:
    said: list[str] = []
    clock, beside = MovedClock(), Engine.beside("llama-server", engine.port, ("tiny",), None)
    companion = Companion(beside, said.append, drain_timeout_s=HOUR_S, pace=QUICK, clock=clock)
    with engine, ThreadPoolExecutor(1) as pool:
        companion.start()
        wait_for(lambda: companion.readiness().ready, "ready")
        with stream(engine.port, "tiny"):
            text = pool.submit(companion.drain)
            wait_for(lambda: "waiting for 1 request" in said, said)
            clock.passed_s += HOUR_S

            assert text.result(PATIENCE_S) == f"1 request cut after {HOUR_S:g} s of draining"
        companion.close()


def test_a_drain_is_one_drain_however_often_it_is_asked_for(tmp_path: Path, engine: Server) -> None:
    with engine, companion(tmp_path, engine.port, "--name", "tiny") as (program, own):
        wait_readyz(own, 200)

        first, second = get(own, "/drain"), get(own, "/drain", post=True)

        assert first == second
        assert program.said.count("drains: ready no more") == 1
        assert get(own, "/readyz")[0] == 503


def test_a_drain_lasts_while_the_endpoint_is_being_withdrawn(
    tmp_path: Path, engine: Server
) -> None:
    with engine, companion(tmp_path, engine.port, "--name", "tiny", "--settle", "1.5s") as (_, own):
        wait_readyz(own, 200)
        began = time.monotonic()

        assert get(own, "/drain")[0] == 200

        assert time.monotonic() - began >= 1.5


def test_an_engine_that_is_drained_and_started_anew_serves_again(
    tmp_path: Path, engine: Server
) -> None:
    """A failed liveness probe runs the preStop hook, too, and the companion outlives it."""
    with companion(tmp_path, engine.port, "--name", "tiny") as (_, own):
        with engine:
            wait_readyz(own, 200)
            assert get(own, "/drain")[0] == 200
            assert engine.terminate() == 0
        assert get(own, "/readyz")[0] == 503

        with engine:
            wait_readyz(own, 200)


def test_a_drain_that_nobody_follows_up_is_forgotten(tmp_path: Path) -> None:
    said: list[str] = []
    with tiny_server(tmp_path) as server:
        engine = Engine.beside("llama-server", server.port, ("tiny",), None)
        clock = MovedClock()
        companion = Companion(engine, said.append, pace=QUICK, clock=clock)
        companion.start()
        wait_for(lambda: companion.readiness().ready, "ready")
        assert "nothing was cut" in companion.drain()
        assert companion.readiness().reason == "Draining"

        clock.passed_s += HOUR_S
        wait_for(lambda: companion.readiness().ready, "ready again")
        companion.close()


def test_an_engine_that_is_not_there_is_drained_at_once(tmp_path: Path) -> None:
    words = ("--name", "tiny", "--drain-timeout", "1h")
    with companion(tmp_path, own_port(), *words) as (_, own):
        wait_readyz(own, 503)

        assert get(own, "/drain")[0] == 200


def test_an_engine_that_hangs_is_called_so_and_questions_are_answered(
    tmp_path: Path, engine: Server
) -> None:
    with engine, companion(tmp_path, engine.port, "--name", "tiny") as (_, own):
        wait_readyz(own, 200)
        before = _questions(engine)
        engine.process.send_signal(signal.SIGSTOP)

        for _ in range(100):
            assert get(own, "/healthz") == (200, "ok")
            get(own, "/readyz")
        assert "no answer on port" in wait_readyz(own, 503)
        engine.process.send_signal(signal.SIGCONT)
        wait_readyz(own, 200)

        assert _questions(engine) - before < 100, "nobody's question became one of the engine's"


def test_many_questions_are_not_many_for_the_engine(tmp_path: Path, engine: Server) -> None:
    with engine, companion(tmp_path, engine.port, "--name", "tiny") as (_, own):
        wait_readyz(own, 200)
        before = _questions(engine)

        for _ in range(300):
            assert get(own, "/readyz")[0] == 200

        assert _questions(engine) - before < 150


def _questions(engine: Server) -> int:
    return engine.log.count("GET /health")


def test_a_router_is_ready_with_one_model_loaded(tmp_path: Path) -> None:
    port = own_port()
    files = {name: tiny_llama(tmp_path / f"{name}.gguf", name=name) for name in ("one", "two")}
    launch = router(
        StateDir.open(tmp_path / "state"), port, files, [{"name": "one"}, {"name": "two"}]
    )
    names = ("--name", "one", "two")
    server = Server(launch.command, port, StateDir(tmp_path / "state").workload_dir(launch.ref))
    with companion(tmp_path, port, *names, runtime="llamacpp-router") as (program, own), server:
        wait_readyz(own, 200)
        assert listed(port)["one"]["value"] == "loaded"
        assert listed(port)["two"]["value"] == "unloaded", "a look loads nothing"
        _unload(server, "one")
        wait_readyz(own, 503)

        wait_readyz(own, 200)

        assert "asked the router to load one" in program.said
        assert ask(port, "one")[0] == 200
        assert get(own, "/drain")[0] == 200
        assert server.terminate() == 0


def _unload(server: Server, name: str) -> None:
    status, text, _ = server.request("/models/unload", {"model": name})
    assert status == 200, text


def test_a_router_without_a_model_says_why_it_is_not_ready(tmp_path: Path) -> None:
    port = own_port()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and no more")
    state = StateDir.open(tmp_path / "state")
    launch = router(state, port, {"one": broken}, [{"name": "one"}])
    server = Server(launch.command, port, state.workload_dir(launch.ref))
    with (
        server,
        companion(tmp_path, port, "--name", "one", runtime="llamacpp-router") as (_, own),
    ):
        wait_for(lambda: "ModelsFailed" in get(own, "/readyz")[1], "it says which failed")

        assert get(own, "/readyz") == (503, "ModelsFailed: failed to load: one")


def test_the_key_of_an_engine_is_read_from_a_file(tmp_path: Path, engine: Server) -> None:
    (tmp_path / "key").write_text("secret-of-this-pod\n")
    engine.command = Command(
        engine.command.argv, {**engine.command.env, "LLAMA_API_KEY": "secret-of-this-pod"}
    )
    words = ("--name", "tiny", "--api-key-file", str(tmp_path / "key"))
    with engine, companion(tmp_path, engine.port, *words) as (program, own):
        wait_readyz(own, 200)
        assert get(own, "/drain")[0] == 200

        assert "secret-of-this-pod" not in program.said


def test_sigterm_ends_it_at_once_in_the_middle_of_a_drain(tmp_path: Path) -> None:
    words = ("--name", "tiny", "--drain-timeout", "1h")
    with (
        tiny_server(tmp_path, "--busy", "1") as server,
        companion(tmp_path, server.port, *words) as (program, own),
    ):
        wait_readyz(own, 200)
        drain = threading.Thread(target=_forgiving, args=(own,))
        drain.start()
        wait_readyz(own, 503)
        program.process.terminate()

        assert program.ended() == 0
        drain.join()


def _forgiving(port: int) -> None:
    try:
        get(port, "/drain")
    except OSError:
        return


def test_clients_that_say_nothing_keep_nobody_from_asking(tmp_path: Path, engine: Server) -> None:
    with engine, companion(tmp_path, engine.port, "--name", "tiny") as (_, own):
        wait_readyz(own, 200)
        silent = [socket.create_connection(("127.0.0.1", own)) for _ in range(60)]
        try:
            wait_for(lambda: _asked(own) == 200, "an answer beside them")
        finally:
            for one in silent:
                one.close()


def test_clients_that_drip_keep_nobody_from_asking(tmp_path: Path, engine: Server) -> None:
    over = threading.Event()

    def drip(connections: list[socket.socket]) -> None:
        while not over.wait(0.2):
            for one in connections:
                with suppress(OSError):  # sent away
                    one.sendall(b"X")

    with engine, companion(tmp_path, engine.port, "--name", "tiny") as (_, own):
        wait_readyz(own, 200)
        dripping = [socket.create_connection(("127.0.0.1", own)) for _ in range(60)]
        thread = threading.Thread(target=drip, args=(dripping,))
        thread.start()
        try:
            answers = [get(own, "/readyz")[0] for _ in range(5)]
            wait_for(lambda: all(map(_has_ended, dripping)), "what drips is given up")
        finally:
            over.set()
            thread.join()
            for one in dripping:
                one.close()

    assert answers == [200] * 5


def _has_ended(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        return not connection.recv(64)
    except TimeoutError:
        return False
    except OSError:
        return True


def _asked(port: int) -> int:
    try:
        return get(port, "/readyz")[0]
    except OSError:
        return 0


@pytest.mark.skipif(not IS_LINUX, reason="pods are Linux, which says what of a program is its own")
def test_it_takes_little_of_the_pod(tmp_path: Path, engine: Server) -> None:
    beside = companion(tmp_path, engine.port, "--name", "tiny", is_forked=False)
    with engine, beside as (program, own):
        wait_readyz(own, 200)
        for _ in range(100):
            get(own, "/readyz")

        status = Path(f"/proc/{program.process.pid}/status").read_text()
        private = int(status.partition("RssAnon:")[2].split()[0])

        assert private < 30 * 1024, "KiB that no other process shares"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--runtime", "nothing", "--port", "1", "--name", "a"), "llama-server"),
        (("--runtime", "llama-server", "--name", "a"), "--port"),
        (("--runtime", "llama-server", "--port", "x", "--name", "a"), "1 to 65535"),
        (("--runtime", "llama-server", "--port", "1"), "--name"),
    ],
)
def test_what_makes_no_sense_is_a_matter_of_usage(
    words: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    from tests.support.pods import run

    done = run("companion", *words)

    assert (done.code, reason in done.err) == (64, True), done.err
