"""A node as its agent runs it, in this process: a real loop over a folder, real processes of a tiny
engine, and the server of its state.

    with ServedNode.open(tmp_path, {"chat.yaml": service("chat", "tiny")}) as node:
        node.wait_ready()
        assert node.get("/v1/state").json()["node"] == "mac"
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent.node.follow_options import FollowOptions
from agent.node.node import Node, owned
from agent.node.settings import Intervals, Settings
from agent.server import ListenSettings
from agent.server.board import StateBoard
from agent.server.measure import sampler
from agent.server.serving import StateServer
from reconciler.console.value import PortRange
from reconciler.loop import LoopTiming, Wake
from reconciler.source.directory import DirectorySource
from tests.support.counting_engine import write_engine
from tests.support.fleets import model, node, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.ports import own_row
from tests.support.wait import PATIENCE_S, wait_for

_INTERVALS = Intervals(sample_s=0.05)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    def metrics(self) -> dict[str, float]:
        """Every series of an exposition, as it is spelt."""
        lines = [line for line in self.text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines)}


@dataclass(frozen=True, slots=True)
class Heard:
    """One block of an event stream; `kind` is empty for a comment."""

    id: str | None
    kind: str
    data: Any


@dataclass
class ServedNode:
    node: Node
    board: StateBoard
    wake: Wake
    loop: threading.Thread
    serving: StateServer
    fleet: Path
    state: Path

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        root: Path,
        files: Mapping[str, str],
        listen: ListenSettings | None = None,
        *,
        engine: tuple[str, ...] | None = (),
        intervals: Intervals = _INTERVALS,
        wake: Wake | None = None,
    ) -> Iterator[ServedNode]:
        """`files` beside a node `mac` and a model `tiny`; `engine` are options of the tiny engine,
        None: llama.cpp itself."""
        fleet = root / "fleet"
        fleet.mkdir(exist_ok=True)
        tiny_llama(fleet / "tiny.gguf")
        own = {"node.yaml": node(), "model.yaml": model("tiny", source="tiny.gguf")}
        write_fleet(fleet, own | dict(files))
        programs = {} if engine is None else {"llama-server": write_engine(root, *engine)}
        wake = wake or Wake()
        with (
            own_row() as row,
            owned(
                DirectorySource(fleet),
                "mac",
                Settings(
                    root / "state",
                    programs,
                    service_ports=PortRange(row[0], row[-1]),
                    intervals=intervals,
                ),
                wake,
                [],
                FollowOptions(LoopTiming(poll_s=3600, resync_s=0.5)),
                stop_children=True,
            ) as here,
        ):
            board = StateBoard(here.agent.processes)
            here.loop.listeners.add(board)
            serving = StateServer(
                *(here, board, listen or ListenSettings(port=0), wake),
                sampler=sampler(here, board),
                retry_s=0.05,
                heartbeat_s=0.05,
            )
            here.loop.listeners.add(serving)
            serving.start()
            loop = threading.Thread(target=here.loop.run, name="loop")
            loop.start()
            try:
                yield cls(here, board, wake, loop, serving, fleet, root / "state")
            finally:
                wake.stop()
                loop.join()
                serving.close()

    @property
    def url(self) -> str:
        found = self.serving.wait(PATIENCE_S).url
        assert found is not None, self.serving.now
        return found

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def stop_loop(self) -> None:
        """Nobody looks any more; the processes and the server go on."""
        self.wake.stop()
        self.loop.join()

    def write(self, files: Mapping[str, str]) -> None:
        write_fleet(self.fleet, files)
        self.wake.fetch()

    def get(self, path: str, **options: Any) -> Reply:
        return request(self.url, "GET", path, **options)

    def post(self, path: str, **options: Any) -> Reply:
        return request(self.url, "POST", path, **options)

    def state_now(self) -> Any:
        return self.get("/v1/state").json()

    def metrics(self) -> dict[str, float]:
        return self.get("/metrics").metrics()

    def wait_ready(self) -> None:
        """Until everything that should run answers."""
        wait_for(lambda: self.get("/readyz").status == 200, "ready")

    def events(
        self, since: str | None = None
    ) -> contextlib.AbstractContextManager[Iterator[Heard]]:
        """The stream of events, as a listener has it."""
        return events(self.url, since)

    def engine_port(self, name: str) -> int:
        states = self.node.agent.processes.snapshot()
        return next(s.launch.port for s in states if s.ref.name == name)


@contextlib.contextmanager
def events(url: str, since: str | None = None) -> Iterator[Iterator[Heard]]:
    """The stream of events of the agent at `url`; it has begun to answer."""
    headers = {} if since is None else {"Last-Event-ID": since}
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/v1/events", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        yield _heard(answer)


def _heard(answer: http.client.HTTPResponse) -> Iterator[Heard]:
    fields: dict[str, str] = {}
    for line in iter(answer.readline, b""):
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(":")
            fields[name or "comment"] = value.strip()
        else:
            data = json.loads(fields["data"]) if "data" in fields else None
            yield Heard(fields.get("id"), fields.get("event", ""), data)
            fields = {}


def request(
    url: str,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    context: ssl.SSLContext | None = None,
    timeout_s: float = PATIENCE_S,
) -> Reply:
    """One request on a connection of its own, whatever the status."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    with contextlib.closing(connection):
        connection.request(method, path, body=body, headers=dict(headers or {}))
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, found, answer.read())
