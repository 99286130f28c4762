"""One fault each in a cluster with a Mac beside it: what is seen meanwhile, and that it all comes
back. What holds after each is in tests.support.cluster_chaos: a dry run finds nothing to do, nobody
else's object was written, no Deployment was replaced and no model on the Mac was stopped."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import cluster_faults as faults
from tests.support import cluster_hands as hands
from tests.support.cluster_chaos import ClusterWorld
from tests.support.cluster_declared import MAC
from tests.support.cluster_wipe import SYSTEM
from tests.support.fleets import document
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.together]

_ALONE = (
    faults.api_server_killed,
    faults.etcd_killed,
    faults.namespace_deleted,
    faults.quota_exceeded,
    faults.storm_of_429,
    faults.connections_cut,
    faults.half_open,
    faults.answers_lost,
    hands.deleted_by_hand,
    hands.documents_of_the_mac_deleted,
    hands.inventory_deleted,
    hands.marks_stripped,
    hands.finalizer_hangs,
    faults.reconciler_killed,
    faults.agent_killed,
)


class _Worlds:
    """One world for all tests of this file, and another one after a test that failed."""

    def __init__(self, folder: Callable[[], Path], tiny: Path) -> None:
        self._folder, self._tiny = folder, tiny
        self._held = contextlib.ExitStack()
        self._world: ClusterWorld | None = None

    def get(self) -> ClusterWorld:
        if self._world is None:
            opened = ClusterWorld.open(self._folder(), self._tiny)
            self._world = self._held.enter_context(opened)
            self._world.converge()
        return self._world

    def close(self) -> None:
        self._world = None
        self._held.close()


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[_Worlds]:
    made = _Worlds(lambda: tmp_path_factory.mktemp("world"), tiny)
    yield made
    made.close()


@pytest.fixture
def world(worlds: _Worlds) -> Iterator[ClusterWorld]:
    """Converged, and again at the end of the test, whatever it broke."""
    found = worlds.get()
    try:
        yield found
        found.heal_proxy()
        found.converge()
    except BaseException:
        worlds.close()
        raise


@contextlib.contextmanager
def broken(world: ClusterWorld, fault: faults.Fault) -> Iterator[None]:
    story = fault(world)
    next(story)
    yield
    assert next(story, "healed") == "healed"


@pytest.mark.parametrize("fault", _ALONE, ids=lambda fault: fault.__name__)
def test_a_cluster_comes_back_from(world: ClusterWorld, fault: faults.Fault) -> None:
    with broken(world, fault):
        pass


def test_while_definitions_are_gone_nothing_stops_and_nothing_is_removed(
    world: ClusterWorld,
) -> None:
    """Deleting a definition tells each of its objects as deleted first, as if people had."""
    deployments = {n: d["metadata"]["uid"] for n, d in world.laws.deployments().items()}
    pids = {name: world.mac.wait_ready(name).pid for name in MAC}

    with broken(world, faults.definitions_deleted):
        running = world.reconcilers[0]
        told = running.err.count("did not answer")
        wait_for(lambda: running.err.count("did not answer") > told, "it is noticed")
        seen = re.compile(r"^cluster \S+ \(last seen ", re.MULTILINE)
        wait_for(lambda: seen.search(running.out), "a plan that says since when")
        world.cluster.kubectl("delete", "service", "basil")
        assert {n: d["metadata"]["uid"] for n, d in world.laws.deployments().items()} == deployments
        assert {name: world.mac.wait_ready(name).pid for name in MAC} == pids

    world.converge()
    assert {n: d["metadata"]["uid"] for n, d in world.laws.deployments().items()} == deployments


def test_one_who_lost_the_lease_to_another_writes_nothing_and_the_other_does(
    world: ClusterWorld,
) -> None:
    first = world.reconcilers[0]
    first.wait_said("this process applies the fleet now")  # after whoever a test before it killed
    second = world.start_reconciler(elsewhere=True)
    second.wait_said("served on port")
    first.process.send_signal(signal.SIGSTOP)
    world.shorten_lease()
    world.change("basil")
    world.push("While the first one sleeps")

    second.wait_said("this process applies the fleet now")
    world.converge()
    writes = world.proxy.count("PATCH")
    first.process.send_signal(signal.SIGCONT)
    first.wait_said("is lost")

    world.converge()
    assert world.proxy.count("PATCH", "/deployments/") <= writes
    world.end_reconciler(first, signal.SIGTERM)


def test_an_object_without_its_fleets_label_is_left_alone_until_it_has_it_again(
    world: ClusterWorld,
) -> None:
    label = "inference.llmkube.dev/fleet"
    before = world.cluster.json("get", "service", "cedar")["metadata"]

    world.cluster.kubectl("label", "service", "cedar", f"{label}-")
    world.cluster.kubectl("annotate", "service", "cedar", "mine=1")
    wait_for(lambda: "NotOurs" in world.dry_run().out, "a plan that names it")

    after = world.cluster.json("get", "service", "cedar")["metadata"]
    assert after["uid"] == before["uid"]
    assert label not in after["labels"]
    world.cluster.kubectl("label", "service", "cedar", f"{label}=home")
    world.cluster.kubectl("annotate", "service", "cedar", "mine-")


def test_who_leads_over_a_half_open_network_knows_it_before_another_may_lead(
    world: ClusterWorld,
) -> None:
    world.end_reconciler(world.reconcilers[0], signal.SIGTERM)
    short = ("--lease-duration", "5s")
    cut_off = world.start_reconciler(*short)
    wait_for(lambda: world.is_leader(cut_off), "it leads")
    other = world.start_reconciler(*short, kubeconfig=world.cluster.kubeconfig)
    assert not world.is_leader(other)

    world.proxy.swallows = True
    wait_for(lambda: world.is_leader(other), "the other one leads")
    assert not world.is_leader(cut_off)
    world.proxy.cut()
    world.proxy.swallows = False

    world.end_reconciler(other, signal.SIGTERM)
    wait_for(lambda: world.is_leader(cut_off), "it leads again")
    world.end_reconciler(cut_off, signal.SIGTERM)
    world.start_reconciler()


def test_two_fleets_that_want_one_name_do_not_fight(world: ClusterWorld) -> None:
    """Both loops run. Who was first keeps it, the other one says whose it is."""
    had = world.cluster.json("get", "fleetnode", "edge")["metadata"]
    world.laws.foreign.pop(f"configmaps/{SYSTEM}/fleet-other")  # their loop writes it

    with world.other_loop() as other:
        theirs = {"kubernetes": {"cluster": "prod"}, "hardware": {"memory": "8Gi"}}
        sha = world.other.publish({"edge.yaml": document("FleetNode", "edge", theirs)})
        other.wait_planned(sha[:7])
        wait_for(lambda: "belongs to the fleet home" in other.out + other.err, "whose it is")
        world.converge()

    assert world.cluster.json("get", "fleetnode", "edge")["metadata"]["uid"] == had["uid"]
    labels = world.cluster.json("get", "fleetnode", "edge")["metadata"]["labels"]
    assert labels["inference.llmkube.dev/fleet"] == "home"
    (world.other.work / "edge.yaml").unlink()
    world.other.commit("Take it back")
