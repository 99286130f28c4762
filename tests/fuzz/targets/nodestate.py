"""What an agent answers, and what a plan and a table make of it. AgentError, and no other."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from reconciler.agents.client import read_state
from reconciler.api.errors import AgentError
from reconciler.api.nodestate import NodeState
from reconciler.core.observation import (
    Drift,
    DriftKind,
    Observation,
    ObservedPool,
    RevisionState,
    RuntimeFound,
    TargetState,
)
from reconciler.fleet.workload import PoolNeed
from reconciler.loop.desired import Desired, no_facts
from reconciler.report.nodestate import node_state, read_node_state
from reconciler.report.plan_json import plan_json
from reconciler.report.plan_text import plan_text
from reconciler.report.status import Status
from reconciler.report.status_json import status_json
from reconciler.report.status_text import StatusStyle, status_text
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from tests.fuzz.target import JSON_PIECES, Target
from tests.support.builders import GIB, instance, ref
from tests.support.fleets import MemoryCheckout, model, node, service

_NOW = 1_800_000_000.0


def _prepare(_: Path) -> Callable[[bytes], None]:
    checkout = MemoryCheckout({"n.yaml": node("mac"), "m.yaml": model(), "s.yaml": service("chat")})
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None
    desired = Desired.of(checkout, loaded, loaded.fleet, no_facts)

    def read(data: bytes) -> None:
        with contextlib.suppress(AgentError):
            judge(read_state(data, "mac"))

    def judge(answer: NodeState) -> None:
        state, instances = read_node_state(answer)
        observed = Observation({state.target: state}, instances)
        plan = desired.plan(observed)
        status = Status(observed, states={state.target: answer})
        for text in (plan_text(plan, _NOW), status_text(status, StatusStyle(_NOW, 100))):
            assert all(c.isprintable() or c == "\n" for c in text)
        json.dumps([plan_json(plan), status_json(status)])

    return read


def _seeds() -> Iterable[bytes]:
    state = TargetState(
        "node/mac",
        reachable=True,
        seen_at=_NOW,
        missing={"mlx-lm": "not installed"},
        runtimes=(RuntimeFound("llama-server", "/usr/bin/llama-server", "b5000"),),
        pools=(ObservedPool("host", 64 * GIB, 48 * GIB, GIB, "chrome 1 GiB"),),
        revision=RevisionState("abc", "abc", "def", ("a.yaml:1: no",), held="it was forced"),
        stopped={ref("old"): "digest"},
    )
    running = instance(
        needs=(PoolNeed("host", GIB, 48 * GIB, (("weights", GIB),)),),
        pid=77, port=20_000, endpoint="http://127.0.0.1:20000/v1", since=_NOW,
        drifts=(Drift(DriftKind.COSMETIC, "a line", _NOW),), measured=(("host", GIB),),
    )  # fmt: skip
    for instances in ((), (running, instance("gone", gone=True, ready=False, reason="Loading"))):
        made = node_state(state, instances, agent_version="0.2", fleet="/srv/fleet")
        yield made.model_dump_json(by_alias=True, exclude_none=True).encode()
    yield b'{"formatVersion": 99}'


TARGET = Target(
    "nodestate",
    _prepare,
    _seeds,
    pieces=JSON_PIECES,
    is_json=True,
)
