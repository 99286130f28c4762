"""Which head may follow what was applied, and what is remembered across restarts."""

from __future__ import annotations

import os
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.errors import StateError
from reconciler.api.meta import ObjectRef
from reconciler.source.git import GitSource
from reconciler.source.history import (
    Applied,
    HistoryFile,
    PeekedHistory,
    RevisionVerdict,
    SourceRecord,
    VerdictKind,
)
from reconciler.source.verdict import Acceptance, Course, HeadVerdict, judge
from tests.support.repos import Repo, run_git

A, B, C = "a" * 40, "b" * 40, "c" * 40
_TEXTS = st.text(min_size=1, max_size=20)


def applied(revision: str, *, location: str = "repo", ref: str = "main") -> Applied:
    return Applied(location=location, ref=ref, revision=revision)


def verdict(last: Applied | None, head: str, *history: tuple[str, str]) -> HeadVerdict:
    return judge(last, head, lambda *pair: pair in history, location="repo", ref="main")


@pytest.mark.parametrize(
    ("last", "head", "history", "course", "take"),
    [
        (None, A, [], Course.FIRST, True),
        (applied(A), A, [], Course.SAME, True),
        (applied(A), B, [(A, B)], Course.NEWER, True),
        (applied(B), A, [(A, B)], Course.OLDER, False),
        (applied(A), C, [], Course.DIVERGED, True),
        (applied(B, ref=A), A, [(A, B)], Course.FIRST, True),
        (applied(B, location="other"), A, [(A, B)], Course.FIRST, True),
        (applied("dir:12345678"), "dir:87654321", [], Course.NEWER, True),
        (applied(A), f"{A}+dirty.12345678", [], Course.NEWER, True),
    ],
)
def test_a_head_is_taken_unless_it_is_older(
    last: Applied | None, head: str, history: list[tuple[str, str]], course: Course, take: bool
) -> None:
    found = verdict(last, head, *history)

    assert (found.course, found.take) == (course, take)
    assert bool(found.message) == (course in (Course.OLDER, Course.DIVERGED))


@pytest.mark.parametrize(
    ("head", "history", "accepted", "take"),
    [
        (A, [], None, True),
        (B, [(A, B)], None, True),
        (C, [], None, False),
        (C, [], C, True),
        (C, [], B, False),
    ],
)
def test_under_strict_history_a_rewritten_branch_waits_until_that_head_is_accepted(
    head: str, history: list[tuple[str, str]], accepted: str | None, take: bool
) -> None:
    found = judge(
        applied(A),
        head,
        lambda *pair: pair in history,
        location="repo",
        ref="main",
        strict=True,
        acceptance=Acceptance(accepts=lambda head: head == accepted),
    )

    assert found.take is take
    assert take or f"`fleet-agent accept {head[:12]}`" in found.message


def test_an_older_head_is_followed_once_it_is_accepted() -> None:
    def found(**acceptance: Any) -> HeadVerdict:
        older = lambda *pair: pair == (A, B)  # noqa: E731
        given = Acceptance(**acceptance)
        return judge(applied(B), A, older, location="repo", ref="main", acceptance=given)

    taken, held = found(accepts=lambda head: head == A), found(command="let {head} in")

    assert (taken.course, taken.take) == (Course.OLDER, True)
    assert held.message.endswith(f", or accept it: let {A[:12]} in")
    assert found(command="").message.endswith(f"run with --ref {A[:12]}")


def test_a_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "applied.json"
    path.write_text(
        '{"format": 1, "refused": null, "unreachable_since": null, "applied": {"location": "repo",'
        ' "ref": "main", "revision": "r", "files": ["a.yaml"], "services": [], "applied_at": 1.0}}'
    )

    record, damage = HistoryFile(path).read()

    assert damage == ""
    assert record.applied == Applied("repo", "main", "r", ("a.yaml",), (), 1.0)


@pytest.mark.parametrize(
    ("stored", "verdict"),
    [
        (
            '"refused": {"revision": "r", "since": 1.0, "problems": ["p"]}, "held": null',
            RevisionVerdict(VerdictKind.REFUSED, "r", 1.0, problems=("p",)),
        ),
        (
            '"refused": null, "held": {"revision": "r", "since": 1.0, "message": "m"}',
            RevisionVerdict(VerdictKind.HELD, "r", 1.0, "m", waits_for_a_person=True),
        ),
        (
            '"refused": {"revision": "r", "since": 1.0, "problems": []}, "held": {"revision": "s",'
            ' "since": 2.0, "message": "m", "waits_for_a_person": false}',
            RevisionVerdict(VerdictKind.HELD, "s", 2.0, "m"),
        ),
    ],
    ids=["refused", "held", "both"],
)
def test_a_verdict_of_an_earlier_version_is_read(
    tmp_path: Path, stored: str, verdict: RevisionVerdict
) -> None:
    path = tmp_path / "applied.json"
    path.write_text(f'{{"format": 1, "applied": null, "unreachable_since": null, {stored}}}')

    assert HistoryFile(path).read() == (SourceRecord(verdict=verdict), "")


def test_older_and_unrelated_heads_are_held_and_a_rewritten_branch_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    repo = Repo.create(tmp_path)
    repo.publish({"a.yaml": "0"})
    old = repo.publish({"a.yaml": "1"})
    source = GitSource(str(repo.remote), ref="main", cache_dir=tmp_path / "cache")
    source.fetch()
    repo.publish({"a.yaml": "2"})
    last = Applied(source.location, source.ref, source.fetch().revision)

    def verdict(*accepted: str, strict: bool = False) -> HeadVerdict:
        return judge(
            *(last, source.fetch().revision, source.is_ancestor),
            location=source.location,
            ref=source.ref,
            strict=strict,
            acceptance=Acceptance(accepts=lambda head: head in accepted),
            is_unrelated=source.is_unrelated,
        )

    run_git(repo.remote, "update-ref", "refs/heads/main", old)  # as a stale mirror answers
    stale = verdict()
    repo.git("commit", "-q", "--amend", "-m", "rewritten")
    repo.push(force=True)
    rewritten = verdict()
    repo.git("checkout", "-q", "--orphan", "another")
    repo.git("commit", "-q", "-m", "Another history")
    another = repo.head()
    repo.git("push", "-q", "--force", "origin", "another:main")
    unrelated, strictly, accepted = verdict(), verdict(strict=True), verdict(another)

    assert (stale.course, stale.take) == (Course.OLDER, False)
    assert (rewritten.course, rewritten.take) == (Course.DIVERGED, True)
    assert (unrelated.course, unrelated.take, strictly.take) == (Course.UNRELATED, False, False)
    assert f"{another[:12]} shares no commit with {last.revision[:12]}" in unrelated.message
    assert f"fleet-agent accept {another[:12]}" in unrelated.message
    assert (accepted.course, accepted.take) == (Course.UNRELATED, True)
    assert not source.is_unrelated(another, "f" * 40), "one is not here"


@settings(max_examples=25)  # each is flushed to the disk
@given(
    st.builds(
        SourceRecord,
        applied=st.none()
        | st.builds(
            Applied,
            location=_TEXTS,
            ref=_TEXTS,
            revision=_TEXTS,
            files=st.lists(_TEXTS, max_size=3).map(tuple),
            services=st.lists(_TEXTS, max_size=3).map(tuple),
            applied_at=st.floats(0, 1e10),
            objects=st.dictionaries(
                _TEXTS, st.lists(st.builds(ObjectRef, _TEXTS, st.text(), _TEXTS)).map(tuple)
            ),
            documents=st.lists(st.dictionaries(_TEXTS, _TEXTS), max_size=2).map(tuple),
            fleet=st.text(),
            root=st.text(),
        ),
        others=st.dictionaries(_TEXTS, st.lists(_TEXTS, max_size=2).map(tuple)),
        verdict=st.none()
        | st.builds(
            RevisionVerdict,
            st.just(VerdictKind.REFUSED),
            revision=_TEXTS,
            since=st.floats(0, 1e10),
            problems=st.lists(_TEXTS, max_size=3).map(tuple),
        )
        | st.builds(
            RevisionVerdict,
            st.sampled_from([VerdictKind.HELD, VerdictKind.FAILED]),
            revision=_TEXTS,
            since=st.floats(0, 1e10),
            message=_TEXTS,
            waits_for_a_person=st.booleans(),
        ),
        unreachable_since=st.none() | st.floats(0, 1e10),
        unreachable_why=st.text(max_size=9),
    )
)
def test_what_is_written_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, record: SourceRecord
) -> None:
    file = HistoryFile(tmp_path_factory.getbasetemp() / "state" / "applied.json")

    file.write(record)

    assert file.read() == (record, "")


@given(st.binary(max_size=60) | st.text(string.printable).map(str.encode))
def test_a_damaged_record_is_set_aside_and_said(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("state") / "applied.json"
    path.write_bytes(data)

    record, notice = HistoryFile(path).read()

    assert record == SourceRecord()
    assert "cannot be read" in notice
    assert [p.read_bytes() for p in path.parent.iterdir()] == [data]
    assert HistoryFile(path).read() == (SourceRecord(), "")


@pytest.mark.parametrize(
    "text",
    ['{"format": 2}', '{"format": 1}', "[" * 100_000,
     '{"format": 1, "applied": 3, "refused": null, "unreachable_since": null}',
     '{"format": 1, "applied": null, "refused": null, "unreachable_since": []}'],
)  # fmt: skip
def test_a_record_of_another_shape_is_set_aside(tmp_path: Path, text: str) -> None:
    path = tmp_path / "applied.json"
    path.write_text(text)

    assert HistoryFile(path).read()[0] == SourceRecord()


def test_who_only_compares_reads_the_record_and_writes_none(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    known = SourceRecord(applied(A))
    HistoryFile(file).write(known)
    peeked = PeekedHistory(file)

    peeked.write(SourceRecord())
    whole = peeked.read(), peeked.peek()
    file.write_text("{")
    damaged = peeked.read(), peeked.peek()

    assert whole == ((known, ""), known)
    assert damaged == ((SourceRecord(), ""), SourceRecord())
    assert [path.name for path in tmp_path.iterdir()] == ["history.json"]


def test_a_record_that_cannot_be_written_is_an_error_and_keeps_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StateError, match="cannot be written"):
        HistoryFile(tmp_path / "file" / "applied.json").write(SourceRecord())
