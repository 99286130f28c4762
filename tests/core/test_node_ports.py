"""Who has a port of a node, in the order of a plan's changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.observation import Instance, Observation, PortHolder, TargetState
from reconciler.core.plan import Action, Change, Plan, Restart
from reconciler.core.planner import Policy, make_plan
from reconciler.core.prune import PruneLimits
from reconciler.core.target import REMOVALS
from reconciler.fleet.workload import Workload
from tests.support.builders import GIB, FixedCauses, instance, model_file, need, ref, workload

MAC, MINI, PROD = "node/mac", "node/mini", "cluster/prod"
SHA = "ab" * 32


def plan(
    wanted: list[Workload],
    *running: Instance,
    taken: Mapping[int, PortHolder] | None = None,
    chosen: Mapping[str, int] | None = None,
    cached: str = SHA,
) -> Plan:
    """Of the node `mac`, of `mini`, where services move to and from, and of a cluster. `cached` is
    the only model there. Removals are confirmed."""
    state = {
        target: TargetState(
            target,
            reachable=True,
            cached=frozenset({cached}),
            ports_taken=taken or {},
            ports={ref(name): port for name, port in (chosen or {}).items()},
        )
        for target in (MAC, MINI, PROD)
    }
    confirmed: frozenset[str] = frozenset()
    while True:
        policy = Policy(prune=PruneLimits(confirmed=confirmed))
        made = make_plan("rev", wanted, (), Observation(state, running), policy, FixedCauses())
        asked = frozenset(b.token for b in made.blocked if b.token)
        if not asked:
            return made
        assert asked.isdisjoint(confirmed)
        confirmed |= asked


def wants(name: str, port: int | None, **changes: Any) -> Workload:
    return workload(name, port=port, **changes)


def runs(name: str, port: int, pid: int | None = 71, **changes: Any) -> Instance:
    stated = changes.pop("stated", port)
    return instance(name, wants(name, stated, **changes), port=port, pid=pid)


def gone(name: str, port: int) -> Instance:
    return instance(name, wants(name, port), port=port, gone=True, message="its process ended")


def steps(made: Plan) -> list[str]:
    """In the order in which they are applied."""
    return [c.ref.name for c in sorted(made.changes, key=lambda change: change.impact.order)]


def after(made: Plan) -> dict[str, list[str]]:
    return {c.ref.name: [r.name for r in c.impact.after] for c in made.changes if c.impact.after}


def stopping_first(made: Plan) -> dict[str, str]:
    return {c.ref.name: c.impact.stops_for.name for c in made.changes if c.impact.stops_for}


SUSPENDED = {"suspended": True}
CASES: dict[str, tuple[list[Workload], list[Instance], list[str], dict[str, list[str]]]] = {
    "a port that another one leaves": (
        [wants("a", 2), wants("b", 3)],
        [runs("a", 1), runs("b", 2)],
        ["b", "a"],
        {"a": ["b"]},
    ),
    "a chain, whatever the names": (
        [wants("a", 3), wants("b", 1), wants("c", 4)],
        [runs("a", 2), runs("b", 5), runs("c", 3)],
        ["b", "c", "a"],
        {"a": ["c"]},
    ),
    "a port of one that is suspended": (
        [wants("a", 2), wants("b", 2, **SUSPENDED)],
        [runs("a", 1), runs("b", 2)],
        ["b", "a"],
        {"a": ["b"]},
    ),
    "a port of one that goes": ([wants("a", 2)], [runs("b", 2)], ["b", "a"], {"a": ["b"]}),
    "a port of one that moved away": (
        [wants("a", 2), wants("b", 2, node="mini")],
        [runs("b", 2), runs("b", 2, node="mini")],
        ["b", "a"],
        {"a": ["b"]},
    ),
    "a new name on the same port": (
        [wants("new", 2)],
        [runs("old", 2)],
        ["old", "new"],
        {"new": ["old"]},
    ),
    "a port of nobody": ([wants("a", 2)], [runs("a", 1)], ["a"], {}),
    "one that is chosen there": ([wants("a", None)], [runs("a", 1)], ["a"], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_who_frees_a_port_comes_before_who_takes_it(case: str) -> None:
    wanted, running, order, waiting = CASES[case]

    made = plan(wanted, *running)

    assert not made.blocked
    assert steps(made) == order
    assert after(made) == waiting
    assert not stopping_first(made)


@pytest.mark.parametrize("names", ["ab", "abc", "abcd"])
def test_a_ring_of_ports_is_broken_by_one_that_stops_first(names: str) -> None:
    wanted = [wants(name, (number + 1) % len(names)) for number, name in enumerate(names)]
    running = [runs(name, number) for number, name in enumerate(names)]

    made = plan(wanted, *running)

    assert not made.blocked
    assert stopping_first(made) == {"a": names[-1]}  # whose port it has
    assert steps(made) == ["a", *reversed(names[1:])]
    assert after(made) == dict(zip(names, map(list, names[1:] + "a"), strict=True))
    assert not any(change.impact.waits for change in made.changes)


def test_what_runs_comes_before_what_starts_though_it_grows_more() -> None:
    a, b = wants("a", 1, needs=need(GIB)), wants("b", 3, needs=need(3 * GIB))

    assert steps(plan([a, b], runs("b", 2, needs=need(GIB)))) == ["b", "a"]


def test_who_waits_for_one_whose_model_has_to_come_waits_too() -> None:
    chain = plan([wants("a", 2), wants("b", 3)], runs("a", 1), runs("b", 2), cached="")
    ring = plan([wants("a", 2), wants("b", 1)], runs("a", 1), runs("b", 2), cached="")
    whole = model_file("whole", sha256="cd" * 32)
    third = [wants("a", 2, models=(whole,)), wants("b", 3, models=(whole,)), wants("c", 4)]
    behind = [runs("a", 1, models=(whole,)), runs("b", 2, models=(whole,)), runs("c", 3)]
    only_c = plan(third, *behind, cached="cd" * 32)

    assert {c.ref.name: c.impact.waits for c in chain.changes} == {"a": True, "b": False}
    assert {c.ref.name: c.impact.waits for c in only_c.changes} == {
        "a": True,
        "b": True,
        "c": False,
    }
    assert {c.ref.name: c.impact.waits for c in ring.changes} == {"a": True, "b": True}


def test_a_ring_that_is_refused_leaves_each_its_port() -> None:
    wanted = [wants("a", 2), wants("b", 3), wants("c", 1, needs=need(2 * GIB, 3 * GIB))]
    running = [runs("a", 1), runs("b", 2), runs("c", 3)]
    each = need(GIB, 3 * GIB)
    wanted[:2] = [replace(w, needs=each) for w in wanted[:2]]

    made = plan([*wanted, wants("d", 2)], *(replace(r, needs=each) for r in running))

    assert made.changes == ()
    assert {b.ref.name: b.reason for b in made.blocked} == {
        "a": "MemoryFits",  # which starts last
        "b": "PortInUse",
        "c": "PortInUse",
        "d": "PortInUse",
    }


STRANGER = PortHolder("port 2 is taken by pid 7 (nginx): end it", 7, "nginx")


@pytest.mark.parametrize(
    ("wanted", "running", "taken", "refused"),
    [
        ([wants("a", 2)], [runs("a", 1)], {2: STRANGER}, {"a": "pid 7 (nginx): end it; left"}),
        ([wants("a", 2)], [], {2: STRANGER}, {"a": "pid 7 (nginx): end it"}),
        ([wants("a", 2), wants("b", 2)], [runs("b", 2)], {}, {"a": "default/b's"}),
        # its process ended, and a stranger was faster
        ([wants("a", 2)], [gone("a", 2)], {2: STRANGER}, {"a": "pid 7"}),
        # who cannot leave for the stranger keeps who waits for it
        (
            [wants("a", 1), wants("b", 2)],
            [runs("a", 3), runs("b", 1)],
            {2: STRANGER},
            {"a": "for one of them; left as it is on port 3", "b": "pid 7"},
        ),
        (
            [wants("a", 1), wants("b", 2), wants("c", 3)],
            [runs("a", 3), runs("b", 1), runs("c", 2)],
            {3: STRANGER},
            {"a": "default/b's", "b": "default/c's", "c": "pid 7"},
        ),
    ],
)
def test_a_port_that_somebody_keeps_is_refused_with_who_has_it(
    wanted: list[Workload],
    running: list[Instance],
    taken: dict[int, PortHolder],
    refused: dict[str, str],
) -> None:
    made = plan(wanted, *running, taken=taken)

    assert {item.ref.name for item in made.blocked} == refused.keys()
    for item in made.blocked:
        assert item.reason == "PortInUse"
        assert refused[item.ref.name] in item.message
    assert made.exit_code == 3
    assert not made.changes


def test_pods_of_a_cluster_may_all_have_the_same_port() -> None:
    there = {"cluster": "prod", "node": "edge"}
    running = [instance(name, wants(name, 8080, **there), target=PROD, port=8080) for name in "abc"]
    wanted = [wants(name, port, **there) for name, port in (("b", 8080), ("c", 8081), ("d", 8080))]

    made = plan(wanted, *running)

    assert made.blocked == ()
    assert steps(made) == ["a", "c", "d"]


def test_one_that_waits_for_its_port_does_not_have_it() -> None:
    waiting = runs("a", 2, None)
    for reason in ("PortInUse", "WaitsForPort"):
        made = plan([wants("b", 2)], replace_reason(waiting, reason))
        assert not made.blocked


def test_of_two_that_name_one_port_the_one_that_lives_has_it() -> None:
    seen = (gone("a", 2), runs("b", 2))

    both_go = plan([], *seen)
    one_comes = plan([wants("a", 2), wants("b", 2)], *seen)

    assert sorted(steps(both_go)) == ["a", "b"]
    assert [(b.ref.name, b.reason) for b in one_comes.blocked] == [("a", "PortInUse")]


def replace_reason(of: Instance, reason: str) -> Instance:
    return instance("a", wants("a", 2), port=of.port, pid=None, reason=reason)


ports = st.integers(1, 5)
services = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(st.sampled_from(["mac", "mini"]), ports, st.booleans(), st.integers(1, 3)),
    max_size=6,
)


@given(services, services, st.sets(ports, max_size=2))
def test_no_two_have_one_port_at_a_time_and_plans_come_to_an_end(
    before: dict[str, tuple[str, int, bool, int]],
    now: dict[str, tuple[str, int, bool, int]],
    strangers: set[int],
) -> None:
    held = {n: PortHolder(f"port {n} is taken by pid {n}", n) for n in strangers}
    running, wanted, seen = [], [], set()
    for name, (node, port, _, context) in before.items():
        if (node, port) not in seen and port not in strangers:
            seen.add((node, port))
            running.append(runs(name, port, node=node, settings={"contextSize": context}))
    stated: set[tuple[str, int]] = set()
    for name, (node, port, suspended, context) in now.items():
        if suspended or (node, port) not in stated:  # else placement has refused it
            stated |= set() if suspended else {(node, port)}
            settings = {"contextSize": context}
            wanted.append(wants(name, port, node=node, settings=settings, suspended=suspended))

    moves = sum(name in before and before[name][0] != node for name, (node, *_) in now.items())
    for _ in range(2 * moves + 1):  # a copy leaves its port once its successor is ready
        running = executed(plan(wanted, *running, taken=held), running, strangers)
    again = plan(wanted, *running, taken=held)

    assert all(c.awaits for c in again.changes), [(c.action, c.ref.name) for c in again.changes]


def executed(made: Plan, running: list[Instance], strangers: set[int]) -> list[Instance]:
    """The world after every step of a plan, in its order. Who stops first starts once its port is
    free. No two have one port at any time."""
    world = {(i.target, i.ref): i for i in running}
    late: list[Change] = []

    def start(change: Change) -> None:
        want = change.desired
        assert want is not None
        assert want.port is not None
        key = (change.target, change.ref)
        taken = {i.port for k, i in world.items() if k[0] == change.target and k != key}
        assert want.port not in taken | strangers, f"{change.ref.name} on {want.port}"
        world[key] = runs(change.ref.name, want.port, node=want.node, settings=want.settings)

    for change in sorted(made.changes, key=lambda change: change.impact.order):
        if change.awaits:
            continue
        if change.action in REMOVALS:
            del world[change.target, change.ref]
        elif change.impact.stops_for:
            del world[change.target, change.ref]
            late.append(change)
        elif change.action is not Action.UPDATE or change.impact.restart is not Restart.NONE:
            start(change)
    for change in late:
        start(change)
    return list(world.values())
