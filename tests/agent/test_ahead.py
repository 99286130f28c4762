"""An agent reads a model's header where it lies before it fetches the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleets import model, node, service
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.served_node import ServedNode
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

HEADER = "bytes=0-262143"
MAC = {"node.yaml": node(hardware={"memory": "8Gi"})}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    file = tiny_llama(tmp_path / "far.gguf", name="far")
    with FileServer(file.read_bytes() + bytes(1 << 20)) as server:
        yield server


def far(server: FileServer, **spec: Any) -> dict[str, str]:
    """A service whose model is elsewhere."""
    return MAC | {
        "far.yaml": model("far", source=server.url),
        "away.yaml": service("away", "far", **spec),
    }


def blocked(here: ServedNode) -> list[str]:
    plan = here.board.plan
    return [f"{item.ref.name}: {item.reason}" for item in plan.blocked] if plan else []


def wait_ready(here: ServedNode, name: str) -> None:
    def answers() -> bool:
        states = here.node.agent.processes.snapshot()
        return any(state.ref.name == name and state.ready for state in states)

    wait_for(answers)


def test_what_does_not_fit_is_refused_and_nothing_of_it_is_fetched(
    tmp_path: Path, server: FileServer
) -> None:
    with ServedNode.open(tmp_path, far(server, contextSize=99_999_999)) as here:
        wait_for(lambda: blocked(here) == ["away: MemoryFits"])

        assert server.ranges == [HEADER]
        assert here.node.agent.store.downloads() == ()
        assert here.node.loop.compare() is not None
        assert not (tmp_path / "state/desired/expected.json").exists()


def test_what_fits_is_fetched_after_its_header(tmp_path: Path, server: FileServer) -> None:
    with ServedNode.open(tmp_path, far(server)) as here:
        wait_ready(here, "away")

    assert server.ranges == [HEADER, None]


def test_what_is_no_model_is_refused_and_not_fetched(tmp_path: Path, server: FileServer) -> None:
    server.data = b"no model at all" + server.data[15:]

    with ServedNode.open(tmp_path, far(server)) as here:
        wait_for(lambda: blocked(here) == ["far: ModelUnavailable"])

        assert server.ranges == [HEADER]


def test_a_host_without_ranges_is_asked_for_the_whole_file(
    tmp_path: Path, server: FileServer
) -> None:
    server.honours_ranges = False

    with ServedNode.open(tmp_path, far(server)) as here:
        wait_ready(here, "away")


def test_a_header_that_is_slow_to_come_holds_up_nobody_else(
    tmp_path: Path, server: FileServer
) -> None:
    server.go_on.clear()  # the header stops after a first piece

    with ServedNode.open(tmp_path, far(server) | {"chat.yaml": service("chat", "tiny")}) as here:
        wait_ready(here, "chat")
        assert server.ranges == [HEADER]
        server.go_on.set()

        wait_ready(here, "away")


def test_a_change_that_does_not_fit_leaves_what_runs(tmp_path: Path, server: FileServer) -> None:
    with ServedNode.open(tmp_path, MAC | {"chat.yaml": service("chat", "tiny")}) as here:
        wait_ready(here, "chat")
        pid = here.node.agent.processes.snapshot()[0].pid

        here.write({"far.yaml": model("far", source=server.url)})
        here.write({"chat.yaml": service("chat", "far", contextSize=99_999_999)})

        wait_for(lambda: blocked(here) == ["chat: MemoryFits"])
        passes = here.board.passes
        here.wake.pass_now()
        wait_for(lambda: here.board.passes > passes)
        assert here.node.agent.target.undone == (), "the plan says it, and nothing was tried"
        assert here.node.agent.processes.snapshot()[0].pid == pid
        assert server.ranges == [HEADER]


def test_a_file_that_is_another_one_when_it_comes_is_judged_by_its_own_header(
    tmp_path: Path, server: FileServer
) -> None:
    small = server.data
    server.data = b"no model at all" + small[15:]

    class Switching(list[str]):
        def append(self, path: str) -> None:
            super().append(path)
            server.data = small if len(self) == 1 else b"no model at all" + small[15:]

    server.requests = Switching()
    with ServedNode.open(tmp_path, far(server)) as here:
        wait_for(lambda: "ModelCorrupt" in [d.reason for d in here.node.agent.store.downloads()])

        assert server.ranges[:2] == [HEADER, None]
        assert here.node.agent.processes.snapshot() == ()
