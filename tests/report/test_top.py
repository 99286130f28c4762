"""`reconcile top`: pools and services, as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.observation import Observation, ObservedPool, TargetState
from reconciler.fleet.workload import PoolNeed
from reconciler.report.nodestate import node_state, read_node_state
from reconciler.report.status import Status
from reconciler.report.status_json import status_json
from reconciler.report.status_text import StatusStyle
from reconciler.report.top_text import top_text
from tests.support.builders import instance

GIB = 2**30
_TABLE = """\
NODE  POOL            MEMORY             TAKEN    BUDGET    OTHERS
gpu   did not answer  -                  -        -         -
mac   host            [##........]  25%  4.0 GiB  16.0 GiB  2.0 GiB

SERVICE        NODE  TOKENS/S  REQUESTS  MEMORY   STATE
default/busy   mac   41.2      2         3.0 GiB  Ready
default/quiet  mac   -         0         1.0 GiB  Ready

2 running, 41.2 tokens/s, 2 requests in flight
"""


def seen() -> Status:
    """A busy node and one that is away, as agents tell it."""
    quiet = replace(instance("quiet"), pid=7, needs=(PoolNeed("host", 1 * GIB, 16 * GIB),))
    busy = replace(instance("busy"), pid=8, needs=(PoolNeed("host", 3 * GIB, 16 * GIB),))
    pool = ObservedPool("host", 36 * GIB, 16 * GIB, 2 * GIB)
    state = TargetState("node/mac", True, seen_at=1.0, pools=(pool,))
    answer = node_state(
        *(state, (quiet, busy)),
        agent_version="1",
        speeds={busy.ref: 41.25},
        requests={busy.ref: 2, quiet.ref: 0},
    )
    state, instances = read_node_state(answer)
    away = TargetState("node/gpu", False, None, "no answer")
    targets = {state.target: state, away.target: away}
    return Status(Observation(targets, instances), states={"node/mac": answer})


def test_the_busiest_comes_first_and_what_is_not_known_is_never_0() -> None:
    assert top_text(seen(), StatusStyle(2.0)) == _TABLE


@pytest.mark.parametrize("width", [30, 60, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = top_text(seen(), StatusStyle(2.0, width)).splitlines()

    assert max(map(len, lines)) <= width
    assert "default/busy" in lines[5]


def test_requests_in_flight_are_in_the_status_for_programs_too() -> None:
    services = {s["ref"]["name"]: s for s in status_json(seen())["services"]}

    found = {name: s["placements"][0]["requestsInFlight"] for name, s in services.items()}
    assert found == {"busy": 2, "quiet": 0}
