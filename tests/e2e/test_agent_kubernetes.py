"""`fleet-agent run --kubernetes`: a node that takes its services from a cluster's API."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest

from reconciler.kube.endpoints.heartbeat import STALE_S, LeaseState, lease_state
from reconciler.kube.endpoints.slices import stale_slices
from reconciler.kube.objects import OWNED_KINDS
from tests.support.beside_cluster import NODE, BesideCluster, own_address
from tests.support.client import complete
from tests.support.cluster import Cluster
from tests.support.reconciler import Machine, Running
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

MOST_RSS = 80 << 20


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


def _start(machine: Machine, cluster: Cluster, *words: str, is_forked: bool = True) -> Running:
    place = ("--kubernetes", "--kubeconfig", str(cluster.kubeconfig), "--node", NODE)
    return machine.daemon(*place, *words, is_forked=is_forked)


def _serving(machine: Machine, cluster: Cluster, tiny: Path, *names: str) -> BesideCluster:
    """An agent that serves these, all published."""
    beside = BesideCluster.install(cluster, tiny)
    for name in names:
        beside.declare(name)
    beside.say("r1", *names)
    _start(machine, cluster)
    for name in names:
        machine.wait_ready(name)
        beside.wait_published(name)
    return beside


def test_what_a_cluster_declares_runs_here_and_is_found_there(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = BesideCluster.install(cluster, tiny)
    beside.declare("chat")
    beside.say("r1", "chat")

    running = _start(machine, cluster, is_forked=False)

    chat = machine.wait_ready("chat")
    found = beside.wait_published("chat")
    assert found["endpoints"][0]["addresses"] == [own_address()]
    assert found["ports"][0]["port"] == chat.port
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "chat"
    assert chat.endpoint
    assert complete(chat.endpoint)
    wait_for(lambda: beside.instance("chat").get("ready") is True)
    assert beside.instance("chat")["port"] == chat.port
    wait_for(lambda: beside.observed().get("revision") == "r1")
    wait_for(lambda: beside.lease() is not None)
    process = psutil.Process(running.pid)
    wait_for(lambda: process.memory_info().rss < MOST_RSS, "idle below 80 MiB")


def test_an_address_that_is_not_this_machines_is_said_and_never_published(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = BesideCluster.install(cluster, tiny)
    beside.put_node(hostIP="203.0.113.9", expose="open", clusters=["test"])
    beside.declare("chat")
    beside.say("r1", "chat")

    _start(machine, cluster)

    wait_for(lambda: beside.instance("chat").get("reason") == "HostIPNotLocal")
    assert beside.slice("chat") is None


def test_it_ends_and_leaves_its_models_and_their_endpoints(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = _serving(machine, cluster, tiny, "chat")
    chat = machine.wait_ready("chat")

    assert machine.running()[-1].end() == 0

    assert machine.wait_ready("chat").pid == chat.pid
    assert beside.conditions("chat")["ready"] is True  # until the Lease is stale


def test_with_stop_on_exit_its_endpoints_go_before_its_models(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = BesideCluster.install(cluster, tiny)
    beside.declare("chat")
    beside.say("r1", "chat")
    running = _start(machine, cluster, "--stop-on-exit")
    beside.wait_published("chat")

    assert running.end() == 0

    assert beside.slice("chat") is None
    assert not machine.processes()


def test_the_rights_that_install_gives_it_are_all_that_it_needs(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    mine = {"KUBECONFIG": str(cluster.kubeconfig)}
    installed = machine.reconcile("install", env=mine)
    assert installed.code == 0, installed.err
    account = machine.reconcile("install", "--agent", NODE, env=mine)
    assert account.code == 0, account.err
    own = machine.root / "agent.kubeconfig"
    own.write_text(account.out)
    beside = BesideCluster(cluster, tiny)
    beside.put_node()
    beside.put_model()
    beside.declare("chat")
    beside.say("r1", "chat")
    before = (beside.lease() or {})["spec"].get("renewTime")

    running = machine.daemon("--kubernetes", "--kubeconfig", str(own), "--node", NODE)

    machine.wait_ready("chat")
    beside.wait_published("chat")
    wait_for(lambda: beside.instance("chat").get("ready") is True)
    wait_for(lambda: beside.observed().get("revision") == "r1")
    wait_for(lambda: (beside.lease() or {})["spec"].get("renewTime") != before)
    beside.say("r2")
    machine.wait_gone("chat")
    beside.wait_withdrawn("chat")
    assert "level=warning" not in running.err


def test_a_list_without_a_service_stops_it_and_its_slice_goes(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = _serving(machine, cluster, tiny, "chat", "embed")
    embed = machine.wait_ready("embed")
    wait_for(lambda: beside.instance("chat").get("ready") is True)

    beside.say("r2", "embed")

    machine.wait_gone("chat")
    beside.wait_withdrawn("chat")
    wait_for(lambda: not beside.instance("chat"), "its entry gone")
    assert machine.wait_ready("embed").pid == embed.pid


def test_an_idle_agent_writes_nothing_but_its_lease(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = _serving(machine, cluster, tiny, "chat")
    wait_for(lambda: beside.observed().get("revision") == "r1")
    wait_for(lambda: beside.instance("chat").get("ready") is True)
    wait_for(lambda: beside.instance("chat").get("tokensPerSecond") == 0, "known, and idle")
    versions = _versions(cluster)
    renewed = (beside.lease() or {})["spec"]["renewTime"]

    wait_for(lambda: (beside.lease() or {})["spec"]["renewTime"] != renewed)

    assert _versions(cluster) == versions


def test_deleted_objects_stop_nothing_as_long_as_the_list_names_them(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = _serving(machine, cluster, tiny, "chat")
    chat = machine.wait_ready("chat")

    cluster.kubectl("delete", "inferenceservice", "chat")
    beside.say("r2", "chat")

    running = machine.running()[-1]
    running.wait_said("revision=r2")
    assert machine.wait_ready("chat").pid == chat.pid


def test_definitions_that_are_made_anew_stop_nothing(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = _serving(machine, cluster, tiny, "chat")
    chat = machine.wait_ready("chat")
    running = machine.running()[-1]

    beside.undefine()
    running.wait_said("source lost")
    beside.define()
    beside.put_node()  # without a status: nobody has said what is to run
    running.wait_said("has no status.desired yet")

    assert machine.wait_ready("chat").pid == chat.pid
    beside.put_model()
    beside.declare("chat")
    beside.declare("more")
    beside.say("r3", "chat", "more")
    machine.wait_ready("more")
    assert machine.wait_ready("chat").pid == chat.pid


def test_without_the_api_it_serves_on_and_so_does_its_next_life(
    machine: Machine, own_cluster: Cluster, tiny: Path
) -> None:
    beside = _serving(machine, own_cluster, tiny, "chat")
    chat = machine.wait_ready("chat")
    first = machine.running()[-1]
    wait_for(lambda: "r1" in (machine.state / "desired/history.json").read_text())

    own_cluster.stop_part("kube-apiserver", kill=True)
    first.wait_said("source lost")
    first.end(signal.SIGKILL)
    second = _start(machine, own_cluster)

    second.wait_said("source lost")
    assert machine.wait_ready("chat").pid == chat.pid
    assert chat.pid
    psutil.Process(chat.pid).kill()  # what it revives now, it knows from its own disk
    after = machine.wait_ready("chat", not_pid=chat.pid)
    assert after.endpoint
    assert complete(after.endpoint)
    assert second.err.count("source lost") == 1

    own_cluster.start_api()
    beside.wait_published("chat")
    assert machine.wait_ready("chat").pid == after.pid


def test_a_killed_agent_is_stale_and_its_endpoints_are_to_be_withdrawn(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = _serving(machine, cluster, tiny, "chat")
    wait_for(lambda: beside.lease() is not None)
    now = time.time()
    assert lease_state(beside.lease(), now) is LeaseState.RENEWED

    machine.running()[-1].end(signal.SIGKILL)

    later = now + 2 * STALE_S  # as the reconciler's clock will say
    assert lease_state(beside.lease(), later) is LeaseState.STALE
    api = cluster.client()
    live = api.list(OWNED_KINDS["discovery.k8s.io", "EndpointSlice"], namespace="default").items
    for withdrawn in stale_slices(live, [NODE]):
        api.replace(withdrawn)
    api.close()
    assert beside.conditions("chat")["ready"] is False
    _start(machine, cluster)
    beside.wait_published("chat")  # who comes back takes them over again


def test_alone_it_serves_what_asks_for_metal_and_makes_its_service_known(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = BesideCluster.install(cluster, tiny, accelerator="metal")
    beside.declare("chat")

    _start(machine, cluster, "--standalone")

    machine.wait_ready("chat")
    beside.wait_published("chat")
    made = cluster.json("get", "service", "chat")["spec"]
    assert "selector" not in made
    assert made["ports"][0]["port"] == 8080
    wait_for(lambda: beside.instance("chat").get("ready") is True)

    cluster.kubectl("delete", "inferenceservice", "chat")

    machine.wait_gone("chat")
    beside.wait_withdrawn("chat")
    gone = ("get", "service", "chat", "--ignore-not-found")
    wait_for(lambda: cluster.kubectl(*gone) == "", "its Service gone")


def test_alone_neither_new_definitions_nor_a_namespace_that_goes_stop_anything(
    machine: Machine, cluster: Cluster, tiny: Path
) -> None:
    beside = BesideCluster.install(cluster, tiny, accelerator="metal")
    cluster.namespace("team")
    beside.put_model(namespace="team", accelerator="metal")
    beside.declare("chat")
    beside.declare("embed", "team")
    running = _start(machine, cluster, "--standalone")
    pids = {name: machine.wait_ready(name).pid for name in ("chat", "embed")}
    wait_for(lambda: '"team"' in (machine.state / "desired/cluster.json").read_text())

    cluster.kubectl("delete", "namespace", "team")
    beside.undefine()
    running.wait_said("source lost")
    beside.define()
    beside.put_node()
    beside.put_model(accelerator="metal")
    beside.declare("more")  # so that the empty answers before it were seen

    machine.wait_ready("more")
    assert {name: machine.wait_ready(name).pid for name in pids} == pids


def _versions(cluster: Cluster) -> dict[str, str]:
    """Of everything that an agent may write, but for its Lease."""
    found = cluster.json("get", "fleetnodes,inferenceservices,endpointslices,services", "-A")
    return {
        f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
        for item in found["items"]
    }
