"""What we read of a commit, against GitPython: another reader of the same repository."""

from __future__ import annotations

from pathlib import Path

import git
import pytest

from reconciler.source.git import GitSource
from tests.support.fleets import model, service
from tests.support.repos import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A few commits: files added, changed, moved below a folder, and one merge."""
    made = Repo.create(tmp_path)
    made.publish({"models/tiny.yaml": model("tiny"), "notes.txt": "no fleet document"})
    made.publish({"services/chat.yaml": service("chat", "tiny")})
    made.git("checkout", "-q", "-b", "side")
    made.publish({"services/side.yaml": service("side", "tiny")})
    made.git("checkout", "-q", "main")
    made.publish({"services/chat.yaml": service("chat", "tiny", contextSize=512)})
    made.git("merge", "-q", "--no-ff", "-m", "Merge side", "side")
    made.push()
    return made


def test_the_files_of_a_commit_are_the_ones_that_another_reader_sees(
    repo: Repo, tmp_path: Path
) -> None:
    checkout = GitSource(str(repo.remote), cache_dir=tmp_path / "cache").fetch()

    with git.Repo(repo.remote) as other:
        tree = other.commit("main").tree
        seen = {
            str(blob.path): blob.data_stream.read()
            for blob in tree.traverse()
            if isinstance(blob, git.Blob) and str(blob.path).endswith(".yaml")
        }

    assert {file.path: file.data for file in checkout.yaml_files()} == seen


def test_a_file_was_last_touched_by_the_commit_that_another_reader_names(
    repo: Repo, tmp_path: Path
) -> None:
    checkout = GitSource(str(repo.remote), cache_dir=tmp_path / "cache").fetch()
    paths = [file.path for file in checkout.yaml_files()]

    with git.Repo(repo.remote) as other:
        named = {
            path: next(other.iter_commits("main", paths=path, max_count=1)).hexsha for path in paths
        }

    assert {path: checkout.commit_of(path) for path in paths} == named
