"""A cluster's own objects as the fleet: what is there, and what may be missing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from reconciler.api.errors import SourceError
from reconciler.kube.client.access import open_cluster
from reconciler.kube.crsource.identity import FleetMemory
from reconciler.kube.crsource.source import ClusterCheckout, ClusterSource
from reconciler.kube.objects import OWNED_KINDS
from reconciler.kube.render.rendering import ObjectRenderer
from reconciler.loop.desired import Desired, no_facts
from reconciler.runtimes import RUNTIMES
from reconciler.source.load import load
from tests.support.cluster import Cluster
from tests.support.cluster_views import desired, service_ref
from tests.support.crds import install_kinds, remove_kinds, small
from tests.support.ports import own_port
from tests.support.wait import PATIENCE_S, wait_for

CASES = Path(__file__).parents[1] / "cases" / "source"
pytestmark = [pytest.mark.cluster, pytest.mark.e2e]


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


def source(cluster: Cluster) -> ClusterSource:
    """As a new process has it."""
    api = cluster.client()
    return ClusterSource(api, FleetMemory(api))


def services(checkout: ClusterCheckout) -> set[str]:
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None, loaded.problems
    return {ref.name for ref in loaded.fleet.objects if ref.kind == "InferenceService"}


def test_what_kubectl_applied_is_the_fleet(cluster: Cluster) -> None:
    cluster.apply(*small("chat", "embed"))

    first = source(cluster).fetch()

    assert services(first) == {"chat", "embed"}
    assert first.revision.startswith("crs:")
    assert first.commit is None
    assert first.generations[service_ref()] == 1
    assert "kubectl" not in str([file.data for file in first.files])


def test_every_field_means_the_same_in_a_cluster_and_in_git(cluster: Cluster) -> None:
    text = (CASES / "every-field.yaml").read_text()
    cluster.apply(text)

    there = source(cluster).fetch()
    loaded = load(there, RUNTIMES)

    assert loaded.fleet is not None, loaded.problems
    read = Desired.of(there, loaded, loaded.fleet, no_facts)
    from_cluster = ObjectRenderer("prod", owns_documents=False).wanted(read)
    from_git = ObjectRenderer("prod", owns_documents=False).wanted(desired({"fleet.yaml": text}))
    assert {oid.name for oid in from_git.objects if oid.kind == "Deployment"} == {
        "big",
        "chat",
        "switch",
    }
    assert dict(from_cluster.objects) == dict(from_git.objects)
    assert from_cluster.renders == from_git.renders


def test_a_revision_moves_with_what_is_said_and_not_with_a_status(cluster: Cluster) -> None:
    cluster.apply(*small("chat"))
    looks = source(cluster)
    first = looks.fetch().revision

    patch = ("patch", "isvc", "chat", "--type=merge", "-p")
    cluster.kubectl(*patch, '{"status": {"endpoint": "http://x"}}', "--subresource=status")
    assert looks.fetch().revision == first

    cluster.kubectl(*patch, '{"spec": {"contextSize": 4096}}')
    changed = looks.fetch()
    assert changed.revision != first
    assert changed.generations[service_ref()] == 2

    cluster.kubectl("annotate", "isvc", "chat", "inference.llmkube.dev/hold=true")
    assert looks.fetch().revision not in (first, changed.revision)


def test_a_cluster_without_a_fleet_object_is_no_fleet(bare_cluster: Cluster) -> None:
    cluster = bare_cluster
    with pytest.raises(SourceError, match="fleets"):
        source(cluster).fetch()

    install_kinds(cluster)

    with pytest.raises(SourceError, match="there is no Fleet object"):
        source(cluster).fetch()


def test_a_service_that_is_deleted_is_gone_also_the_last_one(cluster: Cluster) -> None:
    cluster.apply(*small("chat", "embed"))
    looks = source(cluster)
    looks.remember(looks.fetch())

    cluster.kubectl("delete", "isvc", "chat")
    assert services(looks.fetch()) == {"embed"}
    looks.remember(looks.fetch())

    cluster.kubectl("delete", "isvc", "embed")
    assert services(source(cluster).fetch()) == set()


def test_definitions_that_were_made_anew_remove_nothing_until_all_is_back(cluster: Cluster) -> None:
    cluster.apply(*small("chat", "embed"))
    looks = source(cluster)
    looks.remember(looks.fetch())

    remove_kinds(cluster)
    with pytest.raises(SourceError):
        looks.fetch()
    install_kinds(cluster)
    with pytest.raises(SourceError, match="there is no Fleet object"):
        looks.fetch()
    cluster.apply(*small("chat"))
    for process in (looks, source(cluster)):  # also after a restart
        with pytest.raises(SourceError, match=r"recreated.*default/embed.*gone-"):
            process.fetch()
    cluster.apply(*small("chat", "embed"))

    assert services(looks.fetch()) == {"chat", "embed"}


def test_a_person_can_say_that_what_did_not_come_back_is_meant_to_be_gone(cluster: Cluster) -> None:
    cluster.apply(*small("chat", "embed"))
    looks = source(cluster)
    looks.remember(looks.fetch())
    remove_kinds(cluster)
    install_kinds(cluster)
    cluster.apply(*small("chat"))
    with pytest.raises(SourceError) as held:
        looks.fetch()

    token = str(held.value).partition("confirm: [")[2].partition("]")[0]
    patch = f'{{"spec": {{"confirm": ["{token}"]}}}}'
    cluster.kubectl("patch", "fleet", "home", "--type=merge", "-p", patch)

    assert services(looks.fetch()) == {"chat"}


def test_one_definition_made_anew_is_noticed_as_well(cluster: Cluster) -> None:
    cluster.apply(*small("chat"))
    looks = source(cluster)
    looks.remember(looks.fetch())

    row = OWNED_KINDS["inference.llmkube.dev", "InferenceService"]
    cluster.kubectl("delete", "crd", f"{row.plural}.{row.group}", f"--timeout={PATIENCE_S:g}s")
    with pytest.raises(SourceError):
        looks.fetch()
    install_kinds(cluster)

    with pytest.raises(SourceError, match="recreated"):
        looks.fetch()


def test_what_another_fleet_applied_is_not_ours(cluster: Cluster) -> None:
    cluster.apply(*small("chat", "theirs"))
    cluster.kubectl("label", "isvc", "theirs", "inference.llmkube.dev/fleet=other")

    assert services(source(cluster).fetch()) == {"chat"}


def test_what_is_watched_is_fetched_without_listing_it_again(cluster: Cluster) -> None:
    cluster.apply(*small("chat"))
    looks, changed = source(cluster), threading.Event()
    looks.watch(changed.set)
    try:
        wait_for(lambda: looks.objects() is not None, "the first lists")
        before = cluster.calls().get(("LIST", "inferenceservices"), 0)

        assert all(services(looks.fetch()) == {"chat"} for _ in range(50))

        listed = cluster.calls().get(("LIST", "inferenceservices"), 0) - before
        assert listed < 50  # the cluster's own controllers list now and then
        changed.clear()
        cluster.kubectl("delete", "isvc", "chat")
        assert changed.wait(PATIENCE_S)
        wait_for(lambda: services(looks.fetch()) == set(), "its end")
    finally:
        looks.close()


def test_an_api_that_does_not_answer_is_a_source_that_is_lost(cluster: Cluster) -> None:
    config = cluster.folder / "gone"
    text = cluster.kubeconfig.read_text()
    config.write_text(text.replace(str(cluster.api_port), str(own_port())))
    api = open_cluster("prod", "test", kubeconfig=config)

    with pytest.raises(SourceError, match="cluster://prod"):
        ClusterSource(api, FleetMemory(api)).fetch()
