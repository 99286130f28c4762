"""The commit that gave a field its value: compared with what git says, in random histories."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from reconciler.api.meta import ObjectRef
from reconciler.source.authorship import Authorship
from reconciler.source.commit import YamlBlobs
from reconciler.source.field_history import ChangedBy, FieldHistory
from reconciler.source.objects import GitObjects
from reconciler.source.worktree import WorktreeSource
from tests.support.field_histories import History, write_histories
from tests.support.fleets import service
from tests.support.repos import Repo, run_git

_HISTORIES = int(os.environ.get("FIELD_HISTORIES", "20"))  # of a dozen commits, every kind of edit


@pytest.mark.e2e
def test_the_cause_of_a_field_is_the_commit_that_git_says_brought_its_value(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = int(request.config.getoption("randomly_seed", 1) or 1)
    made = write_histories(tmp_path / "fleet", seed, _HISTORIES)
    objects = GitObjects(tmp_path / "fleet" / ".git")
    lines = 0

    for history, commits in made:
        fields = FieldHistory(Authorship(objects, commits[-1]), YamlBlobs(objects).present)
        asked = random.Random(seed).sample([*history.truths], min(6, len(history.truths)))
        for number, (ref, name) in enumerate(asked):
            truth, path = history.truths[ref, name], _path_of(history, ref)
            what = f"seed {seed}, {history.branch}: {ref} spec.{name}, {truth}"

            found = fields.changed_by(path, ref, f"spec.{name}")

            assert found is not None, what
            assert commits.index(found.commit or "") == truth.by, what
            last = fields.changed_by(path, ref)
            by = max(t.by for (of, _), t in history.truths.items() if of == ref)
            assert last is not None, what
            assert commits.index(last.commit or "") == by, what
            if number == 0:
                assert found.commit == _pickaxe(objects, history, truth.value, truth.is_there), what
            if number == 1 and truth.is_there and truth.is_plain:
                lines += 1
                assert found.commit == _blame(objects, history, path, truth.value), what
    assert lines > _HISTORIES / 8  # otherwise nobody compared lines


def _path_of(history: History, ref: object) -> str:
    return next(path for path, doc in history.docs() if doc.ref == ref)


def _pickaxe(objects: GitObjects, history: History, value: str, is_there: bool) -> str:
    """The commit that brought a text, which is in one place only; or the one that took it away."""
    out = run_git(objects.folder, "log", "--format=%H", "-m", f"-S{value}", history.branch)
    return out.splitlines()[-1 if is_there else 0]


def _blame(objects: GitObjects, history: History, path: str, value: str) -> str:
    text = history.commits[-1][path].splitlines()
    line = next(number for number, words in enumerate(text, 1) if value in words)
    at = f"{line},{line}"
    out = run_git(
        objects.folder, "blame", "--porcelain", "-w", "-L", at, history.branch, "--", path
    )
    return out.split()[0]


CHAT, SEARCH = (ObjectRef("InferenceService", "default", name) for name in ("chat", "search"))
_LARGER = service("chat", "tiny", contextSize=1024)
_BOTH = service("chat", "tiny", contextSize=512) + "---\n" + service("search", "tiny")
_STEPS: dict[str, dict[str, str | None]] = {
    "add": {"all.yaml": _BOTH},
    "edit": {"all.yaml": _BOTH.replace("512", "1024")},
    "break": {"all.yaml": _BOTH.replace("512", "1024") + "---\n: :\n"},
    "mend": {"all.yaml": "# mended\n" + _BOTH.replace("512", "1024")},
    "split": {"all.yaml": service("search", "tiny"), "x/chat.yaml": _LARGER},
    "search": {"all.yaml": service("search", "tiny", parallelSlots=2)},
    "leave": {"all.yaml": None},
    "back": {"x/chat.yaml": None},
}  # fmt: skip


@pytest.mark.parametrize(
    ("upto", "path", "ref", "field", "cause"),
    [
        ("search", "x/chat.yaml", CHAT, "spec.contextSize", "edit"),
        ("search", "x/chat.yaml", CHAT, "spec.modelRef", "add"),
        ("search", "x/chat.yaml", CHAT, "", "edit"),  # neither a comment nor another file counts
        ("search", "all.yaml", SEARCH, "", "search"),
        ("search", "all.yaml", SEARCH, "spec.modelRef", "add"),
        ("mend", "all.yaml", CHAT, "spec.contextSize", "edit"),  # nor what broke beside it
        ("search", "x/chat.yaml", CHAT, "spec.suspend", None),  # it was never stated
        ("back", "all.yaml", SEARCH, "removed", "leave"),
        ("back", "all.yaml", CHAT, "removed", "back"),  # where it was last known to be
    ],
)
def test_an_object_is_followed_through_files_and_what_cannot_be_read(
    tmp_path: Path, upto: str, path: str, ref: ObjectRef, field: str, cause: str | None
) -> None:
    repo, commits = Repo.create(tmp_path), {}
    for name, files in _STEPS.items():
        for file, text in files.items():
            _put(repo, file, text)
        commits[name] = repo.commit(name, push=False)
        if name == upto:
            break
    objects = GitObjects(repo.work / ".git")
    fields = FieldHistory(Authorship(objects, commits[upto]), YamlBlobs(objects).present)

    removed = field == "removed"
    found = fields.removed_by(path, ref) if removed else fields.changed_by(path, ref, field)

    assert found == (None if cause is None else ChangedBy(commits[cause]))


def test_what_is_not_committed_is_the_cause_of_what_it_changes_only(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    sha = repo.publish({"all.yaml": _BOTH})
    repo.write("all.yaml", service("search", "tiny", parallelSlots=2))
    repo.write("moved.yaml", service("chat", "other", contextSize=512))

    history = WorktreeSource(repo.work).fetch().history

    assert history is not None
    assert history.changed_by("all.yaml", SEARCH, "spec.parallelSlots") == ChangedBy(None)
    assert history.changed_by("all.yaml", SEARCH, "spec.modelRef") == ChangedBy(sha)
    assert history.changed_by("moved.yaml", CHAT, "spec.modelRef") == ChangedBy(None)
    assert history.changed_by("moved.yaml", CHAT, "spec.contextSize") == ChangedBy(sha)


def test_what_changed_since_a_commit_is_told_by_the_files_as_they_are(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    before = repo.publish({"chat.yaml": service("chat", "tiny", contextSize=512)})
    repo.publish({"chat.yaml": _LARGER})
    repo.write("chat.yaml", service("chat", "tiny", contextSize=2048))
    history = WorktreeSource(repo.work).fetch().history
    assert history is not None

    changed = history.changed_since(before)

    assert changed is not None
    assert [found[CHAT]["spec"]["contextSize"] for found in changed] == [512, 2048]


def test_a_merge_is_not_the_cause_of_what_it_brought_together(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    repo.publish({"chat.yaml": service("chat", "tiny", contextSize=512)})
    repo.git("checkout", "-q", "-b", "side")
    cause = repo.publish({"chat.yaml": _LARGER})
    repo.git("checkout", "-q", "main")
    repo.publish({"chat.yaml": "# ours\n" + service("chat", "tiny", contextSize=512)})
    repo.git("merge", "-q", "--no-ff", "-m", "merge", "side")

    history = WorktreeSource(repo.work).fetch().history

    assert history is not None
    assert history.changed_by("chat.yaml", CHAT) == ChangedBy(cause)


def test_a_version_with_keys_that_are_no_text_is_one_like_any_other(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    repo.publish({"chat.yaml": _LARGER + "  labels: {1: a, b: c}\n"})
    mended = repo.publish({"chat.yaml": _LARGER})

    history = WorktreeSource(repo.work).fetch().history

    assert history is not None
    assert history.changed_by("chat.yaml", CHAT) == ChangedBy(mended)


def _put(repo: Repo, path: str, text: str | None) -> None:
    if text is None:
        (repo.work / path).unlink()
    else:
        repo.write(path, text)
