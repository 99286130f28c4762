"""The pods of services, by lists and by a watch, beside pods that are not theirs."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reconciler.api.meta import ObjectRef
from reconciler.kube.client.errors import ClusterError, Denied
from reconciler.kube.objects import FLEET_LABEL, SERVICE_LABEL, ObjectId, id_of
from reconciler.kube.render.labels import BENCHMARK, COMPONENT_LABEL
from reconciler.kube.running.pod_source import FollowedPods, ListedPods, Pods
from tests.support.cluster import Cluster
from tests.support.fault_proxy import FaultProxy
from tests.support.wait import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

FLEET = "pods-test"


class Place:
    """A namespace with pods that nobody runs, and a server that counts what it is asked."""

    def __init__(self, cluster: Cluster, proxy: FaultProxy) -> None:
        self.cluster, self.proxy = cluster, proxy
        self.name = cluster.namespace(f"pods-{secrets.token_hex(4)}")
        self.api = cluster.client()
        account = ObjectId("", "ServiceAccount", self.name, "default")  # a controller makes it
        wait_for(lambda: self.api.get(account) is not None, "pods may be made there")

    def ref(self, service: str) -> ObjectRef:
        return ObjectRef("InferenceService", self.name, service)

    def put(
        self, name: str, service: str = "chat", owner: str = "ReplicaSet", **labels: str
    ) -> ObjectId:
        """A pod that no scheduler sees."""
        owners = [{"apiVersion": "v1", "kind": owner, "name": service, "uid": "1"}]
        named = {FLEET_LABEL: FLEET, SERVICE_LABEL: service, **labels}
        kept = {"name": name, "namespace": self.name, "labels": named}
        env = [{"name": f"V{n}", "value": "x" * 100} for n in range(200)]
        container = {"name": "engine", "image": "none", "env": env}
        made = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": kept | ({"ownerReferences": owners} if owner else {}),
            "spec": {"schedulerName": "nobody", "containers": [container]},
        }
        return id_of(self.api.create(made))

    def say(self, oid: ObjectId, **status: Any) -> None:
        change = [{"op": "add", "path": f"/status/{key}", "value": v} for key, v in status.items()]
        self.api.patch(oid, change, subresource="status", manager="kubelet")


@pytest.fixture
def place(shared_cluster: Cluster) -> Iterator[Place]:
    with FaultProxy(shared_cluster.client().grant()) as proxy:
        yield Place(shared_cluster, proxy)


def waits(event: threading.Event) -> None:
    event.wait()


@pytest.fixture
def followed(place: Place) -> Iterator[FollowedPods]:
    source, may_answer = FollowedPods(place.proxy.api(), lambda: None), threading.Event()
    place.proxy.before = lambda *_: waits(may_answer)
    with pytest.raises(ClusterError, match="not listed yet"):
        source(FLEET, {place.ref("chat")})
    place.proxy.before = None
    may_answer.set()
    yield source
    source.close()


def names(pods: Pods) -> dict[str, list[str]]:
    return {ref.name: sorted(p["metadata"]["name"] for p in of) for ref, of in pods.items()}


def until(followed: FollowedPods, place: Place, **wanted: list[str]) -> Pods:
    refs = {place.ref(service) for service in ("chat", "base")}

    def there() -> bool:
        try:
            return names(followed(FLEET, refs)) == wanted
        except ClusterError:
            return False

    wait_for(there, f"{wanted} are known")
    return followed(FLEET, refs)


def test_a_list_and_a_watch_find_the_same_pods_and_no_stranger(
    place: Place, followed: FollowedPods
) -> None:
    place.put("chat-a")
    place.put("base-a", "base")
    place.put("fetches", owner="Job")
    place.put("measures", owner="Job", **{COMPONENT_LABEL: BENCHMARK})
    place.put("a-strangers", owner="")
    place.put("of-another-kind", owner="StatefulSet")

    found = until(followed, place, chat=["chat-a", "fetches"], base=["base-a"])

    listed = ListedPods(place.api)(FLEET, set(found))
    assert {ref: sorted(pods, key=str) for ref, pods in listed.items()} == {
        ref: sorted(pods, key=str) for ref, pods in found.items()
    }
    assert not any("spec" in pod for pods in found.values() for pod in pods)


def test_what_becomes_of_followed_pods_costs_no_call(place: Place, followed: FollowedPods) -> None:
    oid = place.put("chat-a")
    (first,) = until(followed, place, chat=["chat-a"])[place.ref("chat")]
    (again,) = followed(FLEET, {place.ref("chat")})[place.ref("chat")]
    wait_for(lambda: place.proxy.watches == 1, "its watch has begun")
    asked = len(place.proxy.requests)

    assert first is again, "it is read once while it stays the same"
    counts = {"ready": False, "restartCount": 1, "image": "", "imageID": ""}
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "none"}}

    place.say(oid, containerStatuses=[{"name": "engine", "state": state, **counts}])
    wait_for(lambda: "ImagePullBackOff" in str(followed(FLEET, {place.ref("chat")})), "its status")
    place.put("chat-b")
    until(followed, place, chat=["chat-a", "chat-b"])
    for name in ("chat-a", "chat-b"):
        place.cluster.kubectl(
            "delete", "pod", name, "-n", place.name, "--grace-period=0", "--force"
        )
    until(followed, place)

    assert len(place.proxy.requests) == asked


def test_pods_that_may_not_be_seen_and_a_server_that_is_away_are_told_apart(
    place: Place, followed: FollowedPods
) -> None:
    until(followed, place)
    place.proxy.refuses = True
    place.proxy.cut()

    def problem() -> ClusterError | None:
        try:
            followed(FLEET, {place.ref("chat")})
        except ClusterError as error:
            return error
        return None

    wait_for(lambda: problem() is not None, "the outage is known")
    assert not isinstance(problem(), Denied)
    place.proxy.refuses = False
    place.put("chat-a")
    until(followed, place, chat=["chat-a"])


def _asks_for_pauses(proxy: FaultProxy) -> None:
    proxy.throttle(4, retry_after_s=0.2)


def _breaks_off_lists(proxy: FaultProxy) -> None:
    proxy.page, proxy.gone_pages, proxy.gone_watches = 1, 3, 1


@pytest.mark.parametrize("fault", [_asks_for_pauses, _breaks_off_lists])
def test_what_a_busy_server_does_not_say_is_neither_concluded_nor_missed(
    place: Place, followed: FollowedPods, fault: Callable[[FaultProxy], None]
) -> None:
    for name in ("chat-a", "chat-b"):
        place.put(name)
    until(followed, place, chat=["chat-a", "chat-b"])
    seen: set[str] = set()

    def saw(*_: str) -> None:
        try:
            seen.add(str(names(followed(FLEET, {place.ref("chat")}))))
        except ClusterError:
            seen.add("nothing is concluded")

    place.proxy.before = saw
    asked = len(place.proxy.requests)
    fault(place.proxy)
    place.proxy.hang_up()
    place.put("chat-c")

    until(followed, place, chat=["chat-a", "chat-b", "chat-c"])
    pods = ["chat-a", "chat-b", "chat-c"]
    assert seen <= {"nothing is concluded", *(str({"chat": pods[:n]}) for n in (2, 3))}
    assert len(place.proxy.requests) > asked + 3
