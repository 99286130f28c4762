"""Statuses one after the other are what each of them says alone, and what did not change is not
written again."""

from __future__ import annotations

import random

from reconciler.api.nodestate import NodeState
from reconciler.core.observation import Instance, Observation, ObservedPool, TargetState
from reconciler.report.nodestate import node_state
from reconciler.report.status import DeclaredService, Status
from reconciler.report.status_documents import StatusDocuments
from reconciler.report.status_json import status_json
from tests.support.builders import GIB, instance, need, ref

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
    return node_state(state, [i for i in runs if i.target == state.target], agent_version="1")


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
