"""The mirror of a cluster: current while the cluster talks, and never emptied by its silence."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from reconciler.kube.client.errors import Denied, NotFound, Unreachable
from reconciler.kube.client.stream import IDLE_S
from reconciler.kube.informer import read_your_writes, reflector
from reconciler.kube.informer.cache import InformerCache, whole
from reconciler.kube.informer.read_your_writes import ReadYourWritesApi
from reconciler.kube.informer.reflector import Freshness, Reflector, WatchedKind
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import OWNED_KINDS, ObjectId, OwnedKind, id_of
from tests.support.cluster import Cluster
from tests.support.fault_proxy import FaultProxy
from tests.support.owner import HOUR_S
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

CONFIG_MAPS = OWNED_KINDS["", "ConfigMap"]
SERVICES = OWNED_KINDS["", "Service"]
_NEVER_S = 1e9  # pauses are chosen at random below the longest: none of these ends in a test
WIDGETS = OwnedKind("watch-test.example", "v1", "Widget", "widgets", 1)


class Place:
    """A namespace of the test's own, and what happens in it."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.name = f"watch-{secrets.token_hex(4)}"
        self.selector = f"test={self.name}"
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})

    def put(self, name: str, labelled: bool = True, **data: str) -> ObjectId:
        """A ConfigMap, new or changed."""
        labels = {"test": self.name} if labelled else {}
        metadata = {"name": name, "namespace": self.name, "labels": labels}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        return id_of(self.api.apply(manifest))

    def put_widget(self, name: str) -> ObjectId:
        labels = {"test": self.name}
        metadata = {"name": name, "namespace": self.name, "labels": labels}
        made = {"apiVersion": WIDGETS.api_version, "kind": "Widget", "metadata": metadata}
        return id_of(self.api.raw("POST", WIDGETS.path(self.name), body=made))

    def remove(self, oid: ObjectId) -> None:
        live = self.api.get(oid)
        assert live is not None
        self.api.delete(oid, uid=live["metadata"]["uid"])


class Told:
    """Counts the calls of a mirror, and keeps it in one while `go_on` is cleared."""

    def __init__(self) -> None:
        self.count = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self) -> None:
        self.count += 1
        self.go_on.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def api(shared_cluster: Cluster) -> Iterator[ApiServer]:
    api = shared_cluster.client()
    yield api
    api.close()


@pytest.fixture
def place(api: ApiServer) -> Place:
    return Place(api)


@pytest.fixture
def proxy(api: ApiServer) -> Iterator[FaultProxy]:
    with FaultProxy(api.grant()) as proxy:
        yield proxy


@contextmanager
def mirrored(
    api: ApiServer,
    place: Place,
    *kinds: OwnedKind,
    changed: Callable[[], None] = lambda: None,
    **options: Any,
) -> Iterator[InformerCache]:
    """A mirror that has listed everything."""
    quick = {"first_pause_s": 0.05, "look_again_s": 0.1} | options
    mirror = InformerCache(api, kinds or (CONFIG_MAPS,), place.selector, changed, **quick)
    mirror.start()
    try:
        wait_for(lambda: mirror.objects() is not None, "listed")
        yield mirror
    finally:
        mirror.stop()


def _names(mirror: InformerCache) -> set[str]:
    return {oid.name for oid in mirror.objects() or ()}


def _data(mirror: InformerCache, oid: ObjectId) -> Any:
    return (mirror.objects() or {}).get(oid, {}).get("data")


def test_a_mirror_has_what_carries_the_label_and_nothing_else(place: Place) -> None:
    place.put("ours", x="1")
    place.put("theirs", labelled=False)

    with mirrored(place.api, place, CONFIG_MAPS, SERVICES) as mirror:
        assert _names(mirror) == {"ours"}
        assert mirror.is_fresh
        assert mirror.problems == {}


def test_a_change_of_what_nobody_keeps_is_no_news(place: Place) -> None:
    def quiet(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "metadata": {"name": found["metadata"]["name"]}, "data": {}}

    place.put("a")
    mirrors: list[InformerCache] = []
    news: list[set[str]] = []

    def changed() -> None:
        news.extend(_names(mirror) for mirror in mirrors)

    with mirrored(place.api, place, changed=changed, slim=quiet, coalesce_s=0.0) as mirror:
        mirrors.append(mirror)
        place.put("b")
        wait_for(lambda: {"a", "b"} in news)
        for n in range(20):
            place.put("a", noise=str(n))
        place.put("c")
        wait_for(lambda: {"a", "b", "c"} in news)

    assert news.count({"a", "b"}) < 5


def test_nothing_is_known_before_the_first_list(place: Place) -> None:
    mirror = InformerCache(place.api, [CONFIG_MAPS], place.selector, lambda: None)

    assert mirror.objects() is None
    assert not mirror.is_fresh


def test_what_happens_is_seen_without_another_question(proxy: FaultProxy, place: Place) -> None:
    oid = place.put("a", x="1")
    with mirrored(proxy.api(), place) as mirror:
        wait_for(lambda: proxy.watches == 1)
        asked = len(proxy.requests)
        place.put("a", x="2")
        wait_for(lambda: _data(mirror, oid) == {"x": "2"})

        place.put("b")
        wait_for(lambda: _names(mirror) == {"a", "b"})

        place.remove(oid)
        wait_for(lambda: _names(mirror) == {"b"})

    assert len(proxy.requests) == asked


def test_an_object_that_loses_the_label_is_no_longer_there(place: Place) -> None:
    place.put("a")
    with mirrored(place.api, place) as mirror:
        place.put("a", labelled=False)

        wait_for(lambda: _names(mirror) == set())


def test_many_changes_are_told_as_few(place: Place) -> None:
    told = Told()
    with mirrored(place.api, place, changed=told, coalesce_s=HOUR_S) as mirror:
        for number in range(60):
            place.put(f"m-{number}")
        wait_for(lambda: len(_names(mirror)) == 60)

    assert told.count == 0  # the hour is not over


def test_a_crowd_is_left_to_come_together_and_the_first_of_it_is_read_by_itself(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "_QUIET_S", HOUR_S)
    with mirrored(place.api, place, gather_s=HOUR_S) as mirror:
        for name in ("first", "second"):  # the second is the one after which it waits
            place.put(name)
            wait_for(lambda name=name: name in _names(mirror))
        place.put("third")
        time.sleep(0.1)

        assert _names(mirror) == {"first", "second"}
        mirror.stop()  # ends that at once


def test_where_much_comes_at_once_it_is_read_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "_QUIET_S", HOUR_S)
    with mirrored(place.api, place, gather_s=HOUR_S) as mirror:
        for name, size in (("first", 0), ("large", 700_000), ("small", 0)):
            place.put(name, text="x" * size)
            wait_for(lambda name=name: name in _names(mirror))  # "large" without the hour after it
        mirror.stop()


def test_what_comes_while_somebody_is_told_is_told_together(place: Place) -> None:
    told = Told()
    with mirrored(place.api, place, changed=told) as mirror:
        told.go_on.clear()
        before = told.count
        place.put("first")
        wait_for(lambda: told.count > before, "it is told, and whoever is told takes long")
        for number in range(60):
            place.put(f"m-{number}")
        wait_for(lambda: len(_names(mirror)) == 61)

        before = told.count
        told.go_on.set()
        wait_for(lambda: told.count > before, "all the others are told")

    assert told.count - before <= 2


def test_a_cut_watch_goes_on_where_it_was(proxy: FaultProxy, place: Place) -> None:
    with mirrored(proxy.api(), place) as mirror:
        lists = proxy.count("GET", "limit=")
        proxy.cut()
        place.put("a")

        wait_for(lambda: _names(mirror) == {"a"})
        assert mirror.is_fresh

    assert proxy.count("GET", "limit=") == lists


def test_an_outage_makes_it_stale_empties_nothing_and_is_not_said_of_each_kind(
    proxy: FaultProxy, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    oid = place.put("a", x="1")
    told = Told()
    with mirrored(proxy.api(), place, changed=told) as mirror:
        proxy.refuses = True
        proxy.cut()
        wait_for(lambda: not mirror.is_fresh, "noticed")

        assert isinstance(mirror.problems[CONFIG_MAPS], Unreachable)
        assert _names(mirror) == {"a"}
        place.put("a", x="2")
        place.put("b")
        before = told.count
        proxy.refuses = False
        wait_for(lambda: mirror.is_fresh, "fresh again")
        wait_for(lambda: _names(mirror) == {"a", "b"} and _data(mirror, oid) == {"x": "2"})
        wait_for(lambda: told.count > before)
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == []


def test_a_server_that_has_forgotten_is_listed_again(proxy: FaultProxy, place: Place) -> None:
    oid = place.put("a")
    with mirrored(proxy.api(), place) as mirror:
        lists = proxy.count("GET", "limit=")
        proxy.refuses = True
        proxy.cut()
        place.remove(oid)
        proxy.gone_watches = 2
        proxy.refuses = False

        wait_for(lambda: _names(mirror) == set(), "the removal that no watch told")
        wait_for(lambda: mirror.is_fresh)

    assert proxy.count("GET", "limit=") > lists


def test_a_half_open_connection_is_noticed(proxy: FaultProxy, place: Place) -> None:
    with mirrored(proxy.api(), place, idle_s=1.0, proven_s=0.0) as mirror:
        wait_for(lambda: proxy.watches > 0, "the head of its watch")
        proxy.swallows = True
        place.put("a")
        lists, watches = proxy.count("GET", "limit="), proxy.count("GET", "watch=1")
        wait_for(lambda: proxy.count("GET", "watch=1") > watches, "another watch")
        assert _names(mirror) == set()

        proxy.swallows = False
        wait_for(lambda: _names(mirror) == {"a"})

    assert proxy.count("GET", "limit=") == lists


def test_a_watch_that_does_not_even_begin_is_given_up_as_soon_as_one_that_is_silent(
    proxy: FaultProxy, place: Place
) -> None:
    answers = threading.Event()

    def swallow(_method: str, path: str) -> None:
        if "watch=1" in path:
            answers.wait(PATIENCE_S)

    proxy.before = swallow
    with mirrored(proxy.api(), place, idle_s=1.0) as mirror:
        wait_for(lambda: proxy.count("GET", "watch=1") > 1, "another watch")
        answers.set()
        place.put("a")
        wait_for(lambda: _names(mirror) == {"a"})


def test_a_busy_server_is_given_the_pause_it_asks_for(proxy: FaultProxy, place: Place) -> None:
    proxy.throttle(1, retry_after_s=0.5)
    began = time.monotonic()

    with mirrored(proxy.api(), place) as mirror:
        assert time.monotonic() - began >= 0.5
        assert mirror.is_fresh


def test_one_pause_that_a_busy_server_wants_is_no_outage(proxy: FaultProxy, place: Place) -> None:
    with mirrored(proxy.api(), place, proven_s=0.0) as mirror:
        wait_for(lambda: proxy.watches == 1)
        throttled = proxy.count("GET", "watch=1")
        proxy.throttle(1, retry_after_s=0.3)
        seen: list[bool] = []
        proxy.before = lambda _method, _path: seen.append(mirror.is_fresh)
        proxy.hang_up()
        wait_for(lambda: proxy.count("GET", "watch=1") >= throttled + 2, "watched again")

        assert all(seen)
        assert mirror.is_fresh
        assert not mirror.problems


def test_a_server_that_forgets_once_is_listed_at_once_and_that_is_no_outage(
    proxy: FaultProxy, place: Place
) -> None:
    told: list[bool] = []
    with mirrored(proxy.api(), place, first_pause_s=_NEVER_S, proven_s=0.0) as mirror:
        wait_for(lambda: proxy.watches == 1)
        lists = proxy.count("GET", "limit=")
        proxy.before = lambda _method, _path: told.append(mirror.is_fresh)
        proxy.gone_watches = 1
        proxy.hang_up()

        wait_for(lambda: proxy.count("GET", "limit=") > lists, "listed again")
        place.put("a")
        wait_for(lambda: _names(mirror) == {"a"})
        assert all(told)
        assert mirror.is_fresh


def test_a_lasting_refusal_is_not_asked_in_a_hurry(proxy: FaultProxy, place: Place) -> None:
    proxy.gone_watches = 10_000
    with mirrored(proxy.api(), place, first_pause_s=_NEVER_S) as mirror:
        wait_for(lambda: mirror.freshness[CONFIG_MAPS] is Freshness.STALE)
        before = _asked(proxy)
        _meanwhile(proxy, rounds=100)

        assert _asked(proxy) == before


def test_a_list_that_never_gets_to_its_end_is_not_asked_in_a_hurry_and_empties_nothing(
    proxy: FaultProxy, place: Place
) -> None:
    names = {place.put(name).name for name in "abc"}
    with mirrored(proxy.api(), place, first_pause_s=_NEVER_S, proven_s=0.0) as mirror:
        wait_for(lambda: proxy.watches == 1)
        proxy.page, proxy.gone_pages, proxy.gone_watches = 2, 10_000, 1
        proxy.hang_up()
        wait_for(lambda: mirror.freshness[CONFIG_MAPS] is Freshness.STALE)
        before = _asked(proxy)
        _meanwhile(proxy, rounds=100)

        assert _asked(proxy) == before
        assert _names(mirror) == names


def test_a_watch_that_ends_at_once_each_time_is_asked_ever_more_seldom(
    proxy: FaultProxy, place: Place
) -> None:
    kinds = (CONFIG_MAPS, SERVICES)  # neither of which may keep the other awake
    proxy.ends_watches = True
    with mirrored(proxy.api(), place, *kinds, first_pause_s=0.1):
        _meanwhile(proxy, rounds=500)

        assert _asked(proxy) < 40


def _asked(proxy: FaultProxy) -> int:
    """How often by mirrors."""
    return proxy.count("GET", "limit=") + proxy.count("GET", "watch=1")


def _meanwhile(proxy: FaultProxy, rounds: int) -> None:
    """So long as somebody else takes who asks so many questions."""
    api = proxy.api()
    for _ in range(rounds):
        api.raw("GET", "/version")


@pytest.fixture
def crd(api: ApiServer) -> Iterator[Callable[[], None]]:
    """Install or reinstall the kind Widget; it is removed at the end."""
    yield lambda: _install(api)
    _uninstall(api)


def test_a_kind_that_is_not_installed_is_empty_and_found_when_it_comes(
    place: Place, crd: Callable[[], None]
) -> None:
    place.put("a")
    with mirrored(place.api, place, CONFIG_MAPS, WIDGETS) as mirror:
        assert mirror.freshness[WIDGETS] is Freshness.ABSENT
        assert mirror.is_fresh
        assert _names(mirror) == {"a"}

        crd()
        place.put_widget("w")
        wait_for(lambda: _names(mirror) == {"a", "w"})
        wait_for(lambda: mirror.freshness[WIDGETS] is Freshness.FRESH, "what was listed is known")


def test_a_kind_that_was_never_there_is_not_missed_after_an_outage(
    proxy: FaultProxy, place: Place
) -> None:
    with mirrored(proxy.api(), place, CONFIG_MAPS, WIDGETS) as mirror:
        proxy.refuses = True
        proxy.cut()
        wait_for(lambda: mirror.freshness[WIDGETS] is Freshness.STALE)
        proxy.refuses = False

        wait_for(lambda: mirror.is_fresh)
        assert mirror.freshness[WIDGETS] is Freshness.ABSENT


def test_a_kind_that_is_no_longer_served_is_unknown_and_not_empty(
    proxy: FaultProxy, place: Place, crd: Callable[[], None]
) -> None:
    crd()
    place.put_widget("w")
    with mirrored(proxy.api(), place, CONFIG_MAPS, WIDGETS) as mirror:
        proxy.not_served = {"widgets"}
        proxy.cut()
        wait_for(lambda: mirror.freshness[WIDGETS] is Freshness.LOST)

        assert _names(mirror) == {"w"}
        assert not mirror.is_fresh
        wait_for(lambda: mirror.freshness[CONFIG_MAPS] is Freshness.FRESH)

        proxy.not_served = set()
        wait_for(lambda: mirror.is_fresh)
        assert _names(mirror) == {"w"}


@pytest.mark.parametrize(
    ("widgets", "away"),
    [
        (WIDGETS, Freshness.LOST),
        (replace(WIDGETS, project="another project"), Freshness.ABSENT),  # which may go
    ],
    ids=["ours", "theirs"],
)
def test_a_kind_that_is_reinstalled_is_followed_again(
    place: Place, crd: Callable[[], None], widgets: OwnedKind, away: Freshness
) -> None:
    crd()
    with mirrored(place.api, place, widgets) as mirror:
        _uninstall(place.api)
        wait_for(lambda: mirror.freshness[widgets] is away)
        assert mirror.is_fresh == (away is Freshness.ABSENT)

        crd()
        place.put_widget("new")
        wait_for(lambda: _names(mirror) == {"new"} and mirror.is_fresh)


def test_who_may_not_look_has_nothing_and_is_told_why(
    shared_cluster: Cluster, place: Place
) -> None:
    shared_cluster.kubectl("create", "serviceaccount", "weak", "-n", place.name)
    token = shared_cluster.kubectl("create", "token", "weak", "-n", place.name).strip()
    grant = place.api.grant()
    weak = ApiServer.of("prod", ClusterCredentials(lambda: _with_token(grant, token)))
    mirror = InformerCache(weak, [CONFIG_MAPS], "", lambda: None, first_pause_s=0.05)
    mirror.start()

    wait_for(lambda: bool(mirror.problems))
    assert isinstance(mirror.problems[CONFIG_MAPS], Denied)
    assert mirror.objects() is None
    mirror.stop()


def test_what_nobody_needs_is_dropped_on_arrival(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    dropped = ("managedFields", "resourceVersion")

    def without_these(item: dict[str, Any]) -> dict[str, Any]:
        for name in dropped:
            item["metadata"].pop(name, None)
        return item

    before = place.put("before")
    with mirrored(place.api, place, slim=without_these) as mirror:
        after = place.put("after")
        wait_for(lambda: _names(mirror) == {"before", "after"})

        objects = mirror.objects() or {}
        assert all(set(dropped).isdisjoint(objects[oid]["metadata"]) for oid in (before, after))
        assert caplog.messages == [], "nothing was listed again"


def test_what_was_written_is_there_before_a_watch_brings_it_and_not_for_long(
    shared_cluster: Cluster, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ReadYourWritesApi.like(shared_cluster.client())
    place.api = own
    first, second = place.put("a"), place.put("b")
    assert set(own.with_notes(ObjectSet({}), {})) == {first, second}

    with monkeypatch.context() as soon:
        soon.setattr(read_your_writes, "LASTS_S", 0.0)
        third = place.put("c")

    assert set(own.with_notes(ObjectSet({}), {})) == {third}
    own.close()


def test_what_was_written_and_removed_by_others_is_gone_once_a_watch_has_passed_it(
    shared_cluster: Cluster, place: Place
) -> None:
    """And not before: until then the copy does not have it yet."""
    others, own = place.api, ReadYourWritesApi.like(shared_cluster.client())
    with mirrored(others, place) as mirror:
        place.api = own
        written = place.put("a")
        place.api = others
        place.remove(written)
        place.put("b")
        wait_for(lambda: _names(mirror) == {"b"})

        seen = mirror.objects()
        assert seen is not None
        assert written in own.with_notes(seen, {})
        assert written not in own.with_notes(seen, mirror.reached())
    own.close()


def test_whoever_changes_an_object_of_the_mirror_changes_a_copy(place: Place) -> None:
    oid = place.put("a", x="1")
    with mirrored(place.api, place) as mirror:
        objects = mirror.objects() or {}
        seen: Any = objects[oid]
        seen["data"]["x"] = "2"

        assert objects[oid]["data"] == {"x": "1"}
        assert oid in objects
        assert len(objects) == 1


def test_a_stopped_mirror_ends_at_once_and_tells_nothing_more(place: Place) -> None:
    told = Told()
    before = set(threading.enumerate())
    with mirrored(place.api, place, CONFIG_MAPS, SERVICES, changed=told) as mirror:
        mirror.stop()

        assert not set(threading.enumerate()) - before
        count = told.count
    with mirrored(place.api, place) as another:
        place.put("late")
        wait_for(lambda: _names(another) == {"late"})
    assert told.count == count


def test_a_restarted_api_server_is_followed_again(own_cluster: Cluster) -> None:
    api = own_cluster.client()
    place = Place(api)
    place.put("a")
    with mirrored(api, place) as mirror:
        own_cluster.stop_part("kube-apiserver", kill=True)
        wait_for(lambda: not mirror.is_fresh, "noticed")
        assert _names(mirror) == {"a"}

        own_cluster.start_api()
        place.put("b")
        wait_for(lambda: _names(mirror) == {"a", "b"} and mirror.is_fresh)
    api.close()


def test_one_kind_that_is_answered_again_ends_the_pauses_of_all(
    proxy: FaultProxy, place: Place
) -> None:
    kinds = [kind for kind in OWNED_KINDS.values() if kind.group in ("", "apps", "batch")]
    with mirrored(proxy.api(), place, *kinds, first_pause_s=_NEVER_S, proven_s=0.0) as mirror:
        wait_for(lambda: proxy.watches == len(kinds))
        proxy.resets = {kind.plural for kind in kinds} - {CONFIG_MAPS.plural}
        proxy.hang_up()
        wait_for(lambda: len(mirror.problems) == len(kinds) - 1, "all the others rest")
        wait_for(lambda: proxy.watches == len(kinds) + 1, "and this one is watched again")
        proxy.forgets = {kind.plural for kind in kinds}  # that which was away
        proxy.resets = set()
        assert not mirror.is_fresh

        proxy.throttle(1, retry_after_s=0.1)
        proxy.hang_up()  # on the one kind that is watched
        wait_for(lambda: mirror.is_fresh, "it is answered, and so are all of them")


def test_an_answer_to_another_kind_is_not_missed_between_a_failure_and_its_pause(
    proxy: FaultProxy, place: Place
) -> None:
    stopped, stale = threading.Event(), list[bool]()

    def news() -> None:
        """In the thread of the kind, which has said that it is stale, and does not rest yet."""
        if feed.freshness is Freshness.STALE:
            stale.append(True)
            proxy.resets = set()
            feed.hurry()

    pace = {"idle_s": IDLE_S, "first_pause_s": _NEVER_S, "look_again_s": _NEVER_S}
    view = WatchedKind(proxy.api(), place.selector, "", whole, **pace, proven_s=0.0, gather_s=0.0)
    feed = Reflector(CONFIG_MAPS, view, news, stopped, answered=lambda: None)
    thread = threading.Thread(target=feed.run)
    thread.start()
    try:
        wait_for(lambda: proxy.watches == 1, "it is watched")
        proxy.resets = {CONFIG_MAPS.plural}
        proxy.hang_up()
        wait_for(lambda: proxy.watches == 2, "and again")
    finally:
        stopped.set()
        feed.cut()
        thread.join(PATIENCE_S)

    assert stale == [True]


def _with_token(grant: Grant, token: str) -> Grant:
    return replace(grant, authorization=f"Bearer {token}")


def _install(api: ApiServer) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    api.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"widgets.{WIDGETS.group}"},
            "spec": {
                "group": WIDGETS.group,
                "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema},
                    }
                ],
            },
        }
    )
    wait_for(lambda: _is_served(api), "the kind is served")


def _uninstall(api: ApiServer) -> None:
    oid = ObjectId(
        "apiextensions.k8s.io", "CustomResourceDefinition", "", f"widgets.{WIDGETS.group}"
    )
    live = api.get(oid)
    if live is not None:
        api.delete(oid, uid=live["metadata"]["uid"])
        wait_for(lambda: api.get(oid) is None and not _is_served(api), "the kind is gone")


def _is_served(api: ApiServer) -> bool:
    try:
        api.list(WIDGETS)
    except NotFound:
        return False
    return True


def test_what_cannot_be_read_makes_it_stale_and_it_goes_on(
    api: ApiServer, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as the events of something that is no API server."""
    place.put("one")
    is_broken = threading.Event()

    def slim(found: dict[str, Any]) -> dict[str, Any]:
        return found["no such field"] if is_broken.is_set() else found  # type: ignore[no-any-return]  # raises

    with mirrored(api, place, slim=slim) as mirror:
        is_broken.set()
        place.put("two")
        wait_for(lambda: not mirror.is_fresh, "it says so")
        kept = _names(mirror)
        is_broken.clear()
        wait_for(lambda: mirror.is_fresh and _names(mirror) == {"one", "two"})

    assert kept == {"one"}
    assert "configmaps of cluster prod: Stale" in caplog.text


def test_an_object_of_many_levels_is_mirrored(api: ApiServer, place: Place) -> None:
    place.put("deep")

    def slim(found: dict[str, Any]) -> dict[str, Any]:
        nested: dict[str, Any] = {}
        for _ in range(400):
            nested = {"a": nested}
        return found | {"nested": nested}

    with mirrored(api, place, slim=slim) as mirror:
        assert _names(mirror) == {"deep"}
        assert next(iter((mirror.objects() or {}).values()))["metadata"]["name"] == "deep"
