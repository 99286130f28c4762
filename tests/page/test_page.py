"""The page: all that status and plan say, and nothing of it as markup."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest

from reconciler.api.meta import service_ref
from reconciler.core.observation import Observation, ObservedPool, TargetState
from reconciler.core.plan import Plan
from reconciler.page.render import node_card, page, service_row
from reconciler.page.values import (
    AskBox,
    Documents,
    bytes_text,
    memory_parts,
    node_cards,
    service_of,
    troubles,
)
from reconciler.report.plan_json import plan_json
from reconciler.report.status import DeclaredService, Status
from reconciler.report.status_json import status_json

GIB = 2**30
HOSTILE = '<script>alert("x")</script>'


PLACED: dict[str, Any] = {
    "target": "node/mac",
    "node": "mac",
    "ready": True,
    "reason": "Ready",
    "message": "",
    "pending": None,
    "baseUrl": "http://127.0.0.1:8080/v1",
    "apis": [{"name": "chat", "path": "/v1/chat/completions"}],
    "models": [{"name": "tiny", "state": "loaded", "reason": None, "message": ""}],
    "memory": [
        {"pool": "host", "requiredBytes": GIB, "budgetBytes": 8 * GIB, "measuredBytes": None}
    ],
    "tokensPerSecond": 12.5,
    "requestsInFlight": 0,
}
EXPLAINED: dict[str, Any] = {
    "memory": {
        **dict.fromkeys(("stateBytes", "logitsBytes", "computeBytes", "overheadBytes"), 0),
        "promptCacheBytes": 0,
        "projectorBytes": 0,
        "draftBytes": 0,
        "kvBytes": GIB,
        "weightsBytes": 2 * GIB,
        "totalBytes": 3 * GIB,
        "exact": True,
        "unknown": [],
    },
    "command": ["llama-server", "--ctx-size", "4096", "--alias", HOSTILE],
    "flags": {"spec.contextSize": ["--ctx-size"], "the Model": ["--alias"]},
}


def ref(name: str) -> dict[str, str]:
    return {"kind": "InferenceService", "namespace": "default", "name": name}


def blocked(name: str, reason: str, *holds: str, kind: str = "InferenceService") -> dict[str, Any]:
    return {
        "ref": ref(name) | {"kind": kind},
        "target": None,
        "reason": reason,
        "message": f"{name} is blocked",
        "source": {"file": "a.yaml", "line": 4, "commit": "0123456789"},
        "holds": [ref(one) for one in holds],
        "confirm": "default/3-abcdef" if reason == "NeedsConfirmation" else None,
    }


def replaced(target: str, after: int) -> dict[str, Any]:
    memory = {"pool": "host", "beforeBytes": 1, "afterBytes": after, "budgetBytes": 8 * GIB}
    return {
        "action": "replace",
        "target": target,
        "ref": ref("chat"),
        "object": None,
        "reason": "SpecChanged",
        "message": "",
        "source": None,
        "fields": [{"path": "contextSize", "before": 4096, "after": HOSTILE}],
        "impact": {"memory": [memory], "downloadBytes": 5 * GIB, "downtimeSeconds": 1.4},
    }


def plan(*changes: dict[str, Any], held: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    empty = plan_json(Plan("0" * 40, (), (), (), {}, {}))
    return {**empty, "changes": [*changes], "blocked": [*held]}


def status(**reasons: str) -> Mapping[str, Any]:
    """A node `mac` with 2 of 8 GiB taken, and services that do not run for these reasons."""
    state = TargetState(
        "node/mac", reachable=True, pools=(ObservedPool("host", 16 * GIB, 8 * GIB, 2 * GIB),)
    )
    declared = tuple(
        DeclaredService(service_ref(name), reason, f"{name} is not there", "mac")
        for name, reason in reasons.items()
    )
    return status_json(Status(Observation({"node/mac": state}, ()), declared, revision="f" * 40))


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag + ("!" if tag == "script" and not dict(attrs).get("src") else ""))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.mark.parametrize(
    ("reasons", "held", "expected"),
    [
        ({"chat": "EngineMissing"}, (), ["default/chat EngineMissing"]),
        ({"chat": "Suspended", "talk": "StoppedByHand"}, (), []),
        (
            {"chat": "MemoryFits"},
            (blocked("chat", "MemoryFits"), blocked("old", "NeedsConfirmation")),
            ["default/chat MemoryFits", "InferenceService default/old NeedsConfirmation"],
        ),
        (
            {"chat": "ModelUnavailable"},
            (blocked("tiny", "ModelUnavailable", "chat", kind="Model"),),
            ["default/chat ModelUnavailable"],
        ),
    ],
    ids=["does not run", "meant", "held back", "held by its model"],
)
def test_what_needs_attention_is_said_once(
    reasons: dict[str, str], held: tuple[dict[str, Any], ...], expected: list[str]
) -> None:
    listed = troubles(status(**reasons), plan(held=held))

    assert [f"{each.title} {each.reason}" for each in listed] == expected


@pytest.mark.parametrize(
    ("after", "parts"),
    [
        (None, [("free", 800), ("others", 200)]),
        (4 * GIB, [("planned", 400), ("free", 400), ("others", 200)]),
        (18 * GIB, [("planned", 900), ("others", 100)]),  # more than there is
    ],
    ids=["at rest", "a start is planned", "too much"],
)
def test_a_bar_is_the_whole_pool(after: int | None, parts: list[tuple[str, int]]) -> None:
    changes = [replaced("node/mac", after)] if after else []
    (card,) = node_cards(status(), plan(*changes))
    (bar,) = card.bars

    assert [(s.kind, round(s.width)) for s in bar.parts] == parts
    assert bar.after == (None if after is None else bytes_text(after))


@pytest.mark.parametrize("name", ["fleet", "plan", "service"])
def test_nothing_that_others_wrote_is_markup(name: str) -> None:
    shown = {**status(), "services": [{**_service("chat"), "message": HOSTILE, "reason": HOSTILE}]}
    held = blocked(HOSTILE, HOSTILE)
    service = {
        "service": service_of(shown, "default", "chat"),
        "explained": EXPLAINED,
        "ask_box": AskBox("", (HOSTILE, HOSTILE)),
    }
    more = service if name == "service" else {}

    text = page(name, Documents(HOSTILE, shown, plan(replaced(HOSTILE, GIB), held=(held,))), **more)

    tags = Tags(text)
    assert "script!" not in tags.names
    assert "alert" in tags.text


def test_a_page_says_what_the_documents_say() -> None:
    shown = Documents("mac", status(chat="EngineMissing"), plan(replaced("node/mac", 3 * GIB)))

    fleet, planned = Tags(page("fleet", shown)).text, Tags(page("plan", shown)).text

    assert "3.0 GiB as planned, of 8.0 GiB; others take 2.0 GiB" in fleet
    assert "default/chat EngineMissing chat is not there" in fleet
    assert "replace default/chat contextSize 4096" in planned
    assert "download 5.0 GiB" in planned
    assert "No revision was followed yet." in page("plan", shown._replace(plan=None))


def test_a_services_page_has_its_settings_and_its_memory_by_part() -> None:
    services = {**status(), "services": [_service("chat")]}
    shown = Documents("mac", services, plan(), page_of=lambda _: "https://mac:9090")
    service = service_of(shown.status, "default", "chat")

    text = page("service", shown, service=service, explained=EXPLAINED, ask_box=None)

    assert "Memory 3.0 GiB weights 2.0 GiB context 1.0 GiB" in Tags(text).text
    assert "--ctx-size 4096 spec.contextSize" in Tags(text).text
    assert f"--alias {HOSTILE} the Model" in Tags(text).text
    assert [part.bar.width for part in memory_parts(EXPLAINED["memory"])] == [666.7, 333.3]
    bare = page("service", shown, service=service, explained=None, ask_box=None)
    assert "Settings" not in Tags(bare).text
    assert 'href="https://mac:9090/services/default/chat"' in text


def test_a_service_that_was_scaled_to_zero_is_well_and_is_not_to_be_asked() -> None:
    zero = {"reason": "ScaledToZero", "message": "no pod runs"}
    service = {**_service("chat"), **zero, "placements": [{**PLACED, **zero}]}
    shown = Documents("prod", {**status(), "services": [service]}, plan())

    text = page("service", shown, service=service, explained=None, ask_box=None)

    assert '<span class="state good">ScaledToZero</span>' in text
    assert "no pod runs" in Tags(text).text
    assert "Ask it" not in text
    assert troubles(shown.status, shown.plan) == ()


def test_what_is_too_little_to_be_seen_makes_no_card_again() -> None:
    first, more = status(), status()
    (pool,) = more["nodes"][0]["pools"]
    more["nodes"][0]["pools"] = [{**pool, "usedByOthersBytes": pool["usedByOthersBytes"] + 4096}]

    assert [*node_cards(first, None)] == [*node_cards(more, None)]


@pytest.mark.parametrize(
    ("revision", "shown"),
    [("a" * 40, "revision aaaaaaa"), ("a" * 40 + "+1f3c", "revision aaaaaaa+1f3c")],
)
def test_what_was_not_committed_shows_in_the_revision(revision: str, shown: str) -> None:
    fleet = {**status(), "revision": revision}
    planned = {**plan(), "revision": revision}

    for name in ("fleet", "plan"):
        text = Tags(page(name, Documents("mac", fleet, planned))).text
        assert f"{shown} " in text.replace(":", " ")


def test_three_hundred_nodes_and_three_thousand_services_are_a_page_in_time() -> None:
    shown = fleet_of(nodes=300, services=3000)
    page("fleet", shown)
    services = shown.status["services"]
    services[7] = {**services[7], "placements": [{**PLACED, "tokensPerSecond": 99.25}]}
    rows, cards = service_row.cache_info().misses, node_card.cache_info().misses

    began = time.process_time()
    text = page("fleet", shown)

    # 0.02 s on a machine with nothing else to do
    assert time.process_time() - began < 1.0, "one row is rendered again"
    assert (service_row.cache_info().misses, node_card.cache_info().misses) == (rows + 1, cards)
    assert len(re.findall("<tr>", text)) == 3001
    assert "99.25" in text


def fleet_of(*, nodes: int, services: int) -> Documents:
    """The documents of a large fleet."""
    small = status()
    shown = {
        "nodes": [{**small["nodes"][0], "target": f"node/n{i}"} for i in range(nodes)],
        "services": [_service(f"s{i}") for i in range(services)],
    }
    return Documents("fleet", {**small, **shown}, plan())


def _service(name: str) -> dict[str, Any]:
    return {
        "ref": ref(name),
        "ready": True,
        "reason": "Ready",
        "message": "",
        "placements": [PLACED],
    }
