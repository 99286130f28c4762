"""What a kube-scheduler is answered: by the wire format of extenders, and in bounded memory."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api.nodelabels import DEFAULT_PREFIX, NodeLabels
from reconciler.http.thread import ServerThread
from reconciler.kube.extender import utilisation
from reconciler.kube.extender.app import make_app
from reconciler.kube.extender.configuration import configuration
from reconciler.kube.extender.demand import (
    node_facts,
    pod_demand,
    pool_facts,
    service_facts,
    service_key,
)
from reconciler.kube.extender.facts import ClusterFacts
from reconciler.kube.extender.facts import MeasuredSpeeds as Measured
from reconciler.kube.extender.judge import Judge
from reconciler.kube.extender.tally import Sources, Tally
from reconciler.kube.extender.utilisation import UtilisationReader, utilisation_in
from reconciler.kube.extender.wire import read_args
from reconciler.placement.score import ScoreWeights
from tests.support.http import FileServer
from tests.support.scheduling import GIB, GPU, deployment, node, pod, result
from tests.support.wait import PATIENCE_S

L4 = NodeLabels("NVIDIA", 23 * GIB, "sm_89", int4=True, count=1)
T4 = NodeLabels("NVIDIA", 15 * GIB, "sm_75", int4=True, count=1)
P100 = NodeLabels("NVIDIA", 16 * GIB, "sm_60", int4=False, count=1)
NODES = {"l4": node("l4", L4, 0.8), "t4": node("t4", T4, 0.4), "p100": node("p100", P100, 0.3)}
KEY = ("default", "chat")


def _judge(manifest: dict[str, Any] | None = None, **more: Any) -> Judge:
    services = {KEY: service_facts(manifest or deployment(source="hf://org/repo/model-Q4_0.gguf"))}
    nodes = {name: node_facts(each, {}, DEFAULT_PREFIX) for name, each in NODES.items()}
    facts = ClusterFacts(nodes, services, **more)
    return Judge(facts, ScoreWeights(), DEFAULT_PREFIX)


SPEEDS = Measured([("default", result(L4, 60.0)), ("default", result(T4, 20.0))])


class _Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def post(self, verb: str, args: object) -> Any:
        status, body = self.exchange("POST", f"/{verb}", json.dumps(args).encode())
        assert status == 200, body
        return json.loads(body)

    def exchange(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, body)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found


@pytest.fixture(scope="module")
def client() -> Iterator[_Client]:
    judge = _judge(speeds=SPEEDS)
    app = make_app(Sources(lambda: judge, lambda: {"l4": 0.0}, lambda: ()), Tally())
    with ServerThread(app, "127.0.0.1", 0) as server:
        yield _Client(server.port)


def test_names_are_answered_by_names(client: _Client) -> None:
    found = client.post("filter", {"Pod": pod(), "Nodes": None, "NodeNames": ["l4", "p100", "new"]})

    assert found == {
        "Nodes": None,
        "NodeNames": ["l4", "new"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {
            "p100": "node p100 has no kernels for weights of 4 bits (sm_60), which default/chat has"
        },
        "Error": "",
    }


def test_nodes_are_answered_by_nodes_as_they_came(client: _Client) -> None:
    items = [NODES["p100"], None, NODES["l4"]]

    found = client.post("filter", {"Pod": pod(), "Nodes": {"items": items}, "NodeNames": None})

    assert found["Nodes"]["items"] == [NODES["l4"]]
    assert found["NodeNames"] is None
    assert list(found["FailedAndUnresolvableNodes"]) == ["p100"]


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_both_casings_are_read(client: _Client, verb: str) -> None:
    upper = client.post(verb, {"Pod": pod(), "Nodes": None, "NodeNames": ["l4", "p100"]})
    lower = client.post(verb, {"pod": pod(), "nodes": None, "nodeNames": ["l4", "p100"]})

    assert upper == lower


def test_the_faster_node_gets_the_higher_score(client: _Client) -> None:
    found = client.post("prioritize", {"Pod": pod(), "NodeNames": ["t4", "l4"]})

    # t4: 0.7 / 3 - 0.2 x 0 - 0.05, l4: 0.7 - 0 - 0.1; both and 0.3
    assert found == [{"Host": "t4", "Score": 5}, {"Host": "l4", "Score": 9}]


@pytest.mark.parametrize(
    "stranger",
    [
        pod(None),
        {**pod(), "apiVersion": "v2"},
        {**pod(), "metadata": pod()["metadata"] | {"namespace": ["x" * 300]}},
        {**pod(), "kind": "PodGroup"},
        {"metadata": None, "spec": 7},
        {"metadata": {"labels": [1]}},
        {},
    ],
)
def test_a_pod_that_is_not_ours_may_go_anywhere(client: _Client, stranger: dict[str, Any]) -> None:
    args = {"Pod": stranger, "NodeNames": ["p100", "l4"]}

    assert client.post("filter", args)["NodeNames"] == ["p100", "l4"]
    assert client.post("prioritize", args) == [
        {"Host": "p100", "Score": 0},
        {"Host": "l4", "Score": 0},
    ]


@pytest.mark.parametrize(
    "nodes", [{}, {"Nodes": None, "NodeNames": None}, {"Nodes": {"items": None}}, {"NodeNames": []}]
)
def test_no_nodes_are_no_error(client: _Client, nodes: dict[str, Any]) -> None:
    found = client.post("filter", {"Pod": pod(), **nodes})

    assert not found["NodeNames"]
    assert not (found["Nodes"] or {}).get("items")
    assert found["Error"] == ""
    assert client.post("prioritize", {"Pod": pod(), **nodes}) == []


_LONG = "a" * 254


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"{", b'{"Pod": 1}', b'{"Pod": {}, "NodeNames": 3}'),
        *(
            json.dumps(args).encode()
            for args in (
                {"Pod": pod(namespace=_LONG), "NodeNames": ["l4"]},
                {"Pod": pod(_LONG), "NodeNames": ["l4"]},
                {"Pod": pod(), "NodeNames": [f"{n}{_LONG}" for n in range(5_000)]},
                {"Pod": pod(), "NodeNames": [str(n) for n in range(20_001)]},
            )
        ),
    ],
)
def test_what_is_no_request_is_said_so(client: _Client, body: bytes) -> None:
    status, said = client.exchange("POST", "/filter", body)

    assert status == 400
    assert "no request of a scheduler (API v1)" in json.loads(said)["message"]


def test_50_megabytes_are_refused_before_they_are_read(client: _Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE_S) as raw:
        raw.sendall(b"POST /filter HTTP/1.1\r\nhost: x\r\ncontent-length: 52428800\r\n\r\n")
        answer = raw.recv(65536)

    assert answer.startswith(b"HTTP/1.1 413")


def test_a_body_of_unsaid_length_is_cut_off(client: _Client) -> None:
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE_S) as raw:
        raw.sendall(b"POST /filter HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        sent = 0
        try:
            while sent < 50:
                raw.sendall(chunk)
                sent += 1
            answer = raw.recv(65536)
        except OSError:  # it hung up in the middle
            answer = b""

    assert answer[:12] in (b"", b"HTTP/1.1 413")
    assert client.exchange("GET", "/healthz")[0] == 200


def test_what_strangers_ask_is_neither_kept_for_ever_nor_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("reconciler.kube.extender.judge._MOST_JUDGED", 4_000)
    nodes = {f"n{i}": node_facts(node(f"n{i}", P100), {}, DEFAULT_PREFIX) for i in range(400)}
    judge, tally = Judge(ClusterFacts(nodes), ScoreWeights(), DEFAULT_PREFIX), Tally()
    app = make_app(Sources(lambda: judge, dict, lambda: ()), tally)
    asked = pod("x" * 253, namespace="y" * 253)
    asked["spec"]["containers"][0]["resources"]["limits"] = {f"amd.com/{'x' * 10_000}": "1"}
    asked["spec"]["containers"].append({"resources": {"limits": (limits := {"amd.com/gpu": "1"})}})
    tracemalloc.start()
    for i in range(40):
        limits["amd.com/gpu"] = str(i + 1)
        body = json.dumps({"Pod": asked, "NodeNames": list(nodes)}).encode()
        assert len(judge.misfits(read_args(body))) == 400
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    with caplog.at_level(logging.INFO, "reconciler.kube"), ServerThread(app, "127.0.0.1", 0) as at:
        _Client(at.port).post("prioritize", {"Pod": asked, "NodeNames": list(nodes)})

    assert kept < 6 << 20
    assert (tally.warned, caplog.text) == ({}, "")


def test_10_000_nodes_are_judged(client: _Client) -> None:
    names = [f"node-{i}" for i in range(10_000)]

    found = client.post("filter", {"Pod": pod(), "NodeNames": [*names, "p100"]})
    scored = client.post("prioritize", {"Pod": pod(), "NodeNames": names})

    assert found["NodeNames"] == names
    assert len(scored) == 10_000


def test_what_was_asked_is_counted(client: _Client) -> None:
    client.post("prioritize", {"Pod": pod(), "NodeNames": ["l4", "p100"]})
    _, said = client.exchange("GET", "/metrics")

    assert b'fleet_extender_requests_total{result="ok",verb="prioritize"}' in said
    assert b'fleet_extender_unknown_nodes{fact="speed"} 1.0' in said


def test_before_the_cluster_is_read_every_node_passes() -> None:
    app = make_app(Sources(lambda: None, dict, lambda: ("cluster away",)), Tally())
    with ServerThread(app, "127.0.0.1", 0) as server:
        client = _Client(server.port)
        args = {"Pod": pod(), "NodeNames": ["p100"]}

        assert client.post("filter", args)["NodeNames"] == ["p100"]
        assert client.post("prioritize", args) == [{"Host": "p100", "Score": 0}]
        assert client.exchange("GET", "/readyz")[0] == 503


def test_busier_and_dearer_is_worse() -> None:
    args = read_args(json.dumps({"Pod": pod(), "NodeNames": ["l4", "t4"]}).encode())

    idle = _judge().scored(args, {"l4": 0.0, "t4": 1.0}, 0).scores
    busy = _judge().scored(args, {"l4": 1.0, "t4": 0.0}, 0).scores

    assert idle[0] > busy[0]
    assert idle[1] < busy[1]


def test_a_speed_that_was_measured_with_other_settings_is_not_known() -> None:
    manifest = deployment()
    inputs = json.loads(manifest["metadata"]["annotations"]["inference.llmkube.dev/inputs"])
    inputs["settings"] = {"contextSize": 512}
    manifest["metadata"]["annotations"]["inference.llmkube.dev/inputs"] = json.dumps(inputs)
    args = read_args(json.dumps({"Pod": pod(), "NodeNames": ["l4", "t4"]}).encode())

    known = _judge(deployment(), speeds=SPEEDS).scored(args, {}, result(L4, 1.0).measured_at)
    other = _judge(manifest, speeds=SPEEDS).scored(args, {}, result(L4, 1.0).measured_at)

    assert (known.unknown.speed, other.unknown.speed) == (0, 2)


def test_a_speed_that_another_namespace_states_is_not_known() -> None:
    args = read_args(json.dumps({"Pod": pod(), "NodeNames": ["l4", "t4"]}).encode())
    speeds = Measured([("evil", result(L4, 1e9)), ("default", result(T4, 20.0))])

    found = _judge(deployment(), speeds=speeds).scored(args, {}, result(L4, 1.0).measured_at)

    assert found.unknown.speed == 1


def test_a_speed_that_is_too_old_is_not_known() -> None:
    args = read_args(json.dumps({"Pod": pod(), "NodeNames": ["l4"]}).encode())
    in_a_year = result(L4, 1.0).measured_at + 365 * 86_400

    found = _judge(deployment(), speeds=SPEEDS).scored(args, {}, in_a_year)

    assert found.unknown.speed == 1


def test_a_pod_wants_what_its_deployment_and_its_pool_say() -> None:
    pool = pool_facts(
        {
            "metadata": {"name": "pool"},
            "spec": {
                "kubernetes": {"nodeSelector": {"pool": "a"}},
                "hardware": {"devices": [{"arch": "sm_89", "memory": "23Gi"}]},
                "memory": {"devices": {"fraction": 0.5}},
                "costPerHour": 2,
            },
        }
    )
    service = service_facts(deployment(source="x/y-Q4_0.gguf", gpu_bytes=GIB))

    found = pod_demand(pod(gpus=2), KEY, service, pool)

    assert (found.gpus, found.vendor, found.resource) == (2, "NVIDIA", GPU)
    assert (found.archs, found.share) == (frozenset({"sm_89"}), 0.5)
    assert (found.int4, found.gpu_bytes) == (True, GIB)
    in_pool = {**NODES["l4"], "metadata": {"name": "l4", "labels": {"pool": "a"}}}
    assert node_facts(in_pool, {"pool": pool}, DEFAULT_PREFIX).cost == 2
    assert node_facts(NODES["l4"], {"pool": pool}, DEFAULT_PREFIX).cost == 0.8


def test_a_slice_has_the_memory_that_its_node_or_its_name_says() -> None:
    labels = {"nvidia.com/mig-1g.5gb.memory": "4864"}
    offers = {"nvidia.com/mig-1g.5gb": "7", "nvidia.com/mig-3g.20gb": "1", GPU: "1"}
    node = {"metadata": {"name": "a", "labels": labels}, "status": {"allocatable": offers}}

    assert node_facts(node, {}, DEFAULT_PREFIX).slices == (
        ("nvidia.com/mig-1g.5gb", 4864 * 2**20),
        ("nvidia.com/mig-3g.20gb", 20 * 10**9),
    )


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(
                        ["metadata", "spec", "status", "labels", "annotations", "kubernetes",
                         "hardware", "devices", "containers", "allocatable", "name"]),
                        inner, max_size=4), max_leaves=12))  # fmt: skip
def test_objects_with_nonsense_are_read_as_not_known(found: Any) -> None:
    manifest = found if isinstance(found, dict) else {"metadata": found, "spec": found}

    service_key(manifest)
    pod_demand(manifest, KEY, service_facts(manifest), pool_facts(manifest))
    node_facts(manifest, {"p": pool_facts(manifest)}, DEFAULT_PREFIX)


def test_utilisation_is_the_mean_of_a_nodes_gpus() -> None:
    said = (
        "# TYPE fleet_gpu_utilization_ratio gauge\n"
        'fleet_gpu_utilization_ratio{gpu="0",node="n"} 0.5\n'
        'fleet_gpu_utilization_ratio{gpu="1",node="n"} 1.0\n'
        'fleet_gpu_utilization_ratio{gpu="2",node="n"} NaN\n'
    )

    assert utilisation_in(said) == 0.75
    assert utilisation_in("# none\n") is None


def test_utilisation_is_not_known_a_minute_after_its_labeler_fell_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(utilisation, "_TIMEOUT_S", PATIENCE_S)  # a busy machine may need more
    now = [0.0]
    said = b'fleet_gpu_utilization_ratio{gpu="0",node="n"} 0.25\n'
    with FileServer(said) as server:
        urls = {"n": server.url}
        reader = UtilisationReader(lambda: urls, clock=lambda: now[0])
        reader.read_all()
        server.status = 500
        now[0] = 59.0
        reader.read_all()

        assert reader.now() == {"n": 0.25}
        now[0] = 61.0
        assert reader.now() == {}


def test_a_labeler_that_has_gone_is_forgotten() -> None:
    with FileServer(b'fleet_gpu_utilization_ratio{gpu="0"} 1\n') as server:
        urls = {"n": server.url}
        reader = UtilisationReader(lambda: urls)
        reader.read_all()
        urls.clear()
        reader.read_all()

    assert reader.now() == {}


def test_the_configuration_asks_us_for_gpus_alone_and_goes_on_without_us() -> None:
    (extender,) = configuration("http://x:1")["extenders"]

    assert extender["ignorable"] is True
    assert {"name": GPU} in extender["managedResources"]
    assert "enableHTTPS" not in extender
    (secure,) = configuration("https://x:1")["extenders"]
    assert secure["enableHTTPS"] is True
    assert secure["tlsConfig"]["caFile"]


def test_memory_of_pods_that_are_there_is_counted_for_nodes_that_are_sent() -> None:
    whole = node("l4", replace(L4, count=1), gpus=4)
    service = service_facts(deployment(gpu_bytes=12 * GIB))
    there = pod_demand(pod("other"), ("default", "other"), service, None)
    facts = ClusterFacts({}, {KEY: service}, tenants={"l4": (there,)})
    body = json.dumps({"Pod": pod(), "Nodes": {"items": [whole]}}).encode()

    found = Judge(facts, ScoreWeights(), DEFAULT_PREFIX).misfits(read_args(body))

    assert not found["l4"].lasts
