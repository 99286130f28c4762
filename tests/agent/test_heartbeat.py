"""The Lease that says that a node's agent lives: the thread that renews it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agent.cluster.heartbeat import Heartbeat
from agent.cluster.outage import Outage
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from reconciler.kube.endpoints.heartbeat import RENEW_S, STALE_S, renewal_pause_s
from tests.support.wait import wait_for


def test_agents_that_started_together_renew_apart_every_ten_seconds_on_average() -> None:
    pauses = [renewal_pause_s(n / 100) for n in range(101)]

    assert (min(pauses), max(pauses)) == pytest.approx((8.0, 12.0))
    assert abs(sum(pauses) / len(pauses) - RENEW_S) < 0.1
    assert 3 * max(pauses) < STALE_S  # two that fail in a row withdraw nothing


class Stumbling(ApiServer):
    """An API server whose client has a bug in this program."""

    def apply(self, *_words: Any, **_options: Any) -> Any:
        raise ZeroDivisionError


def test_a_bug_of_ours_does_not_end_the_heartbeat(caplog: pytest.LogCaptureFixture) -> None:
    api = Stumbling.of("prod", ClusterCredentials(lambda: Grant("http://127.0.0.1:1")))
    beat = Heartbeat(api, "mac", "manager", Outage("prod"))
    beat.start()
    wait_for(lambda: "a bug in this program stopped this heartbeat" in caplog.text)

    alive = [thread.name for thread in threading.enumerate()]
    beat.close()
    api.close()

    assert "heartbeat" in alive
