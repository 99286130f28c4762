"""What a journal remembers of what was applied, held and refused, and what it makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.errors import SourceError, StateError
from reconciler.api.meta import ObjectRef
from reconciler.core.prune import Before
from reconciler.loop.accepted import accepted, let_in
from reconciler.loop.desired import Desired, no_facts
from reconciler.loop.journal import SourceJournal, applied_location, in_force
from reconciler.runtimes import RUNTIMES
from reconciler.source.checkout import Checkout, Historied
from reconciler.source.history import (
    Applied,
    HistoryFile,
    RevisionVerdict,
    SourceRecord,
    VerdictKind,
)
from reconciler.source.load import load
from reconciler.source.verdict import Course
from tests.support.builders import ref
from tests.support.fleets import (
    MemoryCheckout,
    document,
    load_texts,
    model,
    node,
    service,
    small_fleet,
)

A, B, C, D = (letter * 40 for letter in "abcd")
HERE, THERE = "https://git.test/fleet", "https://git.test/other"


@dataclass
class Files:
    """A folder: it has no commits."""

    location: str = "/srv/fleet"

    def fetch(self) -> Checkout:
        raise SourceError("nothing is fetched here")


@dataclass
class Commits(Files, Historied):
    """A branch whose commits build on each other; of others nothing is known."""

    location: str = HERE
    ref: str = "main"
    root: str = ""
    known: tuple[str, ...] = (A, B, C)
    remote: tuple[str, ...] = ()
    broken: bool = False
    kept: list[tuple[str, str]] = field(default_factory=list)

    def knows(self, revision: str) -> bool:
        if self.broken:
            raise SourceError("its objects cannot be read")
        return revision in self.known

    def at(self, revision: str) -> Checkout:
        if revision not in self.known:
            raise SourceError(f"{revision} is not here")
        return checkout_of(revision)

    def bring(self, revision: str) -> None:
        if revision not in self.remote:
            raise SourceError("the remote does not have it")
        self.known = (*self.known, revision)

    def keep(self, revision: str, holder: str) -> None:
        self.kept.append((revision, holder))

    def is_ancestor(self, older: str, newer: str) -> bool:
        both = older in self.known and newer in self.known
        return both and self.known.index(older) <= self.known.index(newer)


def checkout_of(
    revision: str, files: Mapping[str, str] | None = None, commit: str | None = None
) -> MemoryCheckout:
    made = MemoryCheckout(small_fleet() if files is None else files)
    made.revision, made.commit = revision, commit
    return made


def desired_of(revision: str, files: Mapping[str, str] | None = None) -> Desired:
    checkout = checkout_of(revision, files)
    loaded = load(checkout, RUNTIMES)
    assert loaded.fleet is not None, loaded.problems
    return Desired.of(checkout, loaded, loaded.fleet, no_facts)


def applied(revision: str = B, **known: Any) -> Applied:
    return replace(Applied(HERE, "main", revision, fleet=HERE, services=("default/chat",)), **known)


class Book:
    """A journal, and the file that it is kept in."""

    def __init__(self, folder: Path) -> None:
        self.file = HistoryFile(folder / "history.json")

    def write(self, **record: Any) -> Book:
        self.file.write(SourceRecord(**record))
        return self

    def open(self, source: Files | None = None, *, strict: bool = False) -> SourceJournal:
        return SourceJournal(self.file, source or Commits(), strict=strict)

    @property
    def record(self) -> SourceRecord:
        return self.file.peek()


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


REFUSED = RevisionVerdict(VerdictKind.REFUSED, C, 5.0, problems=("chat.yaml:1: no such field",))
HELD = RevisionVerdict(VerdictKind.HELD, C, 5.0, "it is older", waits_for_a_person=True)
FAILED = RevisionVerdict(VerdictKind.FAILED, C, 5.0, "InternalError: KeyError")


@pytest.mark.parametrize(
    ("revision", "commit", "course", "take"),
    [
        (C, C, Course.NEWER, True),
        (B, B, Course.SAME, True),
        (A, A, Course.OLDER, False),
        (D, D, Course.DIVERGED, True),
        (f"{A}+dirty.01234567", A, Course.OLDER, False),  # what was edited counts
        (f"{C}+dirty.01234567", C, Course.NEWER, True),
    ],
)
def test_a_head_may_follow_what_is_applied_where_it_builds_on_it(
    book: Book, revision: str, commit: str, course: Course, take: bool
) -> None:
    journal = book.write(applied=applied()).open()

    verdict = journal.accept(checkout_of(revision, commit=commit))

    assert (verdict.course, verdict.take) == (course, take)


def test_any_state_of_a_folder_may_follow_any_other(book: Book) -> None:
    files = Files()
    last = applied("dir:01234567", location=files.location, ref="files", fleet=files.location)

    verdict = book.write(applied=last).open(files).accept(checkout_of("dir:89abcdef"))

    assert (verdict.course, verdict.take) == (Course.NEWER, True)


def test_the_head_that_a_person_let_in_is_followed_once(book: Book) -> None:
    book.write(applied=applied())
    let_in(book.file.path, A)
    journal = book.open(strict=True)

    journal.applied(desired_of(C))
    kept = accepted(book.file.path)
    taken = journal.accept(checkout_of(A)).take
    journal.applied(desired_of(A))

    assert (kept, taken) == (A, True)
    assert accepted(book.file.path) is None
    assert book.record.applied is not None
    assert book.record.applied.revision == A


def test_a_note_that_cannot_be_written_is_said_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"no/accepted: cannot be written"):
        let_in(tmp_path / "no" / "history.json", A)


def test_an_empty_note_lets_nothing_in(book: Book) -> None:
    book.file.path.with_name("accepted").write_text(" \n")

    assert accepted(book.file.path) is None


@pytest.mark.parametrize("verdict", [REFUSED, HELD, FAILED], ids=lambda verdict: verdict.kind)
def test_a_verdict_is_stored_once_with_its_first_time_until_another_revision_is_judged(
    book: Book, verdict: RevisionVerdict
) -> None:
    journal = book.write(applied=applied()).open()
    journal.judged(None)
    journal.judged(verdict)
    written = book.file.path.stat().st_ino
    journal.judged(replace(verdict, since=9.0))
    again = book.file.path.stat().st_ino
    stored = book.open().record.verdict
    journal.judged(replace(verdict, since=9.0, message="for another reason"))
    reason = book.record.verdict
    journal.judged(replace(verdict, since=9.0, revision=D))
    other = book.record.verdict
    journal.judged(None)

    assert (stored, written) == (verdict, again)
    assert reason == replace(verdict, message="for another reason" * (verdict is not REFUSED))
    assert other == replace(verdict, since=9.0, revision=D)
    assert book.record == SourceRecord(applied=applied())


@pytest.mark.parametrize(
    ("last", "source", "is_the_last"),
    [
        pytest.param(applied(), Commits(), True, id="of this branch"),
        pytest.param(applied(ref="next"), Commits(), False, id="of another branch"),
        pytest.param(applied(ref="files"), Commits(), True, id="of files that were here"),
        pytest.param(
            applied(ref="next", location=THERE, fleet=THERE), Commits(), True, id="of a clone of it"
        ),
        pytest.param(
            applied(D, location=THERE, fleet=THERE), Commits(), False, id="of another repository"
        ),
        pytest.param(
            applied(location=THERE, fleet=THERE), Commits(broken=True), False, id="nobody can tell"
        ),
        pytest.param(
            applied(location=THERE, fleet=THERE, root="b"), Commits(), False, id="another folder"
        ),
        pytest.param(
            applied(location=THERE, fleet=THERE, root="b"), Commits(root="b"), True, id="the same"
        ),
        pytest.param(
            applied("dir:01234567", location=THERE, fleet=THERE),
            Commits(known=("dir:01234567",)),
            False,
            id="files of another place",
        ),
        pytest.param(applied(fleet=""), Commits(), True, id="as 0.1 wrote it"),
    ],
)
def test_what_was_applied_is_followed_by_what_is_a_revision_of_the_same_fleet(
    book: Book, last: Applied, source: Commits, is_the_last: bool
) -> None:
    journal = book.write(applied=last).open(source)

    assert (journal.last == last) == is_the_last
    assert journal.before.revision == (last.revision if is_the_last else None)


def test_a_fleet_is_known_by_whatever_branch_of_it_was_applied(book: Book) -> None:
    branch = book.write(applied=applied(ref="next")).open().knows_this_fleet
    other = book.write(applied=applied(D, fleet=THERE)).open().knows_this_fleet
    empty = book.write().open().knows_this_fleet

    assert (branch, other, empty) == (True, False, False)


def test_a_commit_that_is_fetched_later_makes_its_fleet_known(book: Book) -> None:
    source = Commits(known=())
    journal = book.write(applied=applied(location=THERE, fleet=THERE)).open(source)

    before = journal.knows_this_fleet
    source.known = (A, B)
    after = journal.knows_this_fleet
    source.known = ()

    assert (before, after, journal.knows_this_fleet) == (False, True, True)


OTHERS = {THERE: ("default/b", "default/c"), HERE: ("default/own",)}


@pytest.mark.parametrize(
    ("record", "foreign"),
    [
        pytest.param({}, {}, id="nothing was applied"),
        pytest.param({"applied": applied()}, {}, id="our own"),
        pytest.param(
            {"applied": applied(D, location=THERE, fleet=THERE)},
            {"default/chat": THERE},
            id="another repository's",
        ),
        pytest.param(
            {"applied": applied(D, location=THERE, fleet="")},
            {"default/chat": THERE},
            id="another one's, as 0.1 wrote it",
        ),
        pytest.param(
            {"applied": applied(), "others": OTHERS},
            {"default/b": THERE, "default/c": THERE},
            id="those that stayed beside ours",
        ),
        pytest.param(
            {"applied": applied(D, location="x", fleet="x"), "others": OTHERS},
            {"default/chat": "x", "default/b": THERE, "default/c": THERE},
            id="of two others",
        ),
    ],
)
def test_what_another_fleet_started_is_known_with_where_it_is(
    book: Book, record: dict[str, Any], foreign: dict[str, str]
) -> None:
    journal = book.write(**record).open()

    assert journal.foreign == foreign
    assert journal.before.foreign == foreign


def test_while_another_fleets_services_stay_ours_are_noted_beside_them(book: Book) -> None:
    theirs = applied(D, location=THERE, fleet=THERE, services=("default/old",))
    journal = book.write(applied=theirs).open()
    files = {**small_fleet(), "old.yaml": service("old"), "b.yaml": service("b")}

    journal.begins(desired_of(B, files))
    written = book.file.path.stat().st_ino
    journal.begins(desired_of(B, files))
    rewritten = book.file.path.stat().st_ino
    noted = book.record.others
    journal.applied(desired_of(B, files))
    alone = book.open()
    alone.begins(desired_of(C, files))

    assert noted == {HERE: ("default/b", "default/chat")}  # `old` is the other one's
    assert written == rewritten
    assert alone.foreign == {}
    assert book.record.others == {}


def test_where_no_other_fleet_was_nothing_is_noted_before_a_revision_is_applied(book: Book) -> None:
    book.open().begins(desired_of(B))
    first = book.file.path.exists()
    book.write(applied=applied(), others=OTHERS).open().begins(desired_of(B))

    assert not first
    assert book.record.others == OTHERS


LIMITS = {"prune": {"maxCount": 2, "maxShare": 0.5}}
STATED = {"kind": "Fleet", "spec": LIMITS}


@pytest.mark.parametrize(
    ("documents", "limits"),
    [
        ((STATED,), (2, 0.5)),
        (({"kind": "FleetNode", "spec": LIMITS}, STATED), (2, 0.5)),
        (({"kind": "FleetNode", "spec": LIMITS},), (10, 0.3)),
        (({"kind": "Fleet", "spec": {}},), (10, 0.3)),
        (({"kind": "Fleet", "spec": {"prune": {"maxCount": "many"}}},), (10, 0.3)),
        (({"kind": "Fleet", "spec": None},), (10, 0.3)),
        ((), (10, 0.3)),
    ],
)
def test_the_limits_of_what_was_applied_are_its_fleets_or_the_usual_ones(
    book: Book, documents: tuple[dict[str, Any], ...], limits: tuple[int, float]
) -> None:
    journal = book.write(applied=applied(documents=documents)).open()

    assert journal.before.limits == limits


def test_what_was_applied_is_known_by_what_it_declared_or_of_an_old_record_by_what_it_ran(
    book: Book,
) -> None:
    files = {"a.yaml": (ref("chat"), ref("b")), "m.yaml": (ObjectRef("Model", "default", "m"),)}
    nodes = ({"kind": "FleetNode", "metadata": {"name": "mac"}}, STATED)

    new = book.write(applied=applied(objects=files, documents=nodes)).open().before
    old = book.write(applied=applied()).open().before

    assert (new.services, new.nodes) == ({"default/chat", "default/b"}, {"mac"})
    assert (old.services, old.nodes) == ({"default/chat"}, frozenset())
    assert book.write().open().before == Before()


def test_a_revision_is_remembered_with_all_that_the_next_one_is_compared_with(book: Book) -> None:
    source = Commits(root="prod")
    files = {**small_fleet(), "f.yaml": document("Fleet", "home", LIMITS)}

    book.open(source).applied(desired_of(B, files))

    last = book.record.applied
    assert last is not None
    assert (last.location, last.ref, last.revision) == (HERE, "main", B)
    assert (last.fleet, last.root) == (HERE, "prod")
    assert last.files == ("f.yaml", "model.yaml", "node.yaml", "service.yaml")
    assert last.services == ("default/chat",)
    assert {ref for refs in last.objects.values() for ref in refs} >= {ref("chat")}
    assert last.documents == (
        {
            "apiVersion": "inference.llmkube.dev/v1alpha1",
            "kind": "Fleet",
            "metadata": {"name": "home"},
            "spec": LIMITS,
        },
        {
            "apiVersion": "inference.llmkube.dev/v1alpha1",
            "kind": "FleetNode",
            "metadata": {"name": "mac"},
            "spec": {"agent": {}},
        },
    )
    assert source.kept == [(B, str(book.file.path))]  # the mirror may not drop it
    assert book.open(source).held_paths() == set(last.files)


def test_a_folder_is_remembered_too_and_has_no_commit_to_come_back_to(book: Book) -> None:
    book.open(Files()).applied(desired_of("dir:01234567"))

    journal = book.open(Files())

    assert journal.last is not None
    assert (journal.last.ref, journal.last.root) == ("files", "")
    assert journal.last_good() is None
    assert journal.held_paths() == {"model.yaml", "node.yaml", "service.yaml"}


def test_a_revision_is_noted_once_and_again_for_what_runs_only_now(book: Book) -> None:
    journal = book.open()
    journal.applied(desired_of(B))
    first = book.file.path.stat().st_ino
    journal.applied(desired_of(B))
    again = book.file.path.stat().st_ino
    journal.applied(desired_of(B, {**small_fleet(), "b.yaml": service("b")}))
    more = book.record.applied
    journal.applied(desired_of(B, {"node.yaml": node(), "model.yaml": model()}))

    assert first == again
    assert more is not None
    assert more.services == ("default/chat", "default/b")
    assert book.record.applied == more  # what runs, and is blocked by now, stays


@pytest.mark.parametrize("revision", [B, C], ids=["in part", "newer"])
def test_a_verdict_stays_when_what_may_be_is_applied(book: Book, revision: str) -> None:
    verdict = replace(REFUSED, revision=revision)
    lost = {"unreachable_since": 7.0, "unreachable_why": "no route"}
    journal = book.write(verdict=verdict, **lost).open()

    journal.applied(desired_of(B))
    journal.applied(desired_of(B))

    now = book.record
    assert (now.verdict, now.unreachable_since, now.unreachable_why) == (verdict, 7.0, "no route")
    assert now.applied is not None


@pytest.mark.parametrize(
    ("source", "last", "revision"),
    [
        (Commits(), applied(), B),
        (Commits(), applied(f"{B}+dirty.01234567"), None),
        (Commits(), None, None),
        (Files(), applied(location="/srv/fleet", fleet="/srv/fleet"), None),
    ],
)
def test_the_last_good_revision_is_had_again_where_it_is_a_commit(
    book: Book, source: Files, last: Applied | None, revision: str | None
) -> None:
    checkout = book.write(applied=last).open(source).last_good()

    assert (checkout and checkout.revision) == revision


def test_a_source_that_is_found_is_written_only_where_it_was_lost(book: Book) -> None:
    journal = book.open()

    journal.source_answered()

    assert not book.file.path.exists()


def test_a_record_is_written_again_where_it_went(book: Book) -> None:
    journal = book.write(applied=applied()).open()
    book.file.path.unlink()

    journal.save()

    assert book.record.applied == applied()


def test_where_the_last_revision_came_from_is_read_without_changing_anything(book: Book) -> None:
    assert applied_location(book.file.path) is None
    book.write(applied=applied())
    assert applied_location(book.file.path) == HERE
    book.file.path.write_text("{")
    assert applied_location(book.file.path) is None
    assert book.file.path.read_text() == "{"


def test_what_stands_in_for_a_broken_document_is_what_was_valid() -> None:
    loaded = load_texts(node(), document("Fleet", "home", {"zzz": 1}), node("pc", zzz=1))

    found = in_force(loaded)

    assert loaded.fleet is None
    assert [(d["kind"], d["metadata"]["name"]) for d in found] == [("FleetNode", "mac")]
