"""What a repository can make us read and wait for: bombs, missing objects, files without an end."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from reconciler.api.errors import SourceError, UsageError
from reconciler.api.meta import GROUP
from reconciler.source import command
from reconciler.source.checkout import Source
from reconciler.source.command import MOST_MEMORY_BYTES, end, start_git
from reconciler.source.git import GitSource
from reconciler.source.open import open_source
from reconciler.source.pipes import read_output
from reconciler.source.worktree import WorktreeSource
from tests.support.bombs import alternate_trees, nest_trees, swell
from tests.support.fleets import model
from tests.support.repos import Repo, run_git
from tests.support.wait import PATIENCE_S


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.create(tmp_path)
    made.publish({f"{name}.yaml": model(name) for name in "abcdef"})
    return made


def test_folders_that_hold_each_other_are_refused_before_their_list_fills_the_memory(
    repo: Repo, tmp_path: Path
) -> None:
    nest_trees(repo, levels=15)
    source = GitSource(str(repo.remote), cache_dir=tmp_path / "cache")

    began = time.monotonic()
    with pytest.raises(SourceError, match=r"ls-tree .* longer than 48 MiB: there are more files"):
        source.fetch()

    assert time.monotonic() - began < 30  # to its end it takes years


def test_a_file_that_takes_git_all_memory_is_refused_in_our_words(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "MOST_MEMORY_BYTES", 2**25)  # for a smaller bomb
    swell(repo, times=3)
    source = GitSource(f"file://{repo.remote}", cache_dir=tmp_path / "cache")

    with pytest.raises(SourceError, match="git needs more than 32 MiB of memory for a file of"):
        list(source.fetch().yaml_files())


@pytest.mark.skipif(sys.platform != "linux", reason="of a whole process only Linux has one")
def test_git_and_what_it_starts_have_a_bound_on_memory(repo: Repo) -> None:
    with start_git(repo.work, "cat-file", "--batch", stdin=True) as process:
        limits = resource.prlimit(process.pid, resource.RLIMIT_DATA)
        end(process)

    assert limits == (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES)


def test_a_history_that_touches_everything_again_and_again_is_read_in_a_bounded_memory(
    repo: Repo, tmp_path: Path
) -> None:
    alternate_trees(repo, commits=300, names=500)
    checkout = GitSource(str(repo.remote), cache_dir=tmp_path / "cache").fetch()

    tracemalloc.start()
    touched = {checkout.commit_of(f"{name}.yaml") for name in "abcdef"}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert touched == {repo.git("rev-parse", "origin/main")}
    assert peak < 60 * 2**20  # 72 MB of names are said


@pytest.mark.parametrize(
    ("kind", "edited", "committed"),
    [
        ("blob", "is not in this copy of the repository; that repository is damaged", "lacks obj"),
        ("tree", "", "lacks objects of its own; that repository is damaged: `git fsck` there"),
        ("commit", "", "not our ref"),
    ],
)
def test_a_repository_that_lacks_an_object_is_one_calm_line(
    repo: Repo, tmp_path: Path, kind: str, edited: str, committed: str
) -> None:
    repo.write("sub/g.yaml", model("g"))
    repo.commit()
    (repo.work / "sub/g.yaml").unlink()
    oid = repo.git(
        "rev-parse", {"blob": "HEAD:sub/g.yaml", "tree": "HEAD:sub", "commit": "HEAD"}[kind]
    )
    (repo.work / ".git/objects" / oid[:2] / oid[2:]).unlink()

    assert edited in _what_is_wrong(WorktreeSource(repo.work))
    assert committed in _what_is_wrong(GitSource(str(repo.work), cache_dir=tmp_path / "cache"))


def _what_is_wrong(source: Source) -> str:
    """What a person reads of a source that cannot be read; nothing of one that can."""
    try:
        checkout = source.fetch()
        list(checkout.yaml_files())
        [checkout.commit_of(f"{name}.yaml") for name in "abcdefg"]
    except SourceError as error:
        return str(error)
    return ""


def test_a_partial_clone_as_the_fleet_says_what_to_give_instead(repo: Repo) -> None:
    repo.publish({"sub/g.yaml": model("g")})
    clone, url = repo.work.parent / "clone", f"file://{repo.remote}"
    run_git(repo.remote, "config", "uploadpack.allowFilter", "true")
    run_git(repo.work.parent, "clone", "-q", "--filter=blob:none", "--sparse", url, str(clone))

    with pytest.raises(SourceError, match=r"made with --filter .* give the URL"):
        open_source(str(clone), ref="main", cache_dir=clone.parent / "cache").fetch()


def test_a_pipe_in_the_place_of_a_bundle_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fleet.bundle")
    os.mkfifo(tmp_path / "fleet")

    with pytest.raises(SourceError, match="not a regular file"):
        open_source(str(tmp_path / "fleet.bundle"), cache_dir=tmp_path / "cache").fetch()
    with pytest.raises(UsageError, match="not a git bundle"):
        open_source(str(tmp_path / "fleet"), cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("said", ["yes", "while :; do echo more >&2; done"])
def test_a_program_that_says_too_much_is_cut_off(said: str) -> None:
    with subprocess.Popen(
        ["sh", "-c", said], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        answer = read_output(process, None, most_bytes=1000, deadline_s=0.5)
        end(process)

    assert answer is None or (answer.is_cut and len(answer.stdout) == 1000)


def test_what_is_asked_may_be_longer_than_a_pipe_holds() -> None:
    asked = b"x" * 2**20
    with subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        answer = read_output(process, asked, most_bytes=2**21, deadline_s=PATIENCE_S)

    assert answer == (asked, b"", False)


def test_a_few_kilobytes_that_are_much_yaml_are_refused_before_they_are_in_memory(
    repo: Repo, tmp_path: Path
) -> None:
    filler = "#" * (2**20 - 100)
    repo.publish({f"big/{n}.yaml": f"# {GROUP}/ {n}\n{filler}" for n in range(130)})
    checkout = GitSource(str(repo.remote), cache_dir=tmp_path / "cache").fetch()

    with pytest.raises(SourceError, match="hold more than 128 MiB; split the fleet"):
        list(checkout.yaml_files())
