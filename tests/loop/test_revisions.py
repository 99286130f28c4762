"""Which revision is followed, and what is said while another one is not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.api.errors import SourceError, StateError
from reconciler.core.observation import Observation
from reconciler.fleet.fleet import Fleet
from reconciler.loop import Gate, Listener, Loop, LoopTiming, Wake, steps_of
from reconciler.loop.desired import Desired
from reconciler.loop.interfaces import Following, defect_of
from reconciler.loop.journal import SourceJournal
from reconciler.runtimes import RUNTIMES
from reconciler.source.checkout import Checkout, Historied
from reconciler.source.history import (
    HistoryFile,
    NotedRevision,
    RevisionVerdict,
    SourceRecord,
    VerdictKind,
)
from reconciler.source.load import Loaded, load
from reconciler.source.slice import slice_reader
from tests.support.fleets import MemoryCheckout, model, node, service, small_fleet
from tests.support.said import Said
from tests.support.targets import InMemoryTarget
from tests.support.wait import PATIENCE_S

ONE, TWO, THREE = (letter * 40 for letter in "123")


@dataclass
class Branch(Historied):
    """A branch that moves on, goes away and comes back; its older commits stay readable."""

    commits: dict[str, Mapping[str, str]] = field(default_factory=lambda: {ONE: small_fleet()})
    head: str = ONE
    lost: str = ""
    is_emptied: bool = False  # nothing of what was fetched before is left
    while_fetching: Callable[[], None] = lambda: None
    location: str = "https://git.test/fleet"
    ref: str = "main"
    root: str = ""

    def push(self, revision: str, files: Mapping[str, str]) -> None:
        self.commits[revision] = files
        self.head = revision

    def fetch(self) -> Checkout:
        self.while_fetching()
        if self.lost:
            raise SourceError(self.lost)
        return self.at(self.head)

    def at(self, revision: str) -> Checkout:
        if self.is_emptied:
            raise SourceError(f"{revision} is not here")
        checkout = MemoryCheckout(self.commits[revision])
        checkout.revision = checkout.commit = revision
        return checkout

    def knows(self, revision: str) -> bool:
        return revision in self.commits

    def keep(self, revision: str, holder: str) -> None:
        """Nothing is ever dropped."""

    def bring(self, revision: str) -> None:
        if self.lost:
            raise SourceError(self.lost)

    def is_ancestor(self, older: str, newer: str) -> bool:
        return older <= newer


class OnDisk(MemoryCheckout):
    """Its model files may change at any time: `now` has those that did."""

    now: Mapping[str, object] = {}

    def changes(self) -> Mapping[str, object]:
        return OnDisk.now


class Folder(Branch):
    def at(self, revision: str) -> Checkout:
        checkout = OnDisk(self.commits[revision])
        checkout.revision = checkout.commit = revision
        return checkout


class Machine:
    """A loop over a branch, which may be started again over the same record; and its clock."""

    def __init__(self, folder: Path, branch: Branch | None = None, **timing: float) -> None:
        self.branch, self.timing = branch or Branch(), LoopTiming(**timing)
        self.target, self.said = InMemoryTarget(), Said()
        self.file = HistoryFile(folder / "history.json")
        self.now = 1000.0
        self.defects: set[str] = set()  # revisions that end in an exception when they are read
        self.steps = steps_of(self.target)
        self.start()

    def start(self) -> None:
        self.journal = SourceJournal(self.file, self.branch)
        self.loop = Loop(
            source=self.branch,
            read=self._read,
            steps=self.steps,
            journal=self.journal,
            listeners=[self.said],
            wake=Wake(),
            timing=self.timing,
        )
        self.revisions = self.loop.revisions
        self.revisions.clock = lambda: self.now

    def _read(self, checkout: Checkout, held_paths: frozenset[str]) -> Loaded:
        if checkout.revision in self.defects:
            raise KeyError("planted")
        return load(checkout, RUNTIMES, None, held_paths)

    def one_pass(self) -> set[str]:
        self.loop.fetch()
        self.loop.sync()
        return self.target.names()

    @property
    def followed(self) -> str | None:
        return self.loop.desired and self.loop.desired.fleet.revision


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


MORE = small_fleet() | {"more.yaml": service("more")}
BROKEN = small_fleet() | {"more.yaml": service("more", contextSize="x")}


def test_a_source_that_was_lost_and_is_back_is_said_once_each_time(machine: Machine) -> None:
    machine.one_pass()
    for why in ("no route", "the branch is gone"):
        machine.branch.lost = why
        machine.one_pass()
        machine.one_pass()
        machine.branch.lost = ""
        machine.one_pass()
        machine.one_pass()

    assert machine.said.lost == ["no route"] * 2 + ["the branch is gone"] * 2
    assert machine.said.back == 2
    assert machine.revisions.state().lost == ""
    assert machine.target.names() == {"chat"}


def test_a_source_that_was_never_lost_is_not_said_to_be_back(machine: Machine) -> None:
    machine.one_pass()

    assert machine.said.back == 0


def test_what_came_while_the_source_was_lost_is_followed_when_it_is_back(machine: Machine) -> None:
    machine.one_pass()
    machine.branch.lost = "no route"
    machine.branch.push(TWO, MORE)
    machine.one_pass()

    during = machine.followed
    machine.branch.lost = ""
    names = machine.one_pass()

    assert (during, machine.followed) == (ONE, TWO)
    assert names == {"chat", "more"}


def test_a_fetch_is_known_to_go_on_for_as_long_as_it_does_and_no_longer(machine: Machine) -> None:
    seen: list[bool] = []
    machine.branch.while_fetching = lambda: seen.append(machine.revisions.fetching)

    seen.append(machine.revisions.fetching)
    machine.loop.fetch()
    seen.append(machine.revisions.fetching)
    machine.branch.lost = "no route"
    machine.loop.fetch()
    seen.append(machine.revisions.fetching)

    assert seen == [False, True, False, True, False]


def test_when_the_source_answered_last_is_known_and_with_what(machine: Machine) -> None:
    before = machine.revisions.fetched_at, machine.revisions.state().fetched
    machine.loop.fetch()
    answered = machine.revisions.fetched_at
    machine.branch.lost = "no route"
    machine.loop.fetch()

    assert before == (None, None)
    assert answered is not None
    assert machine.revisions.fetched_at == answered
    assert machine.revisions.state().fetched == ONE


@pytest.mark.parametrize("lost", [True, False])
def test_after_a_restart_the_last_good_revision_is_followed_where_no_newer_one_can_be(
    machine: Machine, lost: bool
) -> None:
    machine.one_pass()
    machine.branch.push(TWO, BROKEN)
    machine.branch.lost = "no route" if lost else ""
    machine.start()

    names = machine.one_pass()

    assert (machine.followed, names) == (ONE, {"chat"})
    assert machine.said.problems == [] if lost else machine.said.problems


def test_a_revision_that_is_followed_is_not_gone_back_from(machine: Machine) -> None:
    machine.one_pass()
    machine.branch.push(TWO, MORE)
    machine.loop.fetch()  # it is followed, and nothing of it is applied yet
    machine.branch.lost = "no route"

    machine.loop.fetch()

    assert machine.followed == TWO


@pytest.mark.parametrize("how", ["it is gone", "it is not valid any more", "there is none"])
def test_nothing_is_followed_where_there_is_no_last_good_revision(
    machine: Machine, how: str, tmp_path: Path
) -> None:
    machine.one_pass()
    machine.branch.lost = "no route"
    machine.branch.is_emptied = how == "it is gone"
    machine.branch.commits[ONE] = BROKEN if how == "it is not valid any more" else small_fleet()
    if how == "there is none":
        machine.file.path.unlink()
    machine.start()

    names = machine.one_pass()

    assert machine.followed is None
    assert names == {"chat"}  # what runs goes on
    assert len(machine.said.plans) == 1


def test_a_refused_revision_is_remembered_with_its_errors_until_it_is_mended(
    machine: Machine,
) -> None:
    machine.one_pass()
    machine.branch.push(TWO, BROKEN)
    machine.one_pass()
    refused = machine.revisions.state()
    machine.branch.push(THREE, MORE)
    names = machine.one_pass()

    assert (refused.applied, refused.refused, refused.fetched) == (ONE, TWO, TWO)
    assert refused.problems == tuple(map(str, machine.said.problems))
    assert refused.problems
    assert names == {"chat", "more"}
    assert machine.revisions.state().refused is None


def test_a_refused_revision_is_said_once_while_it_stays_the_newest(machine: Machine) -> None:
    machine.one_pass()
    machine.branch.push(TWO, BROKEN)

    machine.one_pass()
    said = len(machine.said.problems)
    machine.one_pass()

    assert said > 0
    assert len(machine.said.problems) == said


def test_why_the_newest_revision_is_not_followed_is_said_everywhere(machine: Machine) -> None:
    machine.branch.push(TWO, MORE)
    machine.one_pass()
    machine.branch.head = ONE  # somebody's mirror is behind
    machine.branch.commits[ONE] = small_fleet()
    machine.one_pass()
    held = machine.revisions.state().held
    noted = machine.file.peek().verdict
    machine.branch.push(THREE, MORE)
    machine.one_pass()

    assert "older than" in held
    assert machine.said.holds[-1] == held
    assert noted is not None
    assert (noted.revision, noted.message, noted.waits_for_a_person) == (ONE, held, True)
    assert machine.followed == THREE
    assert (machine.loop.verdict, machine.file.peek().verdict) == (None, None)


def test_an_empty_revision_is_held_and_needs_no_persons_word(machine: Machine) -> None:
    machine.one_pass()
    machine.branch.push(TWO, {"readme.yaml": "a: 1\n"})

    names = machine.one_pass()

    noted = machine.file.peek().verdict
    assert names == {"chat"}
    assert noted is not None
    assert "holds no fleet document" in noted.message
    assert not noted.waits_for_a_person
    assert machine.said.holds == [noted.message]


def test_a_rewritten_branch_is_followed_and_that_is_said(machine: Machine) -> None:
    machine.one_pass()
    machine.branch.push("0" * 40, MORE)
    machine.branch.is_ancestor = lambda *_: False  # type: ignore[method-assign]

    machine.one_pass()

    assert machine.followed == "0" * 40
    assert "rewritten" in machine.said.rewrites[-1]
    assert machine.revisions.rewritten == machine.said.rewrites[-1]
    assert machine.said.holds == []
    assert machine.loop.verdict is None


def test_after_each_fetch_it_is_known_what_is_followed_and_why_nothing_newer(
    machine: Machine,
) -> None:
    known = machine.said.fetches
    followed = []

    def look() -> Following:
        machine.one_pass()
        followed.append((known[-1].head, known[-1].followed))
        return known[-1]

    first = look()
    machine.branch.push(TWO, BROKEN)
    refused = look()
    machine.start()  # and again, from its record
    machine.branch.lost = "no route"
    restarted = look()
    machine.branch.lost = ""
    machine.branch.push(THREE, MORE)
    newer = look()
    machine.branch.head = ONE
    held = look()

    assert len(known) == 5
    assert followed == [(ONE, ONE), (TWO, ONE), (None, ONE), (THREE, THREE), (ONE, THREE)]
    assert (first.location, first.ref, first.failed) == ("https://git.test/fleet", "main", "")
    assert (first.verdict, newer.verdict) == (None, None)
    assert refused.verdict is not None
    assert (refused.verdict.kind, refused.verdict.revision) == (VerdictKind.REFUSED, TWO)
    assert restarted.verdict == refused.verdict
    assert held.verdict is not None
    assert (held.verdict.kind, held.verdict.revision, held.rewritten) == (VerdictKind.HELD, ONE, "")


def test_what_is_known_of_another_revision_than_the_newest_is_not_said_of_it() -> None:
    old = SourceRecord(verdict=RevisionVerdict(VerdictKind.HELD, ONE, 1.0, "older"))

    newest = Following("here", "main", head=ONE, followed=None, record=old)
    newer = Following("here", "main", head=TWO, followed=None, record=old)
    unread = Following("here", "main", head=None, followed=None, record=old)

    assert (newest.verdict, newer.verdict, unread.verdict) == (old.verdict, None, old.verdict)


def test_why_a_fetch_failed_is_known(machine: Machine) -> None:
    known = machine.said.fetches
    why = ["the state directory is gone"]

    def prepare() -> None:
        if why:
            raise StateError(why[0])

    machine.steps = replace(machine.steps, prepare=prepare)
    machine.start()
    with pytest.raises(StateError):
        machine.loop.fetch()
    why.clear()
    machine.loop.fetch()

    assert [each.failed for each in known] == ["the state directory is gone", ""]
    assert machine.revisions.failures == {}


@pytest.mark.parametrize(
    ("passed_s", "is_followed"), [(0.0, False), (9.9, False), (10.0, True), (11.0, True)]
)
def test_a_new_revision_is_followed_once_the_source_was_still_for_long_enough(
    tmp_path: Path, passed_s: float, is_followed: bool
) -> None:
    machine = Machine(tmp_path, settle_s=10.0)
    machine.one_pass()
    first = machine.followed
    machine.branch.push(TWO, MORE)
    machine.now += 5.0
    machine.one_pass()

    machine.now += passed_s
    machine.one_pass()

    assert first == ONE  # the first is followed at once
    assert (machine.followed == TWO) == is_followed


def test_a_model_file_that_changes_is_read_anew_once_it_is_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, Folder(), still_s=10.0)
    machine.one_pass()
    read = [machine.loop.desired]

    def look(passed_s: float, **files: object) -> bool:
        """Whether the same revision is read anew."""
        monkeypatch.setattr(OnDisk, "now", files)
        machine.now += passed_s
        machine.one_pass()
        read.append(machine.loop.desired)
        return read[-1] is not read[-2]

    unchanged = look(100.0)
    begun = look(100.0, model="half")
    soon = look(9.5, model="half")
    grown = look(5.0, model="whole")
    nearly = look(9.5, model="whole")
    still = look(0.5, model="whole")

    assert (unchanged, begun, soon, grown, nearly, still) == (*[False] * 5, True)


@pytest.mark.parametrize(
    ("remembers", "noted", "is_here", "goes_on_from"),
    [
        pytest.param(None, ONE, True, ONE, id="it remembers nothing"),
        pytest.param(ONE, TWO, True, TWO, id="another process went on"),
        pytest.param(ONE, ONE, True, ONE, id="it is what it remembers"),
        pytest.param(ONE, None, True, ONE, id="nothing is noted"),
        pytest.param(None, TWO, False, None, id="the commit cannot be had"),
    ],
)
def test_at_its_start_a_loop_goes_on_from_what_its_targets_say_was_followed_last(
    machine: Machine,
    remembers: str | None,
    noted: str | None,
    is_here: bool,
    goes_on_from: str | None,
) -> None:
    machine.branch.push(TWO, MORE)
    machine.branch.head = ONE
    if remembers:
        machine.one_pass()
    asked: list[str] = []

    def last() -> NotedRevision | None:
        asked.append("")
        here = "https://git.test/fleet"
        if noted is None:
            return None
        return NotedRevision("home", here, "main", noted, here, "", noted_at=5.0)

    machine.steps = replace(machine.steps, gate=Gate(noted=last))
    machine.branch.lost = "no route"
    machine.branch.is_emptied = not is_here
    machine.start()

    machine.loop.fetch()
    machine.loop.fetch()

    assert machine.followed == goes_on_from
    assert machine.revisions.state().applied == (noted or remembers)
    services = machine.journal.before.services
    assert services == {
        ONE: {"default/chat"}, TWO: {"default/chat", "default/more"}, None: frozenset(),
    }[goes_on_from]  # fmt: skip
    applied = machine.file.peek().applied
    assert applied is not None
    assert set(applied.services) == services, "which another fleet leaves alone"
    assert len(asked) == 1


def test_targets_that_do_not_say_what_was_followed_are_asked_again(machine: Machine) -> None:
    asked: list[str] = []

    def unknown() -> None:
        asked.append("")
        raise SourceError("the cluster does not answer")

    machine.steps = replace(machine.steps, gate=Gate(noted=unknown))
    machine.start()
    machine.branch.lost = "no route"

    machine.loop.fetch()
    machine.loop.fetch()

    assert len(asked) == 2
    assert machine.followed is None


def test_each_save_begins_the_wait_anew(tmp_path: Path) -> None:
    machine = Machine(tmp_path, settle_s=10.0)
    machine.one_pass()
    for revision in (TWO, THREE):
        machine.branch.push(revision, MORE)
        machine.now += 9.0
        machine.one_pass()

    assert machine.followed == ONE
    machine.now += 10.0
    machine.one_pass()
    assert machine.followed == THREE


def test_a_source_that_is_not_still_yet_is_looked_at_again_by_itself(tmp_path: Path) -> None:
    machine = Machine(tmp_path, settle_s=0.01)
    machine.one_pass()
    machine.loop.wake.wait(0)
    machine.branch.push(TWO, MORE)
    machine.loop.fetch()
    waits = machine.followed

    assert waits == ONE
    assert machine.loop.wake.wait(PATIENCE_S)


@pytest.mark.parametrize(("passed_s", "waits"), [(0.0, True), (59.5, True), (60.0, False)])
def test_removals_wait_until_the_source_has_not_moved_for_long_enough(
    tmp_path: Path, passed_s: float, waits: bool
) -> None:
    machine = Machine(tmp_path, quiet_s=60.0, resync_s=7.0)
    machine.one_pass()
    machine.now += 1000.0
    machine.branch.push(TWO, {"node.yaml": node(), "model.yaml": model()})
    machine.loop.fetch()
    machine.now += passed_s

    again_s = machine.loop.sync()

    assert machine.target.names() == ({"chat"} if waits else set())
    assert again_s == (60.0 - passed_s if waits else 7.0)
    assert machine.revisions.state().applied == (ONE if waits else TWO)


def test_while_nothing_is_to_be_removed_a_source_that_moved_is_applied_and_noted(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path, quiet_s=60.0, resync_s=7.0)

    machine.loop.fetch()
    again_s = machine.loop.sync()

    assert again_s == 7.0
    assert machine.revisions.state().applied == ONE


def test_a_busy_source_is_not_asked_and_holds_removals_back(tmp_path: Path) -> None:
    machine, busy = Machine(tmp_path, quiet_s=60.0), [""]
    machine.steps = replace(machine.steps, gate=Gate(busy_reason=lambda: busy[0] or None))
    machine.start()
    machine.one_pass()
    machine.branch.push(TWO, {"node.yaml": node(), "model.yaml": model()})
    machine.loop.fetch()
    machine.now += 59.0
    busy[0] = "a rebase is going on"
    machine.branch.lost = "it must not be asked"

    machine.loop.fetch()
    machine.now += 2.0
    machine.loop.sync()

    assert machine.said.lost == []
    assert machine.said.holds == ["a rebase is going on: the plan waits until that is over"]
    assert machine.target.names() == {"chat"}


def test_problems_that_refuse_nothing_here_are_said_once_and_not_all_of_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fleet(count: int) -> dict[str, str]:
        far = {f"s{n:02}.yaml": _far(f"s{n:02}", zzz=1) for n in range(count)}
        return {"mac.yaml": node(), "pc.yaml": node("pc"), "model.yaml": model(), **far}

    machine = Machine(tmp_path, Branch({ONE: fleet(20)}))
    journal = machine.journal
    machine.revisions.read = slice_reader("mac", lambda: journal.last)
    caplog.set_level(logging.WARNING)
    machine.one_pass()
    twenty = [record.getMessage() for record in caplog.records]
    machine.branch.push(TWO, fleet(20))
    machine.one_pass()
    again = len(caplog.records)
    machine.branch.push(THREE, fleet(43))
    machine.one_pass()
    more = [record.getMessage() for record in caplog.records[again:]]

    assert len(twenty) == again == 20
    assert all("zzz" in line for line in twenty)
    assert len(more) == 21
    assert more[-1] == "and 3 problems more that refuse nothing here"


def _far(name: str, **spec: object) -> str:
    return service(name, placement={"nodes": ["pc"]}, **spec)


def test_what_the_disk_does_not_take_is_said_until_it_does(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    machine = Machine(folder)
    folder.write_text("a file where the folder should be")

    machine.loop.fetch()
    machine.loop.sync()
    unnoted = machine.revisions.state().held
    machine.branch.push(TWO, BROKEN)
    with pytest.raises(StateError):
        machine.loop.fetch()
    unwritten = machine.revisions.state().held
    folder.unlink()
    machine.one_pass()
    machine.branch.push(THREE, small_fleet())
    machine.one_pass()

    assert machine.target.names() == {"chat"}  # it is applied all the same
    assert "cannot be written" in unnoted
    assert unnoted in machine.said.holds
    assert "cannot be written" in unwritten
    assert machine.revisions.state().held == ""


REFUSALS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "syntax": ({"service.yaml": "# inference.llmkube.dev/\nspec: [\n"}, "not valid YAML"),
    "header": ({"service.yaml": "a: 1\n"}, "contained documents of the fleet"),
    "schema": ({"service.yaml": service(contextSize="x")}, "spec.contextSize"),
    "reference": ({"service.yaml": service(model="gone")}, "gone"),
    "empty": (dict.fromkeys(small_fleet(), ""), "contained documents of the fleet"),
    "nothing": ({}, "holds no fleet document"),
    "older": ({}, "older than"),
    "defect": ({}, "InternalError: a bug in this program: KeyError"),
}


@pytest.mark.parametrize("keeps_record", [True, False], ids=["same record", "record lost"])
@pytest.mark.parametrize("name", REFUSALS)
def test_two_programs_over_a_whole_fleet_have_one_verdict_on_a_revision(
    machine: Machine, name: str, keeps_record: bool
) -> None:
    """Without its record, a program goes on from the commit that is noted in a cluster."""
    edit, why = REFUSALS[name]
    machine.one_pass()
    machine.branch.push(TWO, small_fleet())
    machine.one_pass()
    last = machine.file.peek().applied
    assert last is not None
    place = (last.location, last.ref, last.revision, last.fleet, last.root)
    noted = NotedRevision("home", *place)
    machine.steps = replace(machine.steps, gate=Gate(noted=lambda: noted))
    if name == "older":
        machine.branch.head = ONE
    else:
        machine.branch.push(THREE, {} if name == "nothing" else small_fleet() | edit)
        machine.defects = {THREE} if name == "defect" else set()

    verdicts = []
    for _ in range(3):
        machine.start()
        names = machine.one_pass()
        verdicts.append(machine.file.peek().verdict)
        assert (names, machine.followed) == ({"chat"}, TWO)
        if not keeps_record:
            machine.file.path.unlink()

    first, *others = verdicts
    assert first is not None
    assert why in first.reason
    for other in others:
        assert other is not None
        assert other == replace(first, since=other.since)


def test_an_exception_while_a_revision_is_read_holds_it_until_another_can_be_read(
    machine: Machine,
) -> None:
    machine.one_pass()
    machine.branch.push(TWO, MORE)
    machine.defects = {TWO}
    machine.one_pass()
    during = machine.revisions.state()
    machine.start()  # and again, as it starts
    machine.one_pass()
    restarted = machine.revisions.state()
    machine.branch.push(THREE, MORE)

    names = machine.one_pass()

    assert "KeyError: 'planted'" in during.held
    assert restarted == during
    assert (during.applied, during.fetched, names) == (ONE, TWO, {"chat", "more"})
    assert machine.revisions.state().held == ""


def test_where_not_even_the_last_revision_can_be_read_what_runs_goes_on(machine: Machine) -> None:
    machine.one_pass()
    machine.defects = {ONE}
    machine.start()

    names = machine.one_pass()

    assert (machine.followed, names) == (None, {"chat"})
    assert "InternalError" in machine.revisions.state().held


@pytest.mark.parametrize(
    ("error", "is_defect"),
    [(KeyError("planted"), True), (StateError("the disk is full"), False)],
)
def test_an_error_of_a_pass_is_reported_until_a_pass_succeeds(
    machine: Machine, error: Exception, is_defect: bool
) -> None:
    seen: list[tuple[str, str]] = []
    wrong = [error]

    def observe(desired: Desired) -> Observation:
        if wrong:
            raise wrong[0]
        return steps_of(machine.target).observe(desired)

    class Look(Listener):
        def on_ended(self, seconds: float) -> None:
            revisions = machine.revisions
            held = revisions.state().held
            seen.append((held, defect_of(revisions.verdict, revisions.failures)))
            if len(seen) == 2:
                wrong.clear()
            if len(seen) == 3:
                machine.loop.wake.stop()
            machine.loop.wake.pass_now()

    machine.steps = replace(machine.steps, observe=observe)
    machine.start()
    machine.loop.listeners.add(Look())
    machine.loop.run()

    first, second, third = seen
    assert first == second
    assert str(error) in first[0]
    assert first[1] == (first[0] if is_defect else "")
    assert third == ("", "")
    assert machine.target.names() == {"chat"}


def test_a_gate_may_hold_a_valid_revision_by_what_was_applied_before(
    machine: Machine,
) -> None:
    def hold_reason(fleet: Fleet, before: object) -> str | None:
        return f"not after {before}" if fleet.revision == TWO else None

    machine.steps = replace(machine.steps, gate=Gate(hold_reason=hold_reason))
    machine.start()
    machine.one_pass()
    machine.branch.push(TWO, MORE)

    names = machine.one_pass()

    assert names == {"chat"}
    assert machine.loop.verdict is not None
    assert ONE in machine.loop.verdict.message
    assert machine.said.holds == [machine.loop.verdict.message]
