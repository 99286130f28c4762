"""A plan decides again what has changed since the last one, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from reconciler.api.meta import ObjectRef
from reconciler.core.kept_decisions import KeptDecisions
from reconciler.core.observation import Location, Observation, TargetState
from reconciler.core.plan import Blocked, Plan
from reconciler.core.planner import Policy, make_plan
from reconciler.fleet.workload import NodePool, Workload
from tests.support.builders import GIB, FixedCauses, instance, need, ref, workload

PROD, NAMES = "cluster/prod", ("a", "b", "c")
THERE, RULES = TargetState(PROD, reachable=True, seen_at=1.0), Policy()


class AskedCauses(FixedCauses):
    """Tells of which services somebody asked where they stand."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def where(self, ref: ObjectRef, field: str = "") -> Location | None:
        self.asked.append(ref.name)
        return super().where(ref, field)


def in_pool(name: str, **overrides: object) -> Workload:
    placed = {"node": "edge", "cluster": "prod", "pool": NodePool("cpu"), "needs": need(GIB)}
    return workload(name, **(placed | overrides))


@dataclass(frozen=True)
class World:
    """Three services that are to be made; `b` may be there, and its settings be older."""

    wanted: tuple[Workload, ...] = tuple(map(in_pool, NAMES))
    there: tuple[Workload, ...] = ()
    state: TargetState = THERE
    policy: Policy = RULES
    held: tuple[Blocked, ...] = ()

    def plan(self, causes: FixedCauses, kept: KeptDecisions | None) -> Plan:
        running = tuple(instance(w.ref.name, of=w, target=PROD) for w in self.there)
        seen = Observation({PROD: self.state}, running)
        given = ("rev", self.wanted, self.held, seen, self.policy, causes)
        return make_plan(*given, kept=kept)


def later(world: World) -> World:
    return replace(world, state=replace(world.state, seen_at=2.0))


def made(world: World) -> World:
    return replace(world, there=(world.wanted[1],))


def changed(world: World) -> World:
    before = replace(world.wanted[1], settings={"contextSize": 512})
    return replace(world, there=(before,))


def declared_anew(world: World) -> World:
    a, _, c = world.wanted
    return replace(world, wanted=(a, in_pool("b", settings={"contextSize": 512}), c))


def held(world: World) -> World:
    why = Blocked(ref("b"), "Held", "by a test", None, None, (ref("b"),))
    return replace(world, held=(why,))


def too_small(world: World) -> World:
    a, b, c = world.wanted
    large = need(5 * GIB, budget=4 * GIB)
    return replace(world, wanted=(a, replace(b, needs=large), c))


def silent(world: World) -> World:
    return replace(world, state=replace(world.state, reachable=False, message="away"))


def gone(world: World) -> World:
    return replace(world, wanted=world.wanted[::2])


def moved(world: World) -> World:
    """It runs here, and is meant for a node."""
    a, b, c = world.wanted
    return replace(world, wanted=(a, workload("b", node="mini"), c), there=(b,))


def moved_on(world: World) -> World:
    a, _, c = world.wanted
    return replace(world, wanted=(a, workload("b", node="maxi"), c))


def sized_anew(world: World) -> World:
    return replace(world, there=(replace(world.there[0], needs=need(2 * GIB)),))


def drained(world: World) -> World:
    return replace(world, policy=replace(world.policy, drained=frozenset({PROD})))


@pytest.mark.parametrize(
    ("first", "news", "asked"),
    [
        (World(), later, ""),
        (World(), made, ""),  # nothing is to be done to it, and nobody asks where it stands
        (World(), changed, "b"),
        (World(), declared_anew, "b"),
        (World(), held, ""),
        (World(), too_small, "b"),
        (World(), gone, ""),
        (World(), silent, "abc"),
        (World(), drained, "abc"),
        (moved(World()), moved_on, "b"),
        (changed(World()), sized_anew, "b"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_stays_is_not_decided_again(
    first: World, news: Callable[[World], World], asked: str
) -> None:
    causes, kept = AskedCauses(), KeptDecisions()
    first.plan(causes, kept)
    assert sorted(set(causes.asked)) == list(NAMES)
    causes.asked.clear()

    now = news(first)
    again = now.plan(causes, kept)

    assert sorted(set(causes.asked)) == list(asked)
    assert again == now.plan(FixedCauses(), None), "and says what one does that knows nothing"


def test_what_was_found_of_a_change_stands_while_its_memory_does() -> None:
    causes, kept, first = AskedCauses(), KeptDecisions(), changed(World())
    before = first.plan(causes, kept)

    again = first.plan(causes, kept)
    first = declared_anew(first)
    other = first.plan(causes, kept)

    pairs = zip(before.changes, again.changes, strict=True)
    assert all(one.impact is two.impact for one, two in pairs)
    assert other == first.plan(FixedCauses(), None)
