"""Who applies to a cluster: one at a time, found out without trusting anybody's clock."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.errors import NotFound, Unreachable
from reconciler.kube.kinds import LEASE
from reconciler.kube.leaderelection.leadership import Leadership
from reconciler.kube.leaderelection.lease import Holder, Times
from reconciler.kube.objects import SYSTEM_NAMESPACE
from tests.support.cluster import Cluster
from tests.support.fault_proxy import FaultProxy
from tests.support.owner import MovedClock
from tests.support.wait import PATIENCE_S, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.e2e]

# Held for long and renewed often: only a clock that a test moves comes to the end of one.
LONG = Times(lease_s=3600, renew_s=2400, retry_s=0.05)


@pytest.fixture(scope="module")
def api(shared_cluster: Cluster) -> Iterator[ApiServer]:
    api = shared_cluster.client()
    yield api
    api.close()


@pytest.fixture
def proxy(api: ApiServer) -> Iterator[FaultProxy]:
    with FaultProxy(api.grant()) as proxy:
        yield proxy


@pytest.fixture
def name(api: ApiServer) -> Iterator[str]:
    """A lease of the test's own, which goes with it: the next test of this cluster may count what
    is ours."""
    made = f"fleet-{secrets.token_hex(4)}"
    yield made
    for namespace in ("default", SYSTEM_NAMESPACE):
        with contextlib.suppress(NotFound):
            api.raw("DELETE", LEASE.path(namespace, made))


@pytest.fixture
def clock() -> MovedClock:
    """That of all holders of a test."""
    return MovedClock()


@pytest.fixture
def stopped() -> Iterator[threading.Event]:
    """Ends a wait that would outlast the test."""
    stopped = threading.Event()
    timer = threading.Timer(PATIENCE_S, stopped.set)
    timer.start()
    yield stopped
    timer.cancel()


@pytest.fixture
def claims(name: str, clock: MovedClock) -> Iterator[Claims]:
    claims = Claims(name, clock)
    yield claims
    for holder in claims.made:
        holder.release()


class Claims:
    """Makes holders of one lease, and gives back what they hold at the end."""

    def __init__(self, name: str, clock: MovedClock) -> None:
        self.name = name
        self._clock = clock
        self.made: list[Holder] = []

    def __call__(self, api: ApiServer, identity: str, **options: Any) -> Holder:
        options = {"times": LONG, "clock": self._clock.monotonic} | options
        self.made.append(Holder(api, self.name, "default", identity, **options))
        return self.made[-1]


def _spec(api: ApiServer, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = api.raw("GET", LEASE.path("default", name))["spec"]
    return spec


def _wait_renewed(api: ApiServer, name: str, times: int = 2) -> None:
    """Twice: the first may have been on its way before whatever came before."""
    seen: set[str] = set()

    def is_renewed() -> bool:
        seen.add(_spec(api, name)["renewTime"])
        return len(seen) > times

    wait_for(is_renewed, "renewed")


def _put(api: ApiServer, name: str, spec: dict[str, Any]) -> None:
    """A lease that somebody else has written."""
    metadata = {"name": name, "namespace": "default"}
    body = {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": metadata, "spec": spec}
    api.raw("POST", LEASE.path("default"), body=body)


def _stamp(after_s: float = 0.0) -> str:
    moment = datetime.now(UTC) + timedelta(seconds=after_s)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _dead(after_s: float) -> dict[str, Any]:
    """The spec of a holder that died; the time it wrote is that of a clock of its own."""
    return {
        "holderIdentity": "dead",
        "leaseDurationSeconds": 1,
        "renewTime": _stamp(after_s),
        "leaseTransitions": 4,
    }


class Stumbling(ApiServer):
    """An API server whose client has a bug in this program while it is told to."""

    stumbles = True
    stumbled = 0

    def raw(self, *words: Any, **options: Any) -> Any:
        if self.stumbles:
            self.stumbled += 1
            raise ZeroDivisionError
        return super().raw(*words, **options)


def test_a_bug_of_ours_ends_neither_the_claim_of_a_lease_nor_its_renewal(
    api: ApiServer, claims: Claims, stopped: threading.Event, name: str
) -> None:
    odd = Stumbling(api.name, api._transport)
    holder = claims(odd, "first")
    with ThreadPoolExecutor() as pool:
        claim = pool.submit(holder.acquire, stopped)
        wait_for(lambda: odd.stumbled > 1, "tried again")
        odd.stumbles = False
        assert claim.result()

    odd.stumbles, odd.stumbled = True, 0
    wait_for(lambda: odd.stumbled > 1, "tried again")
    odd.stumbles = False

    _wait_renewed(api, name)
    assert holder.is_held


def test_a_bug_of_ours_where_a_lease_is_told_of_ends_no_claim(
    api: ApiServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[bool] = []

    def changed() -> None:
        told.append(leadership.leads(api.name))
        raise ZeroDivisionError

    leadership = Leadership([api], "first", changed, Times(lease_s=3, renew_s=2, retry_s=0.05))
    leadership.follow(name.removeprefix("fleet-"))
    try:
        wait_for(lambda: told == [True], "won")
        path = LEASE.path(SYSTEM_NAMESPACE, name)
        robbed = {"spec": _dead(0)}
        api.raw("PATCH", path, body=robbed, content_type="application/merge-patch+json")
        wait_for(lambda: told == [True, False, True], "lost, and won again")
    finally:
        leadership.close()

    assert "a bug in this program" in caplog.text


def test_the_first_who_asks_has_it_and_the_second_is_told_who(
    api: ApiServer, claims: Claims
) -> None:
    first, second = claims(api, "first"), claims(api, "second")

    assert first.contend()
    assert not second.contend()

    assert first.is_held
    assert not second.is_held
    assert second.holder == "first"


def test_a_live_holder_is_told_apart_long_before_the_lease_would_be_over(
    api: ApiServer, claims: Claims, stopped: threading.Event
) -> None:
    assert claims(api, "first").contend()

    assert not claims(api, "second").contend(stopped)

    assert not stopped.is_set()


def test_what_is_given_back_is_free_at_once(api: ApiServer, name: str, claims: Claims) -> None:
    with claims(api, "first") as first:
        assert first.contend()
    second = claims(api, "second")

    assert second.attempt()

    assert not first.is_held
    assert _spec(api, name)["holderIdentity"] == "second"
    assert second.transitions == first.transitions + 1


def test_a_holder_renews_for_as_long_as_it_lives(
    api: ApiServer, name: str, claims: Claims, clock: MovedClock
) -> None:
    holder = claims(api, "first")
    assert holder.contend()
    first = _spec(api, name)

    while clock.passed_s < 2 * LONG.lease_s:
        _wait_renewed(api, name)
        clock.passed_s += 0.8 * LONG.renew_s

    assert holder.is_held
    assert _spec(api, name)["acquireTime"] == first["acquireTime"]


@pytest.mark.parametrize("clock_s", [-3600, 0, 3600], ids=["behind", "right", "ahead"])
def test_the_lease_of_one_who_died_is_waited_out_whatever_its_clock_said(
    api: ApiServer, name: str, claims: Claims, clock_s: float, stopped: threading.Event
) -> None:
    _put(api, name, _dead(clock_s))
    heir = claims(api, "heir")
    began = time.monotonic()

    assert heir.contend(stopped)

    assert time.monotonic() - began >= 1.0
    assert heir.transitions == 5


def test_of_many_who_wait_for_a_dead_one_exactly_one_gets_it(
    api: ApiServer, name: str, claims: Claims, stopped: threading.Event
) -> None:
    _put(api, name, _dead(0))
    heirs = [claims(api, f"heir-{n}") for n in range(6)]

    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda heir: heir.contend(stopped), heirs))

    assert sorted(got) == [False] * 5 + [True]
    assert not stopped.is_set()
    assert sum(heir.is_held for heir in heirs) == 1


def test_one_who_cannot_renew_stops_before_another_may_begin(
    api: ApiServer, proxy: FaultProxy, claims: Claims, clock: MovedClock
) -> None:
    lost = threading.Event()
    cut_off = claims(proxy.api(), "first", lost=lost.set)
    other = claims(api, "second")
    assert cut_off.contend()
    proxy.refuses = True
    proxy.cut()

    held: list[bool] = []
    while not other.attempt():
        held.append(cut_off.is_held)
        clock.passed_s += 60

    assert not cut_off.is_held
    assert held[0]
    assert not held[-1], "it stopped before the other one began"
    assert lost.wait(PATIENCE_S)


def test_a_short_outage_loses_nothing(
    api: ApiServer, name: str, proxy: FaultProxy, claims: Claims, clock: MovedClock
) -> None:
    lost = threading.Event()
    holder = claims(proxy.api(), "first", lost=lost.set)
    assert holder.contend()

    for _ in range(2):
        proxy.refuses = True
        proxy.cut()
        enough = proxy.refused + 3
        clock.passed_s += 0.8 * LONG.renew_s
        wait_for(lambda enough=enough: proxy.refused >= enough, "it cannot renew")
        proxy.refuses = False
        _wait_renewed(api, name)

    assert holder.is_held
    assert not lost.is_set()


def test_an_answer_that_is_lost_is_still_our_claim(proxy: FaultProxy, claims: Claims) -> None:
    holder = claims(proxy.api(), "first")
    proxy.lose_answers = 1
    with pytest.raises(Unreachable):
        holder.attempt()

    assert holder.attempt()
    assert holder.transitions == 0


def test_a_label_put_on_the_lease_costs_nobody_anything(
    shared_cluster: Cluster, api: ApiServer, name: str, claims: Claims
) -> None:
    lost = threading.Event()
    holder = claims(api, "first", lost=lost.set)
    assert holder.contend()

    shared_cluster.kubectl("label", "lease", name, "a=b")
    _wait_renewed(api, name)

    assert holder.is_held
    assert not lost.is_set()
    labels = api.raw("GET", LEASE.path("default", name))["metadata"]["labels"]
    assert labels == {"a": "b", "app.kubernetes.io/managed-by": "fleet-reconciler"}


def test_a_deleted_lease_is_made_again(
    shared_cluster: Cluster, api: ApiServer, name: str, claims: Claims
) -> None:
    holder = claims(api, "first")
    assert holder.contend()

    shared_cluster.kubectl("delete", "lease", name)

    wait_for(lambda: name in shared_cluster.kubectl("get", "leases"))
    assert _spec(api, name)["holderIdentity"] == "first"
    assert holder.is_held


def test_one_who_is_robbed_knows_it_at_the_next_renewal(
    shared_cluster: Cluster, name: str, api: ApiServer, claims: Claims
) -> None:
    lost = threading.Event()
    holder = claims(api, "first", lost=lost.set)
    assert holder.contend()

    shared_cluster.kubectl(
        *("patch", "lease", name, "--type=merge", "-p", '{"spec":{"holderIdentity":"thief"}}')
    )

    assert lost.wait(PATIENCE_S)
    assert not holder.is_held
    assert holder.holder == "thief"


def test_whoever_waits_goes_on_until_told_to_stop_and_says_an_outage_once(
    proxy: FaultProxy, claims: Claims, caplog: pytest.LogCaptureFixture
) -> None:
    stopped, got = threading.Event(), []
    proxy.refuses = True
    waiting = claims(proxy.api(), "first")
    thread = threading.Thread(target=lambda: got.append(waiting.acquire(stopped)))
    thread.start()
    wait_for(lambda: proxy.refused > 2)

    proxy.refuses = False
    thread.join(PATIENCE_S)
    assert got == [True]
    assert len([r for r in caplog.records if "gave no answer" in r.message]) == 1

    stopped.set()
    assert not claims(proxy.api(), "second").acquire(stopped)


def test_who_stands_by_can_tell_the_holder_that_there_is_news(
    api: ApiServer, claims: Claims
) -> None:
    heard = threading.Event()
    first, second = claims(api, "first", asked=heard.set), claims(api, "second")
    assert first.contend()

    second.ask()

    assert heard.wait(PATIENCE_S)
    assert first.is_held
    heard.clear()
    second.ask()
    assert heard.wait(PATIENCE_S)


def test_however_often_it_is_told_the_holder_keeps_it(
    api: ApiServer, name: str, claims: Claims
) -> None:
    lost = threading.Event()
    first, second = claims(api, "first", lost=lost.set), claims(api, "second")
    assert first.contend()
    renewals: set[str] = set()

    def is_renewed_all_the_same() -> bool:
        second.ask()
        renewals.add(_spec(api, name)["renewTime"])
        return len(renewals) > 10 or lost.is_set()

    wait_for(is_renewed_all_the_same)
    assert first.is_held
    assert not lost.is_set()
