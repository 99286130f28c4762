"""Who contributes objects to a cluster, and which of them may remove what."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from reconciler.core.observation import Observation, TargetState
from reconciler.core.plan import Action
from reconciler.kube.client.api import ApiServer
from reconciler.kube.client.credentials import ClusterCredentials, Grant
from reconciler.kube.contribution import ClusterPlanning, Contribution, PureContributor
from reconciler.kube.contributors import CONTRIBUTORS
from reconciler.kube.diff.step import ObjectStep
from reconciler.kube.event_note import EventNote
from reconciler.kube.informer.observer import Snapshot
from reconciler.kube.informer.strangers import Strangers
from reconciler.kube.inventory import labelled
from reconciler.kube.nearby import AgentsNearby
from reconciler.kube.object_set import ObjectSet
from reconciler.kube.objects import id_of, ref_of
from reconciler.kube.observed import ObservedCluster, PlannedCluster
from reconciler.kube.render.rendering import ObjectRenderer
from reconciler.kube.target import ClusterTarget
from tests.support.cluster_views import CLUSTER, desired, fleet, nothing_to_do
from tests.support.fleets import document
from tests.support.kube_live import as_applied

TARGET = f"cluster/{CLUSTER}"
NOTES: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "notes", "namespace": "default"},
    "data": {"what": "a contributor's own"},
}
OURS = labelled(NOTES, "home")
NOTED = id_of(OURS)
OWN_REMOVAL = ObjectStep(TARGET, NOTED, ref_of(NOTED), None).change(
    Action.DELETE, "NotNeeded", manifest=OURS
)


@dataclass(frozen=True, slots=True)
class Expected:
    """(action, reason) of each change, and whether the object is in the fleet's inventory."""

    changes: tuple[tuple[Action, str], ...]
    is_member: bool


@pytest.mark.parametrize(
    ("contribution", "expected"),
    [
        pytest.param(
            Contribution(), Expected(((Action.DELETE, "Removed"),), False), id="wanted by nobody"
        ),
        pytest.param(
            Contribution(wanted=ObjectSet({NOTED: OURS})), Expected((), True), id="wanted"
        ),
        pytest.param(
            Contribution(wanted=ObjectSet({NOTED: {**OURS, "data": {"what": "news"}}})),
            Expected(((Action.UPDATE, "ObjectChanged"),), True),
            id="wanted otherwise",
        ),
        pytest.param(
            Contribution(set_aside=frozenset({NOTED})), Expected((), True), id="set aside"
        ),
        pytest.param(
            Contribution(set_aside=frozenset({NOTED}), changes=(OWN_REMOVAL,)),
            Expected(((Action.DELETE, "NotNeeded"),), True),
            id="set aside, and removed by its contributor",
        ),
    ],
)
def test_an_object_goes_when_nobody_wants_it_or_by_whoever_sets_it_aside(
    contribution: Contribution, expected: Expected
) -> None:
    planned = plan(contribution)

    changes = planned.objects.changes
    assert tuple((c.action, c.reason) for c in changes) == expected.changes
    assert {c.object.name for c in changes if c.object} <= {NOTED.name}
    assert (NOTED in planned.contribution.members) == expected.is_member


def test_what_several_contribute_is_all_in_the_plan() -> None:
    note = EventNote(ref_of(NOTED), "Noted", "Plan", "a word")

    planned = plan(
        Contribution(events=(note,), details={"one": 1}), Contribution(details={"two": 2})
    )

    assert planned.contribution.events == (note,)
    assert planned.contribution.details == {"one": 1, "two": 2}
    assert planned.contribution.members, "the fleet's own, beside these"


def plan(*more: Contribution) -> PlannedCluster:
    """Of a cluster where all that the fleet wants is as it should be, beside one more object."""
    want = desired(fleet(chat={}) | {"fleet.yaml": document("Fleet", "home", {})})
    renderer = ObjectRenderer(CLUSTER)
    wanted = renderer.wanted(want)
    live = ObjectSet({oid: as_applied(o) for oid, o in (*wanted.objects.items(), (NOTED, OURS))})
    # No server is there: an answer would be needed only for names that are wanted and not ours yet.
    api = ApiServer.of(CLUSTER, ClusterCredentials(lambda: Grant("http://127.0.0.1:1")))
    rows = (*CONTRIBUTORS, *(PureContributor(partial(_same, each)) for each in more))
    target = ClusterTarget(api, renderer, contributors=rows)
    snapshot = Snapshot(live, parent=None)
    seen = ObservedCluster(
        began=0.0,
        snapshot=snapshot,
        nearby=AgentsNearby(frozenset(), {}, live, {}),
        strangers=Strangers(api, live),
        contribute=tuple(row.observe(wanted, snapshot, live) for row in rows),
    )
    observed = Observation({TARGET: TargetState(TARGET, reachable=True)}, ())
    return target.plan(want, seen, observed, nothing_to_do(want), want.policy())


def _same(contribution: Contribution, at: ClusterPlanning) -> Contribution:
    return contribution
