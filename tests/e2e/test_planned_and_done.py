"""Ten pull requests with models of hubs: what `--dry-run --from` says of each, and what then is.

pytest -s prints the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.models.store import DownloadPhase
from reconciler.api.quantity import show_bytes
from reconciler.capacity.ledger import Ledger
from reconciler.cli import main
from tests.support.fleets import document, model, node, service
from tests.support.gguf_models import tiny_llama
from tests.support.hub import Hub
from tests.support.registry import Registry
from tests.support.repos import run_git
from tests.support.served_node import ServedNode
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_TOKEN_PATH", "FLEET_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HF_HOME", "XDG_CACHE_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """With two files of a model, told apart by their sizes."""
    files = {
        f"{name}.gguf": tiny_llama(tmp_path / f"{name}.gguf", layers=layers).read_bytes() + pad
        for name, layers, pad in (("small", 2, bytes(1 << 20)), ("large", 6, bytes(2 << 20)))
    }
    with Hub({"org/tiny": files}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def registry(hub: Hub) -> Iterator[Registry]:
    packed = hub.repos["org/tiny"]["small.gguf"] + bytes(8)
    with Registry() as registry:
        registry.push("team/tiny", {"packed.gguf": packed})
        yield registry


@dataclass(frozen=True, slots=True)
class Seen:
    """Memory of all the node's services, bytes downloaded, processes restarted, what is blocked."""

    memory: int
    download: int
    restarts: int
    blocked: tuple[str, ...] = ()


Files = Mapping[str, str | None]


def changes(hub: Hub, registry: Registry) -> Iterator[tuple[str, Files]]:
    """Each builds on the one before; None removes a file."""
    small, large = "hf://org/tiny/small.gguf@main", "hf://org/tiny/large.gguf@main"
    packed = f"oci://{registry.host}/team/tiny:1"
    yield (
        "adds a model of a hub, with a service",
        {"a.yaml": model("a", source=small), "one.yaml": service("one", "a", contextSize=1024)},
    )
    yield "gives it a larger context", {"one.yaml": service("one", "a", contextSize=4096)}
    yield "adds a second service of the model", {"two.yaml": service("two", "a", contextSize=512)}
    yield "changes the model's file", {"a.yaml": model("a", source=large)}
    yield (
        "adds what does not fit",
        {
            "b.yaml": model("b", source=packed),
            "big.yaml": service("big", "b", contextSize=99_999_999),
        },
    )
    yield "makes it fit", {"big.yaml": service("big", "b", contextSize=2048)}
    yield (
        "has a running service no longer fit",
        {"one.yaml": service("one", "a", contextSize=99_999_999)},
    )
    yield "takes that back", {"one.yaml": service("one", "a", contextSize=4096)}
    yield (
        "renames a service",
        {"two.yaml": None, "three.yaml": service("three", "a", contextSize=512)},
    )
    yield (
        "removes a model, and moves its service to another",
        {"b.yaml": None, "big.yaml": service("big", "a", contextSize=2048)},
    )


def test_what_a_pull_request_is_said_to_cost_is_what_it_costs(
    tmp_path: Path, hub: Hub, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {"allowedHosts": ["huggingface.co", "127.0.0.1"], "keepRevisions": 10}
    files = {
        "node.yaml": node(hardware={"memory": "8Gi"}),
        "fleet.yaml": document("Fleet", "fleet", policy),
    }
    rows = []
    with ServedNode.open(tmp_path, files) as here:
        run_git(here.fleet, "init", "-q", "--initial-branch=main")
        for words, edit in changes(hub, registry):
            _commit(here.fleet, words)
            _write(here.fleet, edit)
            planned = _planned(capsys, here.fleet, _memory(here))
            done = _done(here)
            rows.append((words, planned, done))
    print(_table(rows))
    for words, planned, done in rows:
        assert (words, planned) == (words, done)


def _commit(fleet: Path, words: str) -> None:
    run_git(fleet, "add", ".")
    run_git(fleet, "commit", "-q", "--allow-empty", "-m", f"before one that {words}")


def _write(fleet: Path, edit: Files) -> None:
    for path, text in edit.items():
        if text is None:
            (fleet / path).unlink()
        else:
            (fleet / path).write_text(text)


def _planned(capsys: pytest.CaptureFixture[str], fleet: Path, memory: int) -> Seen:
    """`memory`: of what runs, which stays where nothing is said of it."""
    main(["--dry-run", "-C", str(fleet), "--from", "HEAD", "-o", "json"])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    plan: dict[str, Any] = json.loads(out)
    impacts = [change["impact"] for change in plan["changes"]]
    pools = [pool["afterBytes"] for i in impacts for pool in i["memory"] if pool["pool"] == "host"]
    return Seen(
        pools[-1] if pools else memory,
        sum(i["downloadBytes"] for i in impacts),
        sum(i["restart"] == "restart" for i in impacts),
        tuple(item["reason"] for item in plan["blocked"]),
    )


def _done(here: ServedNode) -> Seen:
    """Have the agent follow the files, and look at what it made of them."""
    before, stored = _pids(here), _stored(here)
    asked = here.board.passes
    here.wake.fetch()
    wait_for(lambda: here.board.passes > asked + 1)
    revisions = here.node.loop.revisions

    left: list[object] = []  # what is still to come

    def settled() -> bool:
        plan, observed = here.board.plan, here.board.observed
        states = here.node.agent.processes.snapshot()
        fetched = revisions.state().fetched
        is_there = observed is not None and plan is not None and plan.revision == fetched
        left[:] = [] if is_there else [fetched]
        left.extend(plan.changes if plan is not None else ())
        left.extend(d for d in here.node.agent.store.downloads() if d.state in _MOVING)
        left.extend(state for state in states if not state.ready or state.stopping)
        # one without a process waits for its model
        instances = observed.instances if observed else ()
        left.extend(instance for instance in instances if instance.pid is None)
        return not left

    def stays_settled() -> bool:
        """Also after the next pass: what a header says is heard between two of them."""
        wait_for(settled, left)
        passes = here.board.passes
        wait_for(lambda: here.board.passes > passes + 1)
        return settled()

    wait_for(stays_settled)
    plan, after = here.board.plan, _pids(here)
    assert plan is not None
    return Seen(
        _memory(here),
        sum(size for digest, size in _stored(here).items() if digest not in stored),
        sum(after[name] != pid for name, pid in before.items() if name in after),
        tuple(item.reason for item in plan.blocked),
    )


_MOVING = (DownloadPhase.WAITING, DownloadPhase.DOWNLOADING, DownloadPhase.VERIFYING)


def _pids(here: ServedNode) -> dict[str, int | None]:
    return {s.ref.name: s.pid for s in here.node.agent.processes.snapshot() if not s.stopping}


def _stored(here: ServedNode) -> dict[str, int]:
    return {s.model.digest: s.model.size_bytes for s in here.node.agent.store.inventory()}


def _memory(here: ServedNode) -> int:
    """What the processes that run were started with."""
    states = [s for s in here.node.agent.processes.snapshot() if not s.stopping]
    return Ledger(state.launch for state in states).taken_bytes("host")


def _table(rows: list[tuple[str, Seen, Seen]]) -> str:
    lines = ["", "| a pull request | memory: planned, done | download | restarts | blocked |"]
    lines.append("|---|---|---|---|---|")
    for words, planned, done in rows:
        lines.append(
            f"| {words} | {show_bytes(planned.memory)}, {show_bytes(done.memory)}"
            f" | {show_bytes(planned.download)}, {show_bytes(done.download)}"
            f" | {planned.restarts}, {done.restarts}"
            f" | {' '.join(planned.blocked) or '-'}, {' '.join(done.blocked) or '-'} |"
        )
    return "\n".join(lines)
