"""Statuses one after the other are what each of them says alone, and what did not change is not
written again."""

from __future__ import annotations

import random
import weakref
from dataclasses import fields, replace

import pytest

from reconciler.api.benchmark import EXPIRES_S
from reconciler.api.nodestate import NodeState
from reconciler.core.observation import Instance, Observation, ObservedPool, TargetState
from reconciler.report.nodestate import node_state, read_node_state
from reconciler.report.status import DeclaredService, Status
from reconciler.report.status_documents import SHOWN_FIELDS, StatusDocuments
from reconciler.report.status_json import status_json
from tests.api.test_benchmark import NOW
from tests.report.test_speeds import RUNS, measured
from tests.support.builders import GIB, NODE, instance, need, ref

_NODES = ("mac", "gpu", "attic")
_NAMES = ("a", "b", "c", "d")


def _run(name: str, node: str, *, ready: bool = True) -> Instance:
    return instance(name, target=f"node/{node}", ready=ready, pid=41, needs=need(GIB))


_RUNS = [
    _run(name, node, ready=ready) for name in _NAMES for node in _NODES for ready in (True, False)
]
_DECLARED = [
    DeclaredService(ref(name), reason, node=node)
    for name in _NAMES
    for node in (*_NODES, None)
    for reason in ("NotRunning", "Unknown")
]


def status_by_chance(seen_at: float) -> Status:
    runs = tuple({(i.target, i.ref): i for i in random.choices(_RUNS, k=5)}.values())
    targets = {}
    for node in random.sample(_NODES, k=2):
        pools = (ObservedPool("host", 8 * GIB, random.choice((4, 6)) * GIB, GIB),)
        targets[f"node/{node}"] = TargetState(f"node/{node}", True, seen_at, pools=pools)
    runs = tuple(i for i in runs if i.target in targets)
    answers = {t: _answer(state, runs) for t, state in targets.items() if random.random() < 0.5}
    speeds = {t: {ref("a"): random.choice((1.0, 2.0))} for t in targets}
    declared = tuple(random.sample(_DECLARED, k=3))
    left = frozenset(random.sample([*targets], k=random.randrange(2)))
    return Status(Observation(targets, runs), declared, answers, speeds=speeds, left=left)


def _answer(state: TargetState, runs: tuple[Instance, ...]) -> NodeState:
    there = [i for i in runs if i.target == state.target]
    speeds = {i.ref: random.choice((1.0, 2.0)) for i in there}
    requests = {i.ref: random.choice((0, 1)) for i in there}
    return node_state(state, there, agent_version="1", speeds=speeds, requests=requests)


def test_every_status_is_what_it_says_alone() -> None:
    documents = StatusDocuments()

    for number in range(200):
        status = status_by_chance(float(number))

        assert documents.of(status) == status_json(status)


def test_only_what_changed_is_written_again() -> None:
    documents = StatusDocuments()
    before, after, other = (_run("a", "mac"), _run("a", "mac", ready=False), _run("b", "gpu"))

    def services(seen_at: float, *runs: Instance) -> list[object]:
        states = {i.target: TargetState(i.target, True, seen_at) for i in runs}
        return list(documents.of(Status(Observation(states, runs)))["services"])

    first, second = services(1.0, before, other), services(2.0, after, other)

    assert second[0] != first[0]
    assert second[1] is first[1]


def test_of_a_node_with_news_only_the_services_that_changed_are_written_again() -> None:
    documents = StatusDocuments()
    state, runs = TargetState("node/mac", True, 1.0), (_run("a", "mac"), _run("b", "mac"))
    kept = []  # else the answer before is gone, and equal to none for that

    def services(tokens_per_second: float) -> list[object]:
        speeds = {ref("b"): tokens_per_second}
        answer = node_state(state, runs, agent_version="1", speeds=speeds)
        kept.append(answer)
        seen, instances = read_node_state(answer)
        observed = Observation({"node/mac": seen}, instances)
        return list(documents.of(Status(observed, states={"node/mac": answer}))["services"])

    first, second = services(1.0), services(2.0)

    assert second[0] is first[0]
    assert second[1] != first[1]


def test_a_measurement_grows_too_old_without_any_other_news() -> None:
    documents = StatusDocuments()

    def stale(seen_at: float) -> bool:
        observed = Observation({NODE: TargetState(NODE, True, seen_at)}, (RUNS,))
        (service,) = documents.of(Status(observed, measured={NODE: (measured(),)}))["services"]
        return bool(service["placements"][0]["benchmarks"][0]["stale"])

    assert (stale(NOW), stale(NOW + EXPIRES_S + 3600.0)) == (False, True)


def test_no_answer_is_kept_alive() -> None:
    documents, state = StatusDocuments(), TargetState("node/mac", True, 1.0)
    answer = node_state(state, [_run("a", "mac")], agent_version="1")
    seen, instances = read_node_state(answer)
    documents.of(Status(Observation({"node/mac": seen}, instances), states={"node/mac": answer}))
    known = weakref.ref(answer)

    del answer, seen, instances

    assert known() is None


class _Unread:
    """A value that nobody looks at."""


@pytest.mark.parametrize(
    "field", sorted({f.name for f in fields(Instance)} - {"target", "inputs", *SHOWN_FIELDS})
)
def test_what_is_not_compared_of_an_instance_is_not_shown(field: str) -> None:
    before = _run("a", "mac")
    after = replace(before, **{field: _Unread()})
    state = {"node/mac": TargetState("node/mac", True, 1.0)}

    shown = [status_json(Status(Observation(state, (each,)))) for each in (before, after)]

    assert shown[0] == shown[1]
