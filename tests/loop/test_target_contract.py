"""What every Target does, held against the one in memory and the real one with a real engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.node.local import LocalAgent
from agent.node.settings import Settings
from reconciler.console.value import PortRange
from reconciler.core.observation import Instance, Observation
from reconciler.core.plan import Action, Change
from reconciler.core.target import Result, Target, apply_plan
from reconciler.loop.desired import Desired, no_facts
from reconciler.models.scheme import FetchContext
from reconciler.runtimes import RUNTIMES
from reconciler.source.directory import DirectorySource
from reconciler.source.load import load
from tests.support.fleets import model, node, service, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.ports import own_row
from tests.support.targets import InMemoryTarget
from tests.support.wait import wait_for

Follow = Callable[[FetchContext], object]  # how models are fetched from now on
Opened = tuple[Target, Follow]
Open = Callable[[Path], contextlib.AbstractContextManager[Opened]]


@contextlib.contextmanager
def in_memory(_: Path) -> Iterator[Opened]:
    yield InMemoryTarget(), lambda _: None


@contextlib.contextmanager
def real(root: Path) -> Iterator[Opened]:
    with own_row() as row:
        settings = Settings(root / "state", service_ports=PortRange(row[0], row[-1]))
        agent = LocalAgent("mac", settings, changed=lambda: None)
        agent.start()
        try:
            yield agent.target, agent.waiting.follow
        finally:
            agent.close(stop_children=True)


TARGETS = [
    pytest.param(in_memory, id="in memory"),
    pytest.param(real, id="real", marks=pytest.mark.e2e),
]


class World:
    """A folder with a fleet, and a target that is made equal to it."""

    def __init__(self, root: Path, target: Target, follow: Follow) -> None:
        self.root = root / "fleet"
        self.target = target
        self._follow = follow
        self.root.mkdir()
        tiny_llama(self.root / "tiny.gguf")
        self.write({"node.yaml": node(), "model.yaml": model("tiny", source="tiny.gguf")})

    def write(self, files: dict[str, str]) -> None:
        write_fleet(self.root, files)

    def desired(self) -> Desired:
        checkout = DirectorySource(self.root).fetch()
        loaded = load(checkout, RUNTIMES)
        assert loaded.fleet is not None, loaded.problems
        self._follow(FetchContext(open_repository=checkout.open))
        return Desired.of(checkout, loaded, loaded.fleet, no_facts)

    def observe(self) -> Observation:
        return self.target.observe(self.desired().assignment.workloads)

    def changes(self) -> tuple[Change, ...]:
        return self.desired().plan(self.observe()).changes

    def converge(self) -> dict[str, Instance]:
        """Apply until nothing is left to do and everything is ready."""

        def settled() -> bool:
            now = self.observe()
            plan = self.desired().plan(now)
            outcomes = apply_plan(plan, self.target)
            assert all(o.result is not Result.FAILED for o in outcomes), outcomes
            return not plan.changes and all(i.ready for i in now.instances)

        wait_for(settled)
        return {i.ref.name: i for i in self.observe().instances}


@pytest.fixture(params=TARGETS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    opened: Open = request.param
    with opened(tmp_path) as (target, follow):
        yield World(tmp_path, target, follow)


def test_what_is_declared_runs_and_what_is_removed_goes(world: World) -> None:
    world.write({"a.yaml": service("a", "tiny"), "b.yaml": service("b", "tiny")})
    both = world.converge()
    (world.root / "a.yaml").unlink()

    left = world.converge()

    assert both.keys() == {"a", "b"}
    assert left.keys() == {"b"}
    assert left["b"].pid == both["b"].pid


def test_a_changed_setting_starts_a_new_process_and_no_other(world: World) -> None:
    world.write({"a.yaml": service("a", "tiny"), "b.yaml": service("b", "tiny")})
    before = world.converge()
    world.write({"a.yaml": service("a", "tiny", contextSize=512)})

    after = world.converge()

    assert after["a"].pid != before["a"].pid
    assert after["b"].pid == before["b"].pid


def test_a_lifecycle_change_keeps_the_process_and_is_remembered(world: World) -> None:
    world.write({"a.yaml": service("a", "tiny")})
    before = world.converge()
    world.write({"a.yaml": service("a", "tiny", rollout={"drainTimeout": "1s"})})

    planned = [change.action for change in world.changes()]
    after = world.converge()

    assert planned == [Action.UPDATE]
    assert after["a"].pid == before["a"].pid
    assert after["a"].inputs["lifecycle"]["rollout.drainTimeout"] == 1.0


def test_a_suspended_service_stops_and_comes_back(world: World) -> None:
    world.write({"a.yaml": service("a", "tiny")})
    world.converge()
    world.write({"a.yaml": service("a", "tiny", suspend=True)})
    suspended = world.converge()
    world.write({"a.yaml": service("a", "tiny")})

    resumed = world.converge()

    assert suspended == {}
    assert resumed.keys() == {"a"}


def test_what_may_not_be_applied_is_skipped(world: World) -> None:
    world.write({"a.yaml": service("a", "tiny")})
    (create,) = world.changes()

    for action in (Action.UNKNOWN, Action.DEFERRED):
        change = Change(action, create.target, create.ref, "NotReachable", None)
        assert world.target.apply(change).result is Result.SKIPPED

    assert world.observe().instances == ()
