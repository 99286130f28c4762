"""The table that a person reads, and the JSON that a program does."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api import nodestate as wire
from reconciler.api.errors import UsageError
from reconciler.cli.status import exit_code
from reconciler.console.edge import Exit
from reconciler.console.statusview import chosen, cut, fitting
from reconciler.core.observation import (
    Drift,
    DriftKind,
    Observation,
    ObservedPool,
    Pending,
    RevisionState,
    TargetState,
)
from reconciler.fleet.command import ServedModel
from reconciler.report.nodestate import node_state
from reconciler.report.status import DeclaredService, Status
from reconciler.report.status_json import status_json
from reconciler.report.status_text import StatusStyle, status_text
from reconciler.report.terminal import Style
from tests.support.builders import GIB, NODE, instance, need, observed, ref

NOW = 1_000_000.0
SHA, OLD = "b" * 40, "a" * 40


def busy() -> Status:
    """A node with one of everything, and one that is gone."""
    mac = TargetState(
        NODE,
        True,
        NOW - 3,
        pools=(ObservedPool("host", 36 * GIB, 24 * GIB, 3 * GIB),),
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
            DeclaredService(ref("embed"), "Unknown", node="attic"),
            DeclaredService(ref("huge"), "MemoryFits", "needs 30.1 GiB of host memory", node="mac"),
            DeclaredService(ref("lost"), "PlacementNotStated", "say where"),
        ),
        {NODE: said},
        SHA,
    )


def test_a_status_groups_services_by_node_with_what_is_to_be_said_below_them() -> None:
    assert (
        status_text(busy(), StatusStyle(NOW))
        == """\
attic  did not answer (last seen 2 h ago)
      http://attic: connection refused
  SERVICE         STATE               ENDPOINT                PID  SINCE
  default/embed   Unknown             -                       -    -

mac  on aaaaaaa, refuses bbbbbbb  memory [###-------] 6.0 GiB of 24.0 GiB  other processes 3.0 GiB  memory pressure critical  agent 0.4.0  seen 3 s ago
      x.yaml:3:1: no such field
      download qwen: 25 %, 1.0 GiB of 4.0 GiB
  default/chat    Ready               http://127.0.0.1:20014  41   2 h
      base_url http://127.0.0.1:20014/v1 for chat, completions, responses; without /v1 for Anthropic's messages
      ! foreign: pid 7 listens on our port, first seen 60 s ago
  default/rerank  Downloading         -                       -    9 s
      https://x
  default/router  Ready               -                       -    -
      gemma loaded
      qwen failed, LoadFailed: exit code 1
  default/huge    MemoryFits          -                       -    -
      needs 30.1 GiB of host memory

on no node
  default/lost    PlacementNotStated  -                       -    -
      say where

2 of 6 services ready; 1 of 2 nodes did not answer
"""  # noqa: E501 - for a program a line has no end
    )


@pytest.mark.parametrize("width", [52, 60, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = status_text(busy(), StatusStyle(NOW, width))

    assert max(map(len, text.splitlines())) <= width
    for word in ("default/chat", "http://127.0.0.1:20014", "MemoryFits", "qwen"):
        assert word in text


@pytest.mark.parametrize("height", [4, 5, 10, 24])
def test_a_window_that_is_too_small_shows_the_totals_all_the_same(height: int) -> None:
    lines = status_text(busy(), StatusStyle(NOW, 80)).splitlines()

    shown = cut(lines, height)

    assert len(shown) < height
    assert shown[-1] == lines[-1]
    assert shown == lines or f"... {len(lines) - len(shown) + 1} more lines" in shown[-2]


def forty(*late: str) -> Status:
    """A node with 40 services, of which some are not ready."""
    names = [f"s{number:02}" for number in range(40)]
    runs = (instance(n, ready=n not in late, needs=need(GIB), pid=1) for n in names)
    return Status(observed(*runs, pools=(ObservedPool("host", None, 64 * GIB, None),)))


@pytest.mark.parametrize("height", [10, 20, 30])
def test_a_small_window_shows_the_services_that_are_not_ready_and_leaves_out_healthy_ones(
    height: int,
) -> None:
    status = forty("s17", "s39")

    lines = fitting(status, StatusStyle(NOW, 80), height, not_ready=False)

    assert len(lines) == height - 1
    assert [line.split()[0] for line in lines[2:5]] == [
        *("default/s17", "default/s39", "default/s00"),
    ]
    assert lines[-1] == "38 of 40 services ready"
    assert lines[-3] == f"  {38 - (height - 8)} more: {38 - (height - 8)} Ready"


def test_a_window_that_is_large_enough_shows_everything() -> None:
    status = forty("s17")

    lines = fitting(status, StatusStyle(NOW, 80), 50, not_ready=False)

    assert lines == status_text(status, StatusStyle(NOW, 80)).splitlines()


def test_what_is_not_ready_is_shown_alone_with_the_totals_of_everything() -> None:
    status = forty("s17")

    lines = fitting(status, StatusStyle(NOW, 80), 50, not_ready=True)
    document = status_json(status, all_services=False)

    assert [line.split()[0] for line in lines if "default/" in line] == ["default/s17"]
    assert "  39 more: 39 Ready" in lines
    assert lines[-1] == "39 of 40 services ready"
    assert [s["ref"]["name"] for s in document["services"]] == ["s17"]
    assert document["nodes"] == status_json(status)["nodes"]


def test_a_ready_service_of_which_something_is_to_be_said_is_not_left_out() -> None:
    well, odd = instance("well"), instance("odd", pending=Pending("DownloadFailed", "gone", NOW))
    foreign = instance("seen", drifts=(Drift(DriftKind.FOREIGN, "pid 7", NOW),))
    router = instance("router", models=("a",), served=(ServedModel("a", "failed"),))
    status = Status(
        observed(well, odd, foreign, router),
        (DeclaredService(ref("off"), "Suspended", node="mac"),),
    )

    text = status_text(status, StatusStyle(NOW), well=0)

    shown = ["odd", "router", "seen"]
    assert re.findall(r"default/(\w+)", text) == shown
    assert "2 more: 1 Ready, 1 Suspended" in text
    services = status_json(status, all_services=False)["services"]
    assert [s["ref"]["name"] for s in services] == shown


def test_services_that_are_named_are_shown_alone_on_their_nodes_with_all_memory_counted() -> None:
    status = busy().narrowed({ref("rerank")})

    text, document = status_text(status, StatusStyle(NOW)), status_json(status)

    assert "attic" not in text
    assert "] 6.0 GiB of 24.0 GiB" in text  # which default/chat takes
    assert re.findall(r"default/(\w+)", text) == ["rerank"]
    assert text.endswith("\n0 of 1 services ready\n")
    assert [s["ref"]["name"] for s in document["services"]] == ["rerank"]
    assert document["nodes"][0]["pools"] == status_json(busy())["nodes"][1]["pools"]


@pytest.mark.parametrize(("name", "code"), [("chat", Exit.OK), ("embed", Exit.BLOCKED)])
def test_the_exit_code_is_that_of_the_services_that_are_named(name: str, code: Exit) -> None:
    assert exit_code(busy().narrowed({ref(name)}), allow_unreachable=False) == code


def test_a_name_that_no_service_has_is_answered_with_the_nearest() -> None:
    args = argparse.Namespace(names=["chta"])

    with pytest.raises(UsageError, match=r'chta: no such service \(did you mean "default/chat"'):
        chosen(args, busy())


def test_colour_changes_no_letter() -> None:
    plain = status_text(busy(), StatusStyle(NOW, 80))

    coloured = status_text(busy(), StatusStyle(NOW, 80, Style(colour=True)))

    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert coloured != plain


def test_what_an_agent_says_cannot_draw_on_the_terminal() -> None:
    evil = "\x1b[2J\rall is well\n"
    status = Status(observed(instance(ready=False, reason=evil, message=evil)))

    text = status_text(status, StatusStyle(NOW, 80))

    assert "\x1b" not in text
    assert "\r" not in text


def test_memory_of_services_that_nobody_weighed_is_unknown_and_not_nothing() -> None:
    pools = (ObservedPool("host", None, 24 * GIB, None),)
    status = Status(observed(instance(pid=4), pools=pools))

    assert "memory ? of 24.0 GiB" in status_text(status, StatusStyle(NOW))
    assert status_json(status)["nodes"][0]["pools"][0]["usedBytes"] is None


def test_a_model_that_sleeps_is_not_shown_as_if_it_were_loaded() -> None:
    asleep = instance(served=(ServedModel("gemma", "sleeping"),), measured=(("host", 87 * 2**20),))

    text = status_text(Status(observed(asleep)), StatusStyle(NOW))

    assert "default/chat  Sleeping" in text
    assert "takes 87.0 MiB of host memory; what it needs awake is kept for it" in text


@pytest.mark.parametrize("reason", ["Crashed", "KilledBySignal", "NotResponding"])
def test_a_service_whose_engine_failed_names_the_command_that_shows_its_log(reason: str) -> None:
    failed = instance(ready=False, reason=reason, message="exit code 1")
    pod = replace(failed, target="cluster/prod")
    cluster = TargetState("cluster/prod", reachable=True)

    here = status_text(Status(observed(failed)), StatusStyle(NOW))
    there = status_text(Status(Observation({cluster.target: cluster}, (pod,))), StatusStyle(NOW))

    assert "on the node, `fleet-agent logs default/chat` shows more" in here
    assert "fleet-agent logs" not in there


def test_what_is_not_to_run_is_listed_and_counts_as_no_failure() -> None:
    declared = (
        DeclaredService(ref("off"), "Suspended", node="mac"),
        DeclaredService(ref("still"), "StoppedByHand", "a word", node="mac", since=NOW - 7200),
    )
    status = Status(observed(instance()), declared)

    text = status_text(status, StatusStyle(NOW))

    assert "default/off    Suspended" in text
    assert re.search(r"default/still +StoppedByHand .* 2 h\n", text)
    assert text.endswith("1 of 1 services ready, 1 suspended, 1 stopped by hand\n")
    assert exit_code(status, allow_unreachable=False) == Exit.OK


def test_a_node_behind_the_newest_revision_is_said_to_be() -> None:
    seen = observed(instance(), revision=RevisionState(OLD, OLD))

    assert "on aaaaaaa, behind bbbbbbb" in status_text(Status(seen, revision=SHA), StatusStyle(NOW))
    its = RevisionState(f"{OLD}+dirty.1", f"{OLD}+dirty.1")
    edited = Observation({NODE: TargetState(NODE, True, revision=its)}, ())
    assert "on aaaaaaa+dirty.1\n" in status_text(Status(edited), StatusStyle(NOW))
    assert "behind" not in status_text(Status(seen, revision=f"{OLD}+dirty.1"), StatusStyle(NOW))


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
    (its,) = services["chat"]["placements"]
    assert its["baseUrl"] == "http://127.0.0.1:20014/v1"
    assert {"name": "messages", "path": "/v1/messages"} in its["apis"]


@pytest.mark.parametrize(
    ("runtime", "inputs", "words", "path"),
    [
        ("llama-server", {"lifecycle": {"chat": False}}, "for completions", "completions"),
        *(
            (runtime, {"settings": {f"runtimeOptions.{option}": True}}, f"for {path}", path)
            for runtime, option, path in (
                ("llama-server", "embeddings", "embeddings"),
                ("llamacpp-router", "reranking", "rerank"),
            )
        ),
        ("mlx-lm", {}, "for chat, completions", "chat/completions"),
        ("mlx-server", {"settings": ["of another version"]}, "for chat", "chat/completions"),
        ("custom", {"settings": {"runtimeOptions.speaks": "rerank"}}, "for rerank", "rerank"),
        ("custom", {"settings": {"runtimeOptions.speaks": ["rerank"]}}, None, "chat/completions"),
        ("custom", {}, None, "chat/completions"),
        ("of-tomorrow", {}, None, "chat/completions"),
    ],
)
def test_a_status_says_what_an_address_is_for(
    runtime: str, inputs: dict[str, Any], words: str | None, path: str
) -> None:
    runs = instance(endpoint="http://127.0.0.1:20014", runtime=runtime, inputs=inputs)
    status = Status(observed(runs))
    lines = status_text(status, StatusStyle(NOW)).splitlines()

    (service,) = status_json(status)["services"]
    assert service["endpoint"] == f"http://127.0.0.1:20014/v1/{path}"

    said = [line.strip() for line in lines if "base_url" in line]
    assert said == ([f"base_url http://127.0.0.1:20014/v1 {words}"] if words else [])


def test_a_service_of_two_nodes_is_ready_when_both_answer() -> None:
    there = TargetState("node/there", False, message="gone")
    seen = Observation({**observed().targets, "node/there": there}, (instance(),))
    declared = (DeclaredService(ref(), node="mac"), DeclaredService(ref(), "Unknown", node="there"))

    (service,) = status_json(Status(seen, declared))["services"]

    assert not service["ready"]
    assert service["reason"] == "Unknown"
    assert [(p["node"], p["ready"]) for p in service["placements"]] == [
        ("mac", True),
        ("there", False),
    ]
