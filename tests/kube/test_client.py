"""Talking to an API server: what it answers, and what becomes of us when it does not."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from reconciler.kube.client.api import PAGE, PAGE_BYTES, ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from reconciler.kube.client.errors import (
    AccessError,
    Conflict,
    Denied,
    Gone,
    Immutable,
    InvalidObject,
    NotFound,
    Throttled,
    Unreachable,
)
from reconciler.kube.objects import OWNED_KINDS, ObjectId, id_of
from tests.support.certificates import self_signed
from tests.support.cluster import Cluster
from tests.support.fault_proxy import FaultProxy
from tests.support.http import FileServer
from tests.support.owner import HOUR_S
from tests.support.wait import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

CONFIG_MAPS = OWNED_KINDS["", "ConfigMap"]
MODELS = OWNED_KINDS["inference.llmkube.dev", "Model"]


@pytest.fixture(scope="module")
def api(shared_cluster: Cluster) -> Iterator[ApiServer]:
    api = shared_cluster.client()
    yield api
    api.close()


@pytest.fixture
def place(api: ApiServer) -> str:
    """A namespace of the test's own."""
    name = f"client-{secrets.token_hex(4)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def proxy(api: ApiServer) -> Iterator[FaultProxy]:
    with FaultProxy(api.grant()) as proxy:
        yield proxy


def _config_map(place: str, name: str = "a", **data: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": place, "labels": {"app": "client-test"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _deployment(place: str, labels: Mapping[str, str], **container: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "x", **container}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": place},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def test_an_applied_object_is_what_kubectl_sees(
    shared_cluster: Cluster, api: ApiServer, place: str
) -> None:
    api.apply(_config_map(place, x="1"))

    live = shared_cluster.json("get", "configmap", "a", "-n", place, "--show-managed-fields")
    assert live["data"] == {"x": "1"}
    assert [m["manager"] for m in live["metadata"]["managedFields"]] == ["fleet-reconciler"]


def test_a_dry_run_changes_nothing(api: ApiServer, place: str) -> None:
    shown = api.apply(_config_map(place, x="1"), dry_run=True)

    assert shown["data"] == {"x": "1"}
    assert api.get(id_of(shown)) is None


def test_a_field_of_another_manager_is_a_conflict_that_names_it(
    shared_cluster: Cluster, api: ApiServer, place: str
) -> None:
    shared_cluster.kubectl("create", "configmap", "a", "-n", place, "--from-literal=x=theirs")

    with pytest.raises(Conflict) as caught:
        api.apply(_config_map(place, x="ours"))

    assert caught.value.owners == (("kubectl-create", ".data.x"),)
    assert "kubectl-create" in str(caught.value)
    assert api.apply(_config_map(place, x="ours"), force=True)["data"] == {"x": "ours"}


def test_an_unknown_field_is_refused_by_its_name_and_without_its_value(
    api: ApiServer, place: str
) -> None:
    with pytest.raises(InvalidObject, match=r"\.nonsense field not declared") as caught:
        api.apply(_config_map(place) | {"nonsense": "hush"})

    assert caught.value.causes == ((".nonsense", "field not declared in schema"),)
    assert "hush" not in str(caught.value)


def test_a_refused_environment_is_not_repeated(api: ApiServer, place: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        api.apply(_deployment(place, {"a": "b"}, env=[{"name": "hush = hush", "value": "hush"}]))

    assert "containers[0].env[0].name" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_field_that_cannot_be_changed_in_place_is_told_apart(api: ApiServer, place: str) -> None:
    api.apply(_deployment(place, {"a": "b"}))

    with pytest.raises(Immutable) as caught:
        api.apply(_deployment(place, {"a": "c"}))

    assert [field for field, _ in caught.value.causes] == ["spec.selector"]


def test_a_change_that_also_breaks_another_rule_is_only_refused(api: ApiServer, place: str) -> None:
    api.apply(_deployment(place, {"a": "b"}))

    with pytest.raises(InvalidObject) as caught:
        api.apply(_deployment(place, {"a": "c"}, ports=[{"containerPort": 99999}]))

    assert not isinstance(caught.value, Immutable)


def test_a_full_quota_is_no_lack_of_rights(
    shared_cluster: Cluster, api: ApiServer, place: str
) -> None:
    quota = ("create", "quota", "few", "-n", place, "--hard=count/configmaps=0")
    shared_cluster.kubectl(*quota)
    wait_for(lambda: "used" in shared_cluster.json("get", "quota", "few", "-n", place)["status"])

    with pytest.raises(InvalidObject, match="exceeded quota"):
        api.apply(_config_map(place))


def test_who_may_not_is_told_who_they_are_and_what_they_lack(
    shared_cluster: Cluster, api: ApiServer, place: str
) -> None:
    shared_cluster.kubectl("create", "serviceaccount", "weak", "-n", place)
    token = shared_cluster.kubectl("create", "token", "weak", "-n", place).strip()
    weak = _as(api.grant(), f"Bearer {token}")

    with pytest.raises(Denied, match=rf"system:serviceaccount:{place}:weak.*cannot list"):
        weak.list(CONFIG_MAPS)


def test_credentials_that_are_refused_are_asked_for_once_more(api: ApiServer) -> None:
    answers = iter(["Bearer expired", api.grant().authorization])
    credentials = ClusterCredentials(lambda: _with(api.grant(), next(answers)), ask_again_s=0)

    assert ApiServer.of("prod", credentials).raw("GET", "/version")["major"]


def test_credentials_that_stay_refused_are_not_asked_for_each_time(api: ApiServer) -> None:
    asked = []
    credentials = ClusterCredentials(
        lambda: asked.append(0) or _with(api.grant(), "Bearer expired"), ask_again_s=HOUR_S
    )
    refused = ApiServer.of("prod", credentials)

    for _ in range(3):
        with pytest.raises(Denied, match="rejected the credentials of admin"):
            refused.raw("GET", "/version")

    assert len(asked) == 1


def test_a_token_never_shows_in_an_error(api: ApiServer) -> None:
    with pytest.raises(Denied) as caught:
        _as(api.grant(), "Bearer hush").raw("GET", "/version")

    assert "hush" not in str(caught.value)
    assert "hush" not in repr(_with(api.grant(), "Bearer hush"))


def test_a_list_comes_in_pages_and_says_what_its_objects_are(api: ApiServer, place: str) -> None:
    _in_threads(lambda n: api.create(_config_map(place, f"many-{n}")), PAGE + 20)

    listing = api.list(CONFIG_MAPS, selector="app=client-test", namespace=place)

    assert len({id_of(item) for item in listing.items}) == PAGE + 20
    assert int(listing.resource_version) > 0


def test_a_page_of_large_objects_is_read_in_parts(api: ApiServer, place: str) -> None:
    size = 900_000
    count = PAGE_BYTES // size + 3
    large = {"filler": "x" * size}
    for number in range(count):
        api.create(_config_map(place, f"large-{number}") | {"data": large})

    pages = list(api.pages(CONFIG_MAPS, selector="app=client-test", namespace=place))

    names = [item["metadata"]["name"] for page in pages for item in page.items]
    assert sorted(names) == sorted(f"large-{number}" for number in range(count))
    assert len({page.resource_version for page in pages}) == 1
    assert max(len(page.items) for page in pages) * size <= PAGE_BYTES


@pytest.mark.usefixtures("bare_cluster")
def test_a_kind_that_is_not_installed_has_no_object_and_no_list(api: ApiServer) -> None:
    assert api.get(ObjectId(MODELS.group, MODELS.kind, "default", "m")) is None

    with pytest.raises(NotFound):
        api.list(MODELS)


def test_a_namespace_that_is_not_there_is_said(api: ApiServer) -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        api.apply(_config_map("nowhere"))


def test_only_the_object_that_was_meant_is_deleted(api: ApiServer, place: str) -> None:
    oid = id_of(made := api.create(_config_map(place)))

    with pytest.raises(Conflict):
        api.delete(oid, uid="00000000-0000-0000-0000-000000000000")

    assert api.get(oid) is not None
    api.delete(oid, uid=made["metadata"]["uid"])
    api.delete(oid, uid=made["metadata"]["uid"])  # gone is fine
    assert api.get(oid) is None


def test_a_patch_whose_test_does_not_hold_is_a_conflict(api: ApiServer, place: str) -> None:
    oid = id_of(api.apply(_config_map(place, x="1")))
    replaced = {"op": "replace", "path": "/data/x", "value": "2"}

    with pytest.raises(Conflict):
        api.patch(
            oid, [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}, replaced]
        )

    assert api.patch(oid, [replaced])["data"] == {"x": "2"}


def test_a_number_that_no_server_takes_is_refused_by_the_server(api: ApiServer, place: str) -> None:
    huge = _config_map(place) | {"immutable": 10**30}

    with pytest.raises(InvalidObject):
        api.apply(huge)


def test_a_replacement_of_an_older_version_is_a_conflict(api: ApiServer, place: str) -> None:
    old = api.create(_config_map(place, x="1"))
    api.apply(_config_map(place, y="2"))

    with pytest.raises(Conflict, match="modified"):
        api.replace(old)


def test_warnings_of_the_server_are_kept_once_each(api: ApiServer) -> None:
    fresh = ApiServer.of("prod", ClusterCredentials(api.grant))

    for _ in range(2):
        fresh.raw("GET", "/api/v1/componentstatuses")

    assert fresh.warnings == ("v1 ComponentStatus is deprecated in v1.19+",)


def test_a_watch_tells_what_happens_after_the_list(api: ApiServer, place: str) -> None:
    version = api.list(CONFIG_MAPS, selector="app=client-test", namespace=place).resource_version
    made = api.create(_config_map(place))
    api.delete(id_of(made), uid=made["metadata"]["uid"])

    watch = api.watch(
        CONFIG_MAPS,
        selector="app=client-test",
        namespace=place,
        resource_version=version,
    )
    named = ((e.type, e.object["metadata"]["name"]) for e in watch if e.type != "BOOKMARK")
    events = [*islice(named, 2)]
    watch.release()

    assert events == [("ADDED", "a"), ("DELETED", "a")]


def test_a_watch_ends_without_an_error_when_its_time_is_over(api: ApiServer) -> None:
    version = api.list(CONFIG_MAPS).resource_version

    watch = api.watch(CONFIG_MAPS, selector="app=none", resource_version=version, timeout_s=1)

    assert {event.type for event in watch} <= {"BOOKMARK"}


def test_a_watch_that_is_closed_ends_at_once(api: ApiServer) -> None:
    version = api.list(CONFIG_MAPS).resource_version
    watch = api.watch(CONFIG_MAPS, selector="app=nothing", resource_version=version)
    threading.Timer(0.1, watch.close).start()

    assert list(watch) == []  # one that is not closed breaks off when it was silent for too long


def test_a_server_that_wants_a_pause_is_heard(proxy: FaultProxy) -> None:
    proxy.throttle(1, retry_after_s=7)

    with pytest.raises(Throttled) as caught:
        proxy.api().list(CONFIG_MAPS)

    assert caught.value.retry_after_s == 7
    assert proxy.api().list(CONFIG_MAPS)


def test_a_forgotten_version_is_gone(proxy: FaultProxy) -> None:
    proxy.gone_watches = 1

    with pytest.raises(Gone):
        proxy.api().watch(CONFIG_MAPS, selector="", resource_version="1")


def test_a_server_that_swallows_is_left_after_the_deadline(proxy: FaultProxy) -> None:
    proxy.swallows = True

    with pytest.raises(Unreachable, match=r"no answer within 0\.3 s"):
        proxy.api().raw("GET", "/version", timeout_s=0.3)


def test_a_silent_watch_is_left_after_the_time_of_a_bookmark(proxy: FaultProxy) -> None:
    api = proxy.api()
    version = api.list(CONFIG_MAPS).resource_version

    with pytest.raises(Unreachable, match=r"no answer within 0\.3 s"):
        next(api.watch(CONFIG_MAPS, selector="app=none", resource_version=version, idle_s=0.3))


def test_a_watch_that_does_not_begin_is_left_as_early(proxy: FaultProxy) -> None:
    proxy.swallows = True

    with pytest.raises(Unreachable, match=r"no answer within 0\.3 s"):
        proxy.api().watch(CONFIG_MAPS, selector="", resource_version="1", idle_s=0.3)


def test_a_server_that_is_away_is_unreachable_and_found_again(proxy: FaultProxy) -> None:
    api = proxy.api()
    api.list(CONFIG_MAPS)
    proxy.refuses = True
    proxy.cut()

    with pytest.raises(Unreachable, match="gave no answer"):
        api.list(CONFIG_MAPS)

    proxy.refuses = False
    assert api.list(CONFIG_MAPS)


def test_a_kept_connection_that_was_cut_is_opened_anew_unseen(
    proxy: FaultProxy, place: str
) -> None:
    api = proxy.api()
    api.apply(_config_map(place, x="1"))
    proxy.cut()

    api.apply(_config_map(place, x="2"))

    assert proxy.count("PATCH") == 2


def test_a_write_whose_answer_was_lost_is_not_repeated_unless_that_is_harmless(
    proxy: FaultProxy, place: str
) -> None:
    api = proxy.api()
    api.list(CONFIG_MAPS)
    proxy.lose_answers = 1
    with pytest.raises(Unreachable):
        api.create(_config_map(place, x="1"))
    assert proxy.count("POST") == 1

    api.list(CONFIG_MAPS)
    proxy.lose_answers = 1
    api.apply(_config_map(place, x="1"), force=True)
    assert proxy.count("PATCH") == 2


def test_another_server_behind_the_address_is_not_believed(api: ApiServer, tmp_path: Path) -> None:
    other, _ = self_signed(tmp_path)
    impostor = ApiServer.of(
        "prod", ClusterCredentials(lambda: _with(api.grant(), ca=other.read_text()))
    )

    with pytest.raises(Unreachable, match="does not vouch for"):
        impostor.raw("GET", "/version")


def test_many_threads_share_the_kept_connections(proxy: FaultProxy, place: str) -> None:
    api = proxy.api()

    _in_threads(lambda n: api.apply(_config_map(place, f"t-{n}")), 40, threads=4)

    assert len(api.list(CONFIG_MAPS, selector="app=client-test", namespace=place).items) == 40
    assert proxy.opened <= 4


def test_a_page_of_something_else_is_no_api_server() -> None:
    with FileServer(b"<html>log in</html>") as server:
        api = ApiServer.of("prod", ClusterCredentials(lambda: Grant(server.url)))

        with pytest.raises(Unreachable, match="is that an API server's URL"):
            api.list(CONFIG_MAPS)


def test_a_token_is_not_sent_where_all_could_read_it() -> None:
    grant = Grant("http://cluster.example", authorization="Bearer hush")

    with pytest.raises(AccessError, match="plain http"):
        ApiServer.of("prod", ClusterCredentials(lambda: grant)).raw("GET", "/version")


def test_a_server_that_is_not_verified_is_said_loudly_and_once(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    insecure = ApiServer.of("prod", ClusterCredentials(lambda: replace(api.grant(), insecure=True)))

    for _ in range(2):
        insecure.raw("GET", "/version")
    insecure.close()

    (said,) = [r.getMessage() for r in caplog.records if "insecure" in r.getMessage()]
    assert "NOT verified" in said


def _with(grant: Grant, authorization: str | None = None, **changes: Any) -> Grant:
    return replace(grant, authorization=authorization or grant.authorization, **changes)


def _as(grant: Grant, authorization: str) -> ApiServer:
    return ApiServer.of("prod", ClusterCredentials(lambda: _with(grant, authorization)))


def _in_threads(act: Callable[[int], object], count: int, threads: int = 8) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(act, range(count)))
