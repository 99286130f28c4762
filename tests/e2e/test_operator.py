"""A reconciler that stays beside a cluster: the loop as its Deployment runs it, outside of one."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import re
import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.meta import API_VERSION
from reconciler.source.namespace_limits import LIMITS, MAX_OBJECT_BYTES
from tests.support.cluster import Cluster
from tests.support.cluster_fleet import ClusterFleet
from tests.support.crds import install_kinds, remove_kinds, small, thing
from tests.support.fleets import service
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.reconciler import Machine, Running
from tests.support.served_node import request
from tests.support.wait import PATIENCE_S, wait_for

SHOWN = ("default/bad DanglingReference", "cluster/prod", "default/chat Ready")

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]


def operate(
    machine: Machine, cluster: Cluster, *words: str, is_forked: bool = True, **env: str
) -> Running:
    """The loop over the cluster's own objects."""
    where = ("-C", "cluster://prod", "--cluster", "prod=test")
    config = ("--kubeconfig", str(cluster.kubeconfig))
    # A long poll: what happens, happens by watches.
    slow = {"FLEET_POLL_INTERVAL": "60s", **env}
    return machine.start(*where, *config, *words, env=slow, is_forked=is_forked)


def names(cluster: Cluster, kind: str) -> set[str]:
    return {o["metadata"]["name"] for o in cluster.json("get", kind, "-n", "default")["items"]}


def uid(cluster: Cluster, kind: str, name: str) -> str:
    return str(cluster.json("get", kind, name)["metadata"]["uid"])


def ask(
    port: int, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET" if body is None else "POST", path, body, named)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def passes(running: Running) -> float:
    """How often the loop has compared, by its own count."""
    url = f"http://127.0.0.1:{running.err.partition('served on port ')[2].split()[0]}"
    return request(url, "GET", "/metrics").metrics()["fleet_passes_total"]


def page(running: Running) -> str:
    """What its page says, without markup."""
    url = f"http://127.0.0.1:{running.err.partition('served on port ')[2].split()[0]}"
    text = re.sub("<[^>]*>", " ", request(url, "GET", "/").text)
    return " ".join(text.split())


def holder(cluster: Cluster) -> str:
    """Who applies; empty: nobody, or nobody ever did."""
    words = ("get", "lease", "-n", "fleet-reconciler")
    found = {o["metadata"]["name"]: o["spec"] for o in cluster.json(*words)["items"]}
    return str(found.get("fleet-home", {}).get("holderIdentity") or "")


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


@pytest.fixture
def pool(cluster: Cluster) -> Cluster:
    """With a node that has devices."""
    cluster.add_node("l4-0", **{"nvidia.com/gpu": "8"})
    return cluster


def test_objects_that_kubectl_applied_are_rendered_and_stay_kubectls(
    pool: Cluster, machine: Machine
) -> None:
    running = operate(machine, pool)
    pool.apply(*small("chat"))

    wait_for(lambda: "chat" in names(pool, "deployments"), "the Deployment")
    pool.wait("isvc/chat", "--for=condition=Ready")

    found = pool.json("get", "isvc", "chat", "--show-managed-fields")
    owners = {(m["manager"], m.get("subresource", "")) for m in found["metadata"]["managedFields"]}
    assert ("fleet-reconciler", "") not in owners
    assert ("fleet-reconciler", "status") in owners
    assert found["status"]["endpoint"].endswith(":8080/v1/chat/completions")

    pool.kubectl("delete", "isvc", "chat")
    wait_for(lambda: "chat" not in names(pool, "deployments"), "its end")
    assert running.process.poll() is None


def test_one_bad_object_is_stalled_with_its_reason_and_stops_nobody_else(
    pool: Cluster, machine: Machine
) -> None:
    bad = thing("InferenceService", "bad", {"modelRef": "nowhere", "placement": {"nodes": ["l4"]}})
    pool.apply(*small("chat"), bad)
    running = operate(machine, pool, "--listen", "127.0.0.1:0")

    pool.wait("isvc/chat", "--for=condition=Ready")
    pool.wait("isvc/bad", "--for=condition=Stalled")

    conditions = pool.json("get", "isvc", "bad")["status"]["conditions"]
    said = {c["type"]: (c["status"], c["reason"]) for c in conditions}
    assert said["Ready"] == ("False", "DanglingReference")
    assert "bad" not in names(pool, "deployments")
    running.wait_said("served on port")
    wait_for(lambda: all(word in page(running) for word in SHOWN), "the page of it all")
    pool.kubectl("patch", "isvc", "bad", "--type=merge", "-p", '{"spec": {"modelRef": "gemma"}}')
    pool.wait("isvc/bad", "--for=condition=Ready")
    gone = {c["type"] for c in pool.json("get", "isvc", "bad")["status"]["conditions"]}
    assert "Stalled" not in gone


def test_a_namespace_over_its_limit_is_held_alone_and_takes_memory_for_what_it_has_once(
    pool: Cluster, machine: Machine
) -> None:
    spec = {
        "runtime": "custom",
        "image": "a.example/x:1",
        "runtimeOptions": {"probePath": "/h", "memory": "1Gi"},
        "placement": {"nodes": ["l4"]},
    }
    ours, theirs = pool.namespace("team-a"), pool.namespace("team-b")
    path = f"/apis/{API_VERSION}/namespaces/{{}}/inferenceservices/{{}}"

    def apply(namespace: str, name: str, **changed: object) -> None:
        its = {"name": name, "namespace": namespace}
        body = {"apiVersion": API_VERSION, "kind": "InferenceService", "metadata": its}
        pool.requests.apply(path.format(namespace, name), body | {"spec": spec | changed})

    def images(namespace: str) -> list[str]:
        found = pool.json("get", "deployments", "-n", namespace)["items"]
        return [o["spec"]["template"]["spec"]["containers"][0]["image"] for o in found]

    def most_memory(running: Running) -> int:
        status = Path(f"/proc/{running.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10

    pool.apply(*small())
    apply(ours, "web")
    apply(theirs, "web")
    running = operate(machine, pool, is_forked=False)
    wait_for(lambda: images(ours) == images(theirs) == ["a.example/x:1"], "both Deployments")
    usual = most_memory(running)
    running.process.terminate()
    running.process.wait(PATIENCE_S)

    size = 5 * MAX_OBJECT_BYTES  # as much as etcd takes
    count = LIMITS.size_bytes // size + 1
    for i in range(count):
        apply(theirs, f"s{i}", args=[secrets.token_hex(size // 2)])
    running = operate(machine, pool, is_forked=False)
    wait_for(lambda: "Stalled" in conditions_of(pool, theirs, "web"), "the held namespace")
    for namespace in (ours, theirs):
        apply(namespace, "web", image="a.example/x:2")
    wait_for(lambda: images(ours) == ["a.example/x:2"], "the change of the other namespace")

    assert conditions_of(pool, theirs, "web")["Ready"] == ("False", "TooLarge")
    message = pool.json("get", "isvc", "web", "-n", theirs)["status"]["conditions"][0]["message"]
    assert message.startswith("namespace team-b has 33 MiB of fleet objects, and 32 MiB is")
    assert conditions_of(pool, ours, "web").get("Stalled") is None
    its = pool.json("get", "deployment", "web", "-n", theirs)["spec"]["template"]["spec"]
    assert its["containers"][0]["image"] == "a.example/x:1", "it stays as it runs"
    assert most_memory(running) - usual < 9 * count * size

    pool.kubectl("delete", "isvc", "s0", "s1", "-n", theirs)
    wait_for(lambda: "a.example/x:2" in images(theirs), "the namespace once it has less")
    assert running.process.poll() is None


def conditions_of(cluster: Cluster, namespace: str, name: str) -> dict[str, tuple[str, str]]:
    found = cluster.json("get", "isvc", name, "-n", namespace).get("status", {})
    return {c["type"]: (c["status"], c["reason"]) for c in found.get("conditions", ())}


def test_pods_that_no_node_could_hold_are_never_made_where_their_header_comes_in_time(
    pool: Cluster, machine: Machine, tmp_path: Path
) -> None:
    def far(name: str, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
        spec = {"modelRef": name, "placement": {"nodes": ["l4"]}, "contextSize": size}
        source = {"source": f"{hub.url}?{name}"}
        return thing("Model", name, source), thing("InferenceService", name, spec)

    def fits(name: str) -> list[str]:
        found = pool.json("get", "isvc", name).get("status", {}).get("conditions", ())
        return [c["status"] for c in found if c["type"] == "MemoryFits"]

    with FileServer(tiny_llama(tmp_path / "tiny.gguf").read_bytes()) as hub:
        trusting = thing("Fleet", "home", {"allowedHosts": ["127.0.0.1"]})
        pool.apply(*small(), trusting)
        operate(machine, pool, FLEET_OFFLINE="")
        pool.apply(*far("large", 99_999_999), *far("chat", 512))
        wait_for(lambda: "chat" in names(pool, "deployments"), "what fits")
        wait_for(lambda: fits("large") == ["False"], "why the other is not there")
        assert "large" not in names(pool, "deployments")
        made = pool.json("get", "deployment", "chat")["spec"]["template"]
        assert "memory" in made["spec"]["containers"][0]["resources"]["requests"]

        hub.go_on.clear()  # it says nothing more, and holds nobody up for longer than a moment
        pool.apply(*far("late", 99_999_999))
        wait_for(lambda: "late" in names(pool, "deployments"), "what nothing is known of")
        hub.go_on.set()
        wait_for(lambda: fits("late") == ["False"], "what its header says")


def test_definitions_that_are_deleted_and_made_anew_stop_nothing(
    pool: Cluster, machine: Machine
) -> None:
    pool.apply(*small("chat", "embed"))
    running = operate(machine, pool, "--listen", "127.0.0.1:0")
    wait_for(lambda: {"chat", "embed"} <= names(pool, "deployments"), "both")
    pool.wait("isvc/chat", "isvc/embed", "--for=condition=Ready")
    before = [uid(pool, "deployment", name) for name in ("chat", "embed")]

    remove_kinds(pool)
    running.wait_said("cluster://prod")
    install_kinds(pool)
    pool.apply(*small("chat"))
    running.wait_said("recreated")
    before_harm = passes(running)
    pool.apply(*small("chat", "third"))
    wait_for(lambda: passes(running) > before_harm + 1, "passes that could do harm")
    assert [uid(pool, "deployment", name) for name in ("chat", "embed")] == before

    pool.apply(*small("chat", "embed"))
    pool.wait("isvc/chat", "isvc/embed", "--for=condition=Ready")
    assert [uid(pool, "deployment", name) for name in ("chat", "embed")] == before


def test_a_namespace_that_goes_takes_its_own_services_and_no_others(
    pool: Cluster, machine: Machine
) -> None:
    there = {"namespace": pool.namespace("team-a")}
    moved = [o for o in small("away") if o["kind"] in ("Model", "InferenceService")]
    pool.apply(*small("chat"), *({**o, "metadata": o["metadata"] | there} for o in moved))
    running = operate(machine, pool)
    wait_for(lambda: "chat" in names(pool, "deployments"), "the Deployment")
    pool.wait("isvc/chat", "--for=condition=Ready")
    pool.wait("isvc/away", "-n", "team-a", "--for=condition=Ready")
    before = uid(pool, "deployment", "chat")

    out, err = len(running.out), len(running.err)
    pool.kubectl("delete", "namespace", "team-a")

    def said() -> str:
        return running.out[out:] + running.err[err:]

    # what the namespace took along before anybody looked is in no plan
    wait_for(lambda: "team-a/away" in said() or "nothing to do, 1 unchanged" in said(), said)
    pool.apply(*small("chat", "embed"))
    wait_for(lambda: "embed" in names(pool, "deployments"), "the next service")
    pool.wait("isvc/chat", "isvc/embed", "--for=condition=Ready")
    assert uid(pool, "deployment", "chat") == before
    assert "team-a" not in pool.kubectl("get", "namespaces")


def test_who_stands_by_takes_over_at_once_and_only_one_writes(
    pool: Cluster, machine: Machine, tmp_path: Path
) -> None:
    pool.apply(*small("chat"))
    # a Lease that is not given back would last longer than anything waits here
    first = operate(machine, pool, "--lease-duration", "10m", POD_NAME="first")
    wait_for(lambda: holder(pool).startswith("first"), "the Lease")
    second = operate(machine, pool, "--listen", "127.0.0.1:0", POD_NAME="second")
    second.wait_said("served on port")
    port = int(second.err.partition("served on port ")[2].split()[0])
    wait_for(lambda: ask(port, "/readyz")[0] == 200, "it stands by")
    assert ask(port, "/readyz")[1]["role"] == "standby"
    assert ask(port, "/readyz")[1]["holder"].startswith("first")

    assert first.end() == 0
    wait_for(lambda: ask(port, "/readyz")[1]["role"] == "leader", "the hand-over")
    pool.apply(*small("chat", "embed"))
    wait_for(lambda: "embed" in names(pool, "deployments"), "the Deployment")
    transitions = pool.json("get", "lease", "fleet-home", "-n", "fleet-reconciler")["spec"]
    assert transitions["leaseTransitions"] >= 1


def test_a_forges_call_brings_a_pushed_commit_at_once(
    tmp_path: Path, cluster: Cluster, machine: Machine
) -> None:
    home = ClusterFleet.create(tmp_path, cluster, machine)
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    home.push(chat=service("chat", "phi"))
    running = machine.start(
        *home.words,
        *("--listen", "127.0.0.1:0", "--webhook-secret-file", str(secret)),
        *("--interval", "10m"),
    )
    running.wait_said("served on port")
    wait_for(lambda: "chat" in names(cluster, "deployments"), "the first")

    home.push(other=service("other", "phi"))
    port = int(running.err.partition("served on port ")[2].split()[0])
    tag = hmac.new(b"hunter2", b"{}", hashlib.sha256).hexdigest()
    assert ask(port, "/hook", b"{}", X_Gitea_Signature=tag)[0] == 202

    wait_for(lambda: "other" in names(cluster, "deployments"), "the pushed one")


def test_a_call_that_reaches_who_stands_by_wakes_the_one_who_leads(
    tmp_path: Path, cluster: Cluster, machine: Machine
) -> None:
    home = ClusterFleet.create(tmp_path, cluster, machine)
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    slowly = ("--interval", "10m")
    first = machine.start(*home.words, *slowly, env={"POD_NAME": "first"})
    wait_for(lambda: holder(cluster).startswith("first"), "the Lease")
    hooked = ("--listen", "127.0.0.1:0", "--webhook-secret-file", str(secret))
    second = machine.start(*home.words, *slowly, *hooked, env={"POD_NAME": "second"})
    second.wait_said("served on port")
    port = int(second.err.partition("served on port ")[2].split()[0])
    wait_for(lambda: ask(port, "/readyz")[0] == 200, "it stands by")
    home.push(chat=service("chat", "phi"))

    tag = hmac.new(b"hunter2", b"{}", hashlib.sha256).hexdigest()
    assert ask(port, "/hook", b"{}", X_Gitea_Signature=tag)[0] == 202

    wait_for(lambda: "chat" in names(cluster, "deployments"), "the pushed one")
    assert holder(cluster).startswith("first")
    assert first.end() == 0
