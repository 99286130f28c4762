"""The loop, with real folders and a target in memory: what it follows, holds and survives."""

from __future__ import annotations

import gc
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.errors import SourceError, StateError
from reconciler.core.observation import Drift, DriftKind
from reconciler.loop import Gate, Loop, LoopTiming, Wake, poll_delay_s, steps_of
from reconciler.loop.desired import Desired, no_facts
from reconciler.loop.journal import SourceJournal
from reconciler.runtimes import RUNTIMES
from reconciler.source.directory import DirectorySource
from reconciler.source.history import HistoryFile
from reconciler.source.load import LoadCache, load
from tests.support.fleets import document, model, node, service, small_fleet, write_fleet
from tests.support.said import Converged, Said
from tests.support.targets import InMemoryTarget, NoJournal
from tests.support.wait import PATIENCE_S, wait_for


def make_loop(root: Path, target: InMemoryTarget, **options: Any) -> tuple[Loop, Said]:
    said, cache = Said(), LoadCache()
    loop = Loop(
        **{
            "source": DirectorySource(root),
            "read": lambda checkout, held: load(checkout, RUNTIMES, cache, held),
            "steps": steps_of(target),
            "journal": NoJournal(),
            "listeners": [said],
            "wake": Wake(),
            "timing": LoopTiming(),
        }
        | options
    )
    return loop, said


def one_pass(loop: Loop) -> None:
    loop.fetch()
    loop.sync()


def test_a_pass_makes_the_target_what_the_folder_says(tmp_path: Path) -> None:
    target = InMemoryTarget()
    loop, said = make_loop(write_fleet(tmp_path, small_fleet()), target)

    one_pass(loop)
    loop.sync()

    assert target.names() == {"chat"}
    assert [len(plan.changes) for plan in said.plans] == [1, 0]


def test_what_a_look_finds_out_of_the_machines_decides_the_same_revision_anew(
    tmp_path: Path,
) -> None:
    target = InMemoryTarget()
    followed: list[Desired] = []

    def elsewhere(desired: Desired) -> Desired:
        """The service is none of this machine's, as is known after the first observation."""
        if not desired.assignment.workloads:
            return desired
        kept = {r: o for r, o in desired.fleet.objects.items() if r.kind != "InferenceService"}
        fleet = replace(desired.fleet, objects=kept)
        return Desired.of(desired.checkout, desired.loaded, fleet, no_facts, desired)

    root = write_fleet(tmp_path, small_fleet())
    steps = replace(steps_of(target), agent_overlay=elsewhere, follow=followed.append)
    loop, said = make_loop(root, target, steps=steps)

    one_pass(loop)
    loop.sync()

    assert target.names() == set()
    assert [len(plan.changes) for plan in said.plans] == [0, 0]
    assert len(followed) == 2  # the revision, and what was heard of it


def test_an_invalid_revision_is_refused_whole_and_the_last_good_one_stays(tmp_path: Path) -> None:
    target = InMemoryTarget()
    loop, said = make_loop(write_fleet(tmp_path, small_fleet()), target)
    one_pass(loop)
    write_fleet(tmp_path, {"service.yaml": service() + "oops: [", "more.yaml": service("more")})

    one_pass(loop)

    assert target.names() == {"chat"}
    assert [(p.rule, p.path) for p in said.problems] == [("YamlSyntax", "service.yaml")]


def test_a_file_that_lost_its_header_is_an_error_and_no_removal(tmp_path: Path) -> None:
    root = write_fleet(tmp_path / "fleet", small_fleet())
    target, source = InMemoryTarget(), DirectorySource(root)
    journal = SourceJournal(HistoryFile(tmp_path / "history.json"), source)
    loop, said = make_loop(root, target, source=source, journal=journal)
    one_pass(loop)
    write_fleet(root, {"service.yaml": ""})

    one_pass(loop)

    assert target.names() == {"chat"}
    assert [(p.rule, p.path) for p in said.problems] == [("HeaderLost", "service.yaml")]


def test_a_deleted_file_is_a_removal(tmp_path: Path) -> None:
    root = write_fleet(tmp_path / "fleet", small_fleet())
    target, source = InMemoryTarget(), DirectorySource(root)
    journal = SourceJournal(HistoryFile(tmp_path / "history.json"), source)
    loop, _ = make_loop(root, target, source=source, journal=journal)
    one_pass(loop)
    (root / "service.yaml").unlink()

    one_pass(loop)

    assert target.names() == set()


def test_a_lost_source_changes_nothing_and_is_said_until_it_is_back(tmp_path: Path) -> None:
    root = write_fleet(tmp_path / "fleet", small_fleet())
    target = InMemoryTarget()
    loop, said = make_loop(root, target)
    one_pass(loop)
    root.rename(tmp_path / "away")

    one_pass(loop)
    (tmp_path / "away").rename(root)
    one_pass(loop)

    assert target.names() == {"chat"}
    assert len(said.lost) == 1
    assert said.back == 1


def test_a_change_that_fails_does_not_stop_the_others_and_is_tried_again(tmp_path: Path) -> None:
    files = small_fleet() | {"b.yaml": service("b"), "c.yaml": service("c")}
    target = InMemoryTarget()
    loop, said = make_loop(write_fleet(tmp_path, files), target)
    loop.fetch()
    assert loop.desired is not None
    target.fails = {w.ref for w in loop.desired.assignment.workloads if w.ref.name == "b"}

    loop.sync()
    after_one = target.names()
    loop.sync()

    assert after_one == {"chat", "c"}
    assert target.names() == {"chat", "b", "c"}
    assert [o.message for o in said.outcomes if o.message] == ["default/b: failed on cue"]


def test_a_second_service_leaves_the_first_ones_process_alone(tmp_path: Path) -> None:
    target = InMemoryTarget()
    loop, _ = make_loop(write_fleet(tmp_path, small_fleet()), target)
    one_pass(loop)
    before = target.pid("chat")
    write_fleet(tmp_path, {"more.yaml": service("more")})

    one_pass(loop)

    assert target.names() == {"chat", "more"}
    assert target.pid("chat") == before


def test_removals_wait_for_quiet_and_everything_else_does_not(tmp_path: Path) -> None:
    root = write_fleet(tmp_path, small_fleet())
    target = InMemoryTarget()
    loop, _ = make_loop(root, target, timing=LoopTiming(quiet_s=3600))
    one_pass(loop)
    (root / "service.yaml").unlink()
    write_fleet(root, {"new.yaml": service("new")})

    loop.fetch()
    again_s = loop.sync()

    assert target.names() == {"chat", "new"}
    assert 0 < again_s <= 3600


def test_several_saves_within_a_moment_are_one_change(tmp_path: Path) -> None:
    root = write_fleet(tmp_path, small_fleet())
    target = InMemoryTarget()
    loop, said = make_loop(root, target, timing=LoopTiming(settle_s=3600))
    one_pass(loop)  # the first is followed at once
    first = target.pid("chat")

    for size in (1024, 2048, 3072):
        write_fleet(root, {"service.yaml": service("chat", contextSize=size)})
        one_pass(loop)
        assert target.pid("chat") == first
    loop.revisions.timing = LoopTiming(settle_s=0)
    one_pass(loop)

    assert target.pid("chat") != first
    replaced = [c.fields[0].after for plan in said.plans for c in plan.changes if c.fields]
    assert replaced == [3072]


def test_a_busy_source_is_not_read(tmp_path: Path) -> None:
    target = InMemoryTarget()
    rebasing = Gate(busy_reason=lambda: "a rebase is going on")
    loop, said = make_loop(
        write_fleet(tmp_path, small_fleet()),
        target,
        steps=replace(steps_of(target), gate=rebasing),
        timing=LoopTiming(busy_s=0.01),
    )
    loop.wake.wait(0)  # a new one asks for a fetch by itself

    one_pass(loop)

    assert target.names() == set()
    assert said.plans == []
    assert loop.wake.wait(PATIENCE_S)  # the timer that looks again


def test_a_valid_revision_that_does_not_know_the_node_is_held(tmp_path: Path) -> None:
    target = InMemoryTarget()
    unknown = Gate(hold_reason=lambda *_: "no FleetNode: held")
    steps = replace(steps_of(target), gate=unknown)
    loop, said = make_loop(write_fleet(tmp_path, small_fleet()), target, steps=steps)

    one_pass(loop)

    assert target.names() == set()
    assert said.holds == ["no FleetNode: held"]


def test_a_revision_that_could_not_be_followed_is_followed_with_the_next_fetch(
    tmp_path: Path,
) -> None:
    full_disk, followed = iter([StateError("stopped.json: no space left on device")]), []

    def follow(desired: Desired) -> None:
        for error in full_disk:
            raise error
        followed.append(desired.fleet.revision)

    target = InMemoryTarget()
    root = write_fleet(tmp_path, small_fleet())
    loop, _ = make_loop(root, target, steps=replace(steps_of(target), follow=follow))
    with pytest.raises(StateError):
        loop.fetch()

    loop.fetch()
    loop.fetch()

    assert len(followed) == 1


def test_drift_that_is_only_reported_is_not_applied(tmp_path: Path) -> None:
    fleet = (
        "apiVersion: inference.llmkube.dev/v1alpha1\nkind: Fleet\nmetadata: {name: home}\n"
        "spec: {drift: report}\n"
    )
    target = InMemoryTarget()
    loop, said = make_loop(write_fleet(tmp_path, small_fleet() | {"fleet.yaml": fleet}), target)
    one_pass(loop)
    ref, running = next(iter(target.instances.items()))
    target.instances[ref] = replace(
        running, drifts=(Drift(DriftKind.RESTART, "another argv", 0.0),)
    )

    loop.sync()

    assert [c.reason for c in said.plans[-1].changes] == ["DriftReported"]
    assert target.pid("chat") == running.pid


def test_that_nothing_is_left_to_do_is_said_once_for_each_revision(tmp_path: Path) -> None:
    target = InMemoryTarget()
    converged = Converged()
    root = write_fleet(tmp_path, small_fleet())
    loop, _ = make_loop(root, target, listeners=[converged])

    said = []
    for files in ({}, {}, {}, {"more.yaml": service("more")}, {}, {}):
        write_fleet(root, files)
        one_pass(loop)
        said.append(len(converged.revisions))

    assert said == [0, 1, 1, 1, 2, 2]


def test_a_revision_that_is_followed_no_more_is_let_go_before_the_next_one_is_applied(
    tmp_path: Path,
) -> None:
    root = write_fleet(tmp_path, small_fleet())
    loop, _ = make_loop(root, InMemoryTarget(), listeners=[])
    one_pass(loop)
    loop.sync()
    assert loop.desired is not None
    first = ref(loop.desired.loaded)

    write_fleet(root, small_fleet() | {"later.yaml": service("later", "gemma")})
    loop.fetch()

    gc.collect()
    assert first() is None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(DriftKind.DEFERRED, 1), (DriftKind.COSMETIC, 1), (DriftKind.RESTART, 0)],
)
def test_what_is_only_shown_leaves_nothing_to_do(
    tmp_path: Path, kind: DriftKind, expected: int
) -> None:
    target = InMemoryTarget()
    converged = Converged()
    loop, _ = make_loop(write_fleet(tmp_path, small_fleet()), target, listeners=[converged])
    one_pass(loop)
    (ref,) = target.instances
    drifts = (Drift(kind, "an upgrade", 1000.0),)
    target.instances[ref] = replace(target.instances[ref], drifts=drifts)

    loop.sync()

    assert len(converged.revisions) == expected


def test_the_loop_survives_what_a_pass_raises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(DirectorySource):
        tries = 0

        def fetch(self) -> Any:
            self.tries += 1
            if self.tries == 1:
                raise ValueError("a bug")
            if self.tries == 2:
                raise SourceError("gone")
            return super().fetch()

    target, source = InMemoryTarget(), Broken(write_fleet(tmp_path, small_fleet()))
    loop, said = make_loop(tmp_path, target, source=source, timing=LoopTiming(poll_s=0.01))
    thread = threading.Thread(target=loop.run)

    thread.start()
    wait_for(lambda: target.names() == {"chat"})
    loop.wake.stop()
    thread.join(PATIENCE_S)

    assert not thread.is_alive()
    assert target.names() == {"chat"}
    assert any("a bug in this program" in text for text in said.holds)
    assert any(record.exc_info for record in caplog.records)  # who mends it needs the place


names = st.sets(st.sampled_from(["a", "b", "c"]))


@settings(max_examples=25, deadline=None)
@given(wanted=names, running=names, broken=names)
def test_from_any_failure_of_apply_the_next_passes_converge(
    wanted: set[str], running: set[str], broken: set[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _converges(Path(folder), wanted | {"stays"}, running | {"stays"}, broken)


def _converges(root: Path, wanted: set[str], running: set[str], broken: set[str]) -> None:
    files = {"node.yaml": node(), "model.yaml": model()}
    write_fleet(root, files | {f"{n}.yaml": service(n) for n in running})
    target = InMemoryTarget()
    loop, said = make_loop(root, target)
    one_pass(loop)
    for name in running - wanted:
        (root / f"{name}.yaml").unlink()
    write_fleet(root, {f"{n}.yaml": service(n, contextSize=1024) for n in wanted})

    loop.fetch()
    assert loop.desired is not None
    target.fails = {w.ref for w in loop.desired.assignment.workloads if w.ref.name in broken}
    for _ in range(3):
        loop.sync()

    assert target.names() == wanted
    assert said.plans[-1].changes == ()


def test_services_of_another_fleet_are_not_taken_for_removed_ones(tmp_path: Path) -> None:
    target, file = InMemoryTarget(), HistoryFile(tmp_path / "history.json")
    first = DirectorySource(write_fleet(tmp_path / "first", small_fleet()))
    loop, _ = make_loop(
        tmp_path / "first", target, source=first, journal=SourceJournal(file, first)
    )
    one_pass(loop)
    files = {"node.yaml": node(), "model.yaml": model(), "other.yaml": service("other")}
    second = DirectorySource(write_fleet(tmp_path / "second", files))

    loop, said = make_loop(
        tmp_path / "second", target, source=second, journal=SourceJournal(file, second)
    )
    one_pass(loop)
    one_pass(loop)
    running = target.names()
    loop.confirmed = frozenset(item.token or "" for item in said.plans[-1].blocked)
    loop.sync()

    assert running == {"chat", "other"}
    assert target.names() == {"other"}


def test_since_when_a_source_is_lost_outlives_our_restart(tmp_path: Path) -> None:
    file, source = HistoryFile(tmp_path / "history.json"), DirectorySource(tmp_path / "gone")
    since = SourceJournal(file, source).lost("no route")

    again = SourceJournal(file, source)

    assert again.record.unreachable_why == "no route"
    assert again.lost("the branch is gone") == since
    assert SourceJournal(file, source).record.unreachable_why == "the branch is gone"
    again.source_answered()
    assert again.record.unreachable_since is None
    assert SourceJournal(file, source).lost("") > since


def test_a_removal_that_waits_is_not_noted_as_done(tmp_path: Path) -> None:
    root = write_fleet(tmp_path / "fleet", small_fleet())
    source, file = DirectorySource(root), HistoryFile(tmp_path / "history.json")
    journal = SourceJournal(file, source)
    loop, _ = make_loop(
        root, InMemoryTarget(), source=source, journal=journal, timing=LoopTiming(quiet_s=0.0)
    )
    one_pass(loop)
    (root / "service.yaml").unlink()
    loop.revisions.timing = LoopTiming(quiet_s=3600)

    one_pass(loop)

    assert "service.yaml" in SourceJournal(file, source).held_paths()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"maxCount": 1}, {"maxCount": 100, "maxShare": 1}),
        ({"maxCount": 1}, None),  # the Fleet document goes with the services
        (None, {"maxCount": 100, "maxShare": 1}),
    ],
)
def test_the_commit_that_removes_raises_no_limits_for_its_own_removals(
    tmp_path: Path, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> None:
    names = [f"s{n}" for n in range(12)]
    own = {"node.yaml": node(), "model.yaml": model(), "kept.yaml": service("kept")}
    root = write_fleet(tmp_path / "fleet", own | {f"{n}.yaml": service(n) for n in names})
    target, source = InMemoryTarget(), DirectorySource(root)
    journal = SourceJournal(HistoryFile(tmp_path / "history.json"), source)
    loop, said = make_loop(root, target, source=source, journal=journal)
    _state(root, before)
    one_pass(loop)
    assert len(target.names()) == 13

    for name in names:
        (root / f"{name}.yaml").unlink()
    _state(root, after)
    one_pass(loop)
    one_pass(loop)

    (held,) = said.plans[-1].blocked
    assert (held.reason, len(target.names())) == ("NeedsConfirmation", 13)
    loop.confirmed = frozenset({held.token or ""})
    loop.sync()
    assert target.names() == {"kept"}


def test_limits_that_were_raised_before_count(tmp_path: Path) -> None:
    names = [f"s{n}" for n in range(12)]
    own = {"node.yaml": node(), "model.yaml": model(), "kept.yaml": service("kept")}
    root = write_fleet(tmp_path / "fleet", own | {f"{n}.yaml": service(n) for n in names})
    target, source = InMemoryTarget(), DirectorySource(root)
    journal = SourceJournal(HistoryFile(tmp_path / "history.json"), source)
    loop, _ = make_loop(root, target, source=source, journal=journal)
    _state(root, {"maxCount": 1})
    one_pass(loop)
    _state(root, {"maxCount": 100, "maxShare": 1})
    one_pass(loop)

    for name in names:
        (root / f"{name}.yaml").unlink()
    one_pass(loop)

    assert target.names() == {"kept"}


def _state(root: Path, prune: dict[str, Any] | None) -> None:
    """The Fleet document with these limits; None: there is none."""
    if prune is None:
        (root / "fleet.yaml").unlink(missing_ok=True)
    else:
        (root / "fleet.yaml").write_text(document("Fleet", "home", {"prune": prune}))


@given(st.floats(0.1, 3600.0), st.floats(0.0, 1.0, exclude_max=True), st.booleans())
def test_a_poll_comes_at_random_and_never_later_than_one_and_a_half_intervals(
    interval_s: float, share: float, is_first: bool
) -> None:
    delay_s = poll_delay_s(interval_s, share, is_first=is_first)

    assert 0.0 <= delay_s <= 1.5 * interval_s
    if is_first:
        assert delay_s <= interval_s


def test_machines_that_started_together_poll_apart_with_the_interval_as_their_mean() -> None:
    shares = [n / 100 for n in range(100)]

    first = [poll_delay_s(30.0, share, is_first=True) for share in shares]
    later = [poll_delay_s(30.0, share, is_first=False) for share in shares]

    assert max(first) - min(first) > 29.0
    assert abs(sum(later) / len(later) - 30.0) < 0.5


def test_a_fleet_that_comes_back_removes_nothing_of_the_one_that_came_between(
    tmp_path: Path,
) -> None:
    target, file = InMemoryTarget(), HistoryFile(tmp_path / "history.json")
    own = {"node.yaml": node(), "model.yaml": model()}
    first = write_fleet(tmp_path / "first", own | {"chat.yaml": service("chat")})
    second = write_fleet(tmp_path / "second", own | {"other.yaml": service("other")})

    def one_pass_of(folder: Path, *confirmed: str) -> str | None:
        source = DirectorySource(folder)
        loop, said = make_loop(folder, target, source=source, journal=SourceJournal(file, source))
        loop.confirmed = frozenset(confirmed)
        one_pass(loop)
        return next((item.token for item in said.plans[-1].blocked), None)

    one_pass_of(first)
    waits = one_pass_of(second)
    token = one_pass_of(first)
    both = target.names()
    one_pass_of(first, token or "")
    alone = one_pass_of(first)

    assert waits
    assert both == {"chat", "other"}
    assert target.names() == {"chat"}
    assert alone is None


def test_a_comparison_changes_nothing_and_says_what_the_look_after_it_applies(
    tmp_path: Path,
) -> None:
    root = write_fleet(tmp_path, small_fleet())
    target = InMemoryTarget()
    loop, said = make_loop(root, target)

    loop.fetch()
    compared = loop.compare()
    before = target.names()
    loop.sync()

    assert before == set()
    assert compared is not None
    assert compared.plan == said.plans[-1]
    assert target.names() == {"chat"}


def test_where_nothing_may_be_read_or_written_nothing_is(tmp_path: Path) -> None:
    full = threading.Event()

    def prepare() -> None:
        if full.is_set():
            raise StateError("the state directory is gone")

    full.set()
    target = InMemoryTarget()
    steps = replace(steps_of(target), prepare=prepare)
    loop, said = make_loop(write_fleet(tmp_path, small_fleet()), target, steps=steps)

    for step in (loop.fetch, loop.sync):
        with pytest.raises(StateError):
            step()
    held = loop.revisions.state().held
    full.clear()
    loop.fetch()
    full.set()
    with pytest.raises(StateError):
        loop.sync()
    full.clear()
    one_pass(loop)

    assert held == "the state directory is gone"
    assert len(said.plans) == 1
    assert target.names() == {"chat"}
    assert loop.revisions.state().held == ""


def test_before_anything_is_followed_a_look_changes_nothing_and_comes_again(
    tmp_path: Path,
) -> None:
    loop, said = make_loop(tmp_path, InMemoryTarget(), timing=LoopTiming(resync_s=7.0))

    assert loop.compare() is None
    assert loop.sync() == 7.0
    assert said.plans == []


def test_a_source_without_any_document_is_held(tmp_path: Path) -> None:
    loop, _ = make_loop(write_fleet(tmp_path, {"readme.yaml": "a: 1\n"}), InMemoryTarget())

    loop.fetch()

    assert loop.desired is None
    assert loop.verdict is not None
    assert f"{tmp_path} holds no fleet document" in loop.verdict.message
    assert "`reconcile init` writes a first fleet" in loop.verdict.message
