"""The table that a person reads, and the JSON that a program does."""

from __future__ import annotations

import re

import pytest

from reconciler.api import nodestate as wire
from reconciler.plan import (
    Drift,
    DriftKind,
    Observation,
    PoolState,
    RevisionState,
    TargetState,
)
from reconciler.report.nodestate import node_state
from reconciler.report.status import Declared, Status, status_json
from reconciler.report.status_text import View, status_text
from reconciler.report.terminal import Style
from reconciler.workload import ServedModel
from tests.support.builders import GIB, NODE, instance, need, observed, ref

NOW = 1_000_000.0
SHA, OLD = "b" * 40, "a" * 40


def busy() -> Status:
    """A node with one of everything, and one that is gone."""
    mac = TargetState(
        NODE,
        True,
        NOW - 3,
        pools=(PoolState("host", 36 * GIB, 24 * GIB, 3 * GIB),),
        revision=RevisionState(SHA, OLD, SHA, ("x.yaml:3:1: no such field",)),
    )
    gone = TargetState("node/attic", False, NOW - 7200, "http://attic: connection refused")
    runs = (
        instance(
            "chat",
            endpoint="http://127.0.0.1:20014",
            pid=41,
            since=NOW - 8000,
            needs=need(6 * GIB),
            drifts=(Drift(DriftKind.FOREIGN, "pid 7 listens on our port", NOW - 60),),
        ),
        instance("rerank", ready=False, reason="Downloading", message="https://x", since=NOW - 9),
        instance(
            "router",
            models=("gemma", "qwen"),
            served=(
                ServedModel("gemma", "loaded"),
                ServedModel("qwen", "failed", "LoadFailed", "exit code 1"),
            ),
        ),
    )
    download = wire.DownloadState(
        model="qwen", source="https://x", state="running", received_bytes=GIB, total_bytes=4 * GIB
    )
    said = node_state(
        mac,
        runs,
        agent_version="0.4.0",
        downloads=[download],
        pressure=wire.Pressure(level="critical"),
    )
    return Status(
        Observation({NODE: mac, "node/attic": gone}, runs),
        (
            Declared(ref("embed"), "Unknown", node="attic"),
            Declared(ref("huge"), "MemoryFits", "needs 30.1 GiB of host", node="mac"),
            Declared(ref("lost"), "PlacementNotLocked", "say where"),
        ),
        {NODE: said},
        SHA,
    )


def test_a_status_groups_services_by_node_with_what_is_to_be_said_below_them() -> None:
    assert (
        status_text(busy(), View(NOW))
        == """\
  SERVICE         STATE               ENDPOINT                PID  SINCE
attic  did not answer (last seen 2 h ago)
      http://attic: connection refused
  default/embed   Unknown             -                       -    -

mac  at aaaaaaa, refuses bbbbbbb  host 6.0 GiB of 24.0 GiB, others 3.0 GiB  memory pressure critical  agent 0.4.0  seen 3 s ago
      x.yaml:3:1: no such field
      download qwen: 25 %, 1.0 GiB of 4.0 GiB
  default/chat    Ready               http://127.0.0.1:20014  41   2 h
      ! foreign: pid 7 listens on our port, first seen 60 s ago
  default/rerank  Downloading         -                       -    9 s
      https://x
  default/router  Ready               -                       -    -
      gemma loaded
      qwen failed, LoadFailed: exit code 1
  default/huge    MemoryFits          -                       -    -
      needs 30.1 GiB of host

on no node
  default/lost    PlacementNotLocked  -                       -    -
      say where

2 of 6 services ready; 1 of 2 nodes did not answer
"""  # noqa: E501 - for a program a line has no end
    )


@pytest.mark.parametrize("width", [52, 60, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = status_text(busy(), View(NOW, width))

    assert max(map(len, text.splitlines())) <= width
    for word in ("default/chat", "http://127.0.0.1:20014", "MemoryFits", "qwen"):
        assert word in text


def test_colour_changes_no_letter() -> None:
    plain = status_text(busy(), View(NOW, 80))

    coloured = status_text(busy(), View(NOW, 80, Style(colour=True)))

    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert coloured != plain


def test_what_an_agent_says_cannot_draw_on_the_terminal() -> None:
    evil = "\x1b[2J\rall is well\n"
    status = Status(observed(instance(ready=False, reason=evil, message=evil)))

    text = status_text(status, View(NOW, 80))

    assert "\x1b" not in text
    assert "\r" not in text


def test_memory_of_services_that_nobody_weighed_is_unknown_and_not_nothing() -> None:
    pools = (PoolState("host", None, 24 * GIB, None),)
    status = Status(observed(instance(pid=4), pools=pools))

    assert "host ? of 24.0 GiB" in status_text(status, View(NOW))
    assert status_json(status)["nodes"][0]["pools"][0]["usedBytes"] is None


def test_a_node_behind_the_newest_revision_is_said_to_be() -> None:
    seen = observed(instance(), revision=RevisionState(OLD, OLD))

    assert "at aaaaaaa, behind bbbbbbb" in status_text(Status(seen, revision=SHA), View(NOW))
    its = RevisionState(f"{OLD}+dirty.1", f"{OLD}+dirty.1")
    edited = Observation({NODE: TargetState(NODE, True, revision=its)}, ())
    assert "at aaaaaaa+dirty.1\n" in status_text(Status(edited), View(NOW))
    assert "behind" not in status_text(Status(seen, revision=f"{OLD}+dirty.1"), View(NOW))


def test_the_json_has_every_node_and_every_service() -> None:
    document = status_json(busy())

    assert [n["name"] for n in document["nodes"]] == ["attic", "mac"]
    services = {s["ref"]["name"]: s for s in document["services"]}
    assert {name: s["ready"] for name, s in services.items()} == {
        "chat": True,
        "embed": False,
        "huge": False,
        "lost": False,
        "rerank": False,
        "router": True,
    }
    assert services["router"]["advertisedModels"] == ["gemma"]
    assert services["chat"]["endpoint"] == "http://127.0.0.1:20014/v1/chat/completions"
    assert services["huge"]["reason"] == "MemoryFits"


def test_a_service_of_two_nodes_is_ready_when_both_answer() -> None:
    there = TargetState("node/there", False, message="gone")
    seen = Observation({**observed().targets, "node/there": there}, (instance(),))
    declared = (Declared(ref(), node="mac"), Declared(ref(), "Unknown", node="there"))

    (service,) = status_json(Status(seen, declared))["services"]

    assert not service["ready"]
    assert service["reason"] == "Unknown"
    assert [(p["node"], p["ready"]) for p in service["placements"]] == [
        ("mac", True),
        ("there", False),
    ]
