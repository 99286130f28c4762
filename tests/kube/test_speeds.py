"""How fast pods write now: who is asked, what an answer is worth, and what a status says of it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest

from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.errors import Unreachable
from reconciler.kube.informer.observer import Snapshot
from reconciler.kube.informer.strangers import Strangers
from reconciler.kube.nearby import AgentsNearby
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import SPEED_MANAGER, Manifest, id_of
from reconciler.kube.observed import FleetObservation, ObservedCluster
from reconciler.kube.speeds import reader
from reconciler.kube.speeds.deciding import (
    PodAnswer,
    counting_pools,
    is_news,
    own_speeds,
    read_answer,
    ready_pods,
    speed_of,
)
from reconciler.kube.speeds.reader import PodSpeeds
from reconciler.kube.speeds.reported import reported_speeds
from reconciler.loop import Pass
from tests.support.cluster_views import (
    CLUSTER,
    child,
    desired,
    fleet,
    live_service,
    nothing_to_do,
    service_ref,
)
from tests.support.http import OneLineServer
from tests.support.serving import Serving
from tests.support.wait import PATIENCE_S

CHAT = service_ref("chat")
BY_KUBERNETES = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}


def said(*speeds: object) -> str:
    """A companion's answer, by models."""
    lines = [
        f'flexinfer_tokens_per_second{{backend="llama-server",model="m{{}}{i}",node="n"}} {speed}'
        for i, speed in enumerate(speeds)
    ]
    head = "# TYPE flexinfer_tokens_per_second gauge"
    return "\n".join([head, *lines, "flexinfer_tokens_per_second_created 7", ""])


def endpoint(name: str, *addresses: str, **more: Any) -> dict[str, Any]:
    return {"addresses": [*addresses], "targetRef": {"kind": "Pod", "name": name}, **more}


def slice_of(*endpoints: dict[str, Any], name: str = "chat-1", **labels: str) -> dict[str, Any]:
    made = child("EndpointSlice", "discovery.k8s.io/v1", "chat", name)
    made["metadata"]["labels"] |= BY_KUBERNETES | labels
    return {**made, "endpoints": [*endpoints]}


def entry(node: str, by: str = SPEED_MANAGER, **said: Any) -> dict[str, Any]:
    """A document whose status has one entry, and who wrote it."""
    live = live_service(instances=[{"node": node, **said}])
    fields = {"f:status": {"f:instances": {f'k:{{"node":"{node}"}}': {".": {}}}}}
    row = {"manager": by, "operation": "Apply", "subresource": "status", "fieldsV1": fields}
    live["metadata"]["managedFields"] = [row]
    return live


def test_services_that_run_in_pods_and_count_tokens_are_asked() -> None:
    want = desired(
        fleet(
            chat={},
            sleeps={"suspend": True},
            mlx={"placement": {"nodes": ["mac"]}},
        )
    )

    assert counting_pools(want.assignment.workloads, CLUSTER) == {CHAT: "l4"}
    assert counting_pools(want.assignment.workloads, "other") == {}


def test_pods_that_are_ready_are_asked_each_under_one_name() -> None:
    found = slice_of(
        endpoint("chat-a", "10.0.0.7", conditions={"ready": True}),
        endpoint("chat-b", "fd00::7"),
        endpoint("chat-c", "10.0.0.9", conditions={"ready": False, "serving": True}),
        endpoint("chat-d", "metadata.internal"),
        endpoint("chat-e"),
        {"addresses": ["10.0.0.1"]},
    )

    assert [*ready_pods(found)] == [("chat-a", "10.0.0.7"), ("chat-b", "[fd00::7]")]


def test_addresses_that_others_put_behind_a_name_are_not_asked() -> None:
    by_agent = {"endpointslice.kubernetes.io/managed-by": "fleet-agent"}

    assert [*ready_pods(slice_of(endpoint("chat-a", "10.0.0.7"), **by_agent))] == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (said(12.5), PodAnswer(12.5)),
        (said(12.5, 0.5), PodAnswer(13.0)),
        (said(0), PodAnswer(0.0)),
        (said(), PodAnswer(None)),
        ("", PodAnswer(None)),
        ("fleet_engine_ready 1\n", PodAnswer(None)),
        (said("a lot"), PodAnswer(None)),
        (said("NaN"), None),
        (said("+Inf"), None),
        (said("1e308", "1e308"), None),
        (said(5, -1), None),
        (said("1e12"), None),
    ],
)
def test_an_answer_is_a_speed_or_nothing_that_anybody_would_believe(
    text: str, answer: PodAnswer | None
) -> None:
    assert read_answer(text) == answer


def test_a_huge_answer_of_nonsense_is_read_in_no_time() -> None:
    name, size = "flexinfer_tokens_per_second", 1 << 18
    began = time.monotonic()

    for text in ("}" * size, "} " * (size // 2), "}" + " " * size, f"}} 1\n{name}{{" * 6000):
        read_answer(f"{name}{{{text}")

    assert time.monotonic() - began < PATIENCE_S / 10


@pytest.mark.parametrize(
    ("answers", "speed"),
    [
        ({"a": PodAnswer(1.04), "b": PodAnswer(2.0)}, 3.0),
        ({"a": PodAnswer(0.0), "b": PodAnswer(0.0)}, 0.0),
        ({"a": PodAnswer(1.0), "b": PodAnswer(None)}, 1.0),
        ({"a": PodAnswer(None), "b": PodAnswer(None)}, None),
        ({"a": PodAnswer(1.0)}, None),
        ({}, None),
    ],
    ids=["all", "idle", "one has just started", "none can tell", "one is silent", "all are silent"],
)
def test_a_service_writes_what_its_pods_write_or_it_is_not_known(
    answers: Mapping[str, PodAnswer], speed: float | None
) -> None:
    assert speed_of(("a", "b"), answers) == speed


@pytest.mark.parametrize(
    ("before", "now", "news"),
    [
        ({}, {}, False),
        ({}, {"l4": 0.0}, True),
        ({"l4": 0.0}, {"l4": 0.0}, False),
        ({"l4": 10.0}, {"l4": 10.9}, False),
        ({"l4": 10.0}, {"l4": 11.5}, True),
        ({"l4": 10.0}, {"l4": 0.0}, True),
        ({"l4": 10.0}, {"t4": 10.0}, True),
        ({"l4": 10.0}, {}, True),
        ({"l4": None}, {"l4": 10.0}, True),
    ],
)
def test_a_speed_is_written_when_it_begins_ends_moves_or_is_far_from_before(
    before: dict[str, float | None], now: dict[str, float], *, news: bool
) -> None:
    assert is_news(before, now) is news


def test_what_a_process_before_us_wrote_is_ours_and_what_an_agent_wrote_is_not() -> None:
    assert own_speeds(entry("l4", tokensPerSecond=3.5)) == {"l4": 3.5}
    assert own_speeds(entry("mac", by="fleet-agent", tokensPerSecond=3.5, ready=True)) == {}
    assert own_speeds(live_service()) == {}


def test_a_look_from_elsewhere_takes_the_speed_of_pods_and_not_an_agents() -> None:
    live = live_service(
        instances=[
            {"node": "l4", "tokensPerSecond": 3.5},
            {"node": "mac", "tokensPerSecond": 7.0, "ready": True, "inputsDigest": "d"},
        ]
    )

    assert reported_speeds({id_of(live): live}) == {CHAT: 3.5}
    assert reported_speeds({id_of(live_service()): live_service()}) == {}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need more than the second that a companion is given."""
    monkeypatch.setattr(reader, "_WITHIN_S", PATIENCE_S)


class _Companion(Serving):
    """Answers as the companion of every pod at 127.0.0.1."""

    def __init__(self, text: str) -> None:
        self.text = text.encode()
        self.status = 200
        self.asked = 0
        self.answers: Callable[[], object] = lambda: None  # called before each answer
        companion = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                companion.asked += 1
                companion.answers()
                self.send_response(companion.status if self.path == "/metrics" else 404)
                self.end_headers()
                self.wfile.write(companion.text)

            def log_message(self, format: str, *args: object) -> None:
                return

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    @property
    def port(self) -> int:
        return self._server.server_port


class _Cluster:
    """The document of `chat`, its pods, and the reader of their speeds; a clock that stands."""

    name = CLUSTER

    def __init__(self, port: int, *pods: dict[str, Any]) -> None:
        self.document = live_service()
        self.pods, self.spec = pods, dict[str, Any]()
        self.writes: list[list[dict[str, Any]]] = []
        self.leads, self.is_there, self.now = True, True, 0.0
        api = cast("ApiServer", self)
        self.reader = PodSpeeds(api, lambda: self.leads, port=port, clock=lambda: self.now)

    def apply(self, manifest: Manifest, **how: Any) -> None:
        """As server-side apply on a status."""
        assert how == {"manager": SPEED_MANAGER, "force": True, "subresource": "status"}
        if not self.is_there:
            raise Unreachable("nobody is there")
        entries = copy.deepcopy(manifest["status"]["instances"])
        self.writes.append(entries)
        self.document = entry(**entries[0]) if entries else live_service()

    def round(self, after_s: float = 0.0) -> None:
        """One of the reader's, after a pass."""
        self.now += after_s
        want, slices = desired(fleet(chat=self.spec)), slice_of(*self.pods)
        documents = ObjectSet({id_of(self.document): self.document})
        seen = ObservedCluster(
            began=0.0,
            snapshot=Snapshot(documents, None, slices={id_of(slices): slices}),
            nearby=AgentsNearby(frozenset(), {}, documents, {}),
            strangers=Strangers(cast("ApiServer", self), documents),
        )
        observed = FleetObservation({}, (), {f"cluster/{self.name}": seen})
        self.reader.on_applied(Pass(want, observed, nothing_to_do(want)))
        self.reader.round()

    @property
    def told(self) -> list[list[float]]:
        """What each write said."""
        return [[each["tokensPerSecond"] for each in entries] for entries in self.writes]


@contextmanager
def chat(text: str, *pods: str) -> Iterator[tuple[_Companion, _Cluster]]:
    with _Companion(text) as companion:
        each = [endpoint(name, "127.0.0.1") for name in pods or ("chat-a",)]
        yield companion, _Cluster(companion.port, *each)


@pytest.mark.usefixtures("patient")
def test_the_sum_of_the_pods_is_written_and_not_again_while_it_stays() -> None:
    with chat(said(20), "chat-a", "chat-b") as (companion, cluster):
        cluster.round()
        cluster.round(after_s=59)
        assert companion.asked == 2, "once a minute"
        cluster.round(after_s=1)
        assert companion.asked == 4
        companion.text = said(30).encode()
        cluster.round(after_s=59)
        assert cluster.writes == [[{"node": "l4", "tokensPerSecond": 40.0}]]
        cluster.round(after_s=1)

    assert cluster.told == [[40.0], [60.0]]


@pytest.mark.usefixtures("patient")
def test_a_companion_may_miss_one_question_and_then_its_speed_is_not_known() -> None:
    with chat(said(20)) as (companion, cluster):
        cluster.round()
        companion.status = 503
        for _ in range(2):
            cluster.round(after_s=60)
        assert cluster.told == [[20.0]]
        cluster.round(after_s=60)
        assert cluster.told == [[20.0], []]
        cluster.round(after_s=60)

    assert cluster.told == [[20.0], []], "and nothing is written while that stays so"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"suspend": True}},
        {"spec": {"placement": {"nodes": ["mac"]}}},
        {"pods": ()},
    ],
    ids=["suspended", "moved", "without pods"],
)
def test_the_entry_goes_at_once_with_what_it_is_about(change: dict[str, Any]) -> None:
    with chat(said(20)) as (companion, cluster):
        cluster.round()
        for name, value in change.items():
            setattr(cluster, name, value)
        cluster.round(after_s=1)
        cluster.round(after_s=60)

    assert cluster.told == [[20.0], []]
    assert companion.asked == 1


@pytest.mark.usefixtures("patient")
def test_a_pod_that_comes_and_goes_is_not_written_each_time() -> None:
    with chat(said(20)) as (_, cluster):
        pods = cluster.pods
        for seconds in range(0, 120, 5):
            cluster.pods = () if seconds % 10 else pods
            cluster.round(after_s=5)

    assert cluster.told == [[20.0], [], [20.0], []]


def test_who_leads_no_more_when_the_answers_are_there_writes_nothing() -> None:
    with chat(said(20)) as (companion, cluster):
        companion.answers = lambda: setattr(cluster, "leads", False)
        cluster.round()

    assert (companion.asked, cluster.writes) == (1, [])


def test_with_the_process_ends_what_was_still_to_be_asked() -> None:
    pods = [f"chat-{i}" for i in range(200)]
    with chat(said(20), *pods) as (companion, cluster):
        companion.answers = cluster.reader.stop
        cluster.round()

    assert companion.asked < len(pods)
    assert cluster.writes == []


def test_only_who_leads_asks_and_writes() -> None:
    with chat(said(20)) as (companion, cluster):
        cluster.leads = False
        cluster.round()

    assert (companion.asked, cluster.writes) == (0, [])


@pytest.mark.usefixtures("patient")
def test_an_api_server_that_is_away_costs_one_attempt_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with chat(said(20)) as (_, cluster):
        cluster.is_there = False
        for _ in range(3):
            cluster.round(after_s=60)
        cluster.is_there = True
        cluster.round(after_s=60)

    assert cluster.told == [[20.0]]
    assert [record.message for record in caplog.records] == [
        "prod: the speed of default/chat: nobody is there"
    ]


def test_answers_that_are_huge_or_no_http_are_not_waited_for_and_not_kept() -> None:
    with chat(f"{said(20)}# {'x' * (1 << 20)}\n") as (companion, cluster):
        cluster.round()
        assert (companion.asked, cluster.writes) == (1, [])

    ok = "HTTP/1.1 200 OK\r\n"
    endless = f"{ok}Transfer-Encoding: chunked\r\n\r\n-1\r\n{said(20)}"
    for line in ("SSH-2.0-OpenSSH_9.9", endless):
        with OneLineServer(line) as other:
            nonsense = _Cluster(other.server_address[1], endpoint("chat-a", "127.0.0.1"))
            nonsense.round()
            assert nonsense.writes == []
