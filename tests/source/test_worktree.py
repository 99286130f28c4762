"""A work tree as it is on disk: what counts, what is dirty, and when git is busy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.api.errors import SourceError
from reconciler.source.busy import busy
from reconciler.source.checkout import YamlFile
from reconciler.source.open import open_source
from reconciler.source.worktree import WorktreeCheckout, WorktreeSource
from tests.support.repos import Repo

MODEL = """\
apiVersion: inference.llmkube.dev/v1alpha1
kind: Model
metadata: {name: NAME}
spec: {source: model.gguf}
"""


@pytest.fixture(autouse=True)
def _no_configuration_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.create(tmp_path)
    made.publish({"a.yaml": model("a"), "values.yaml": "a: 1\n", ".gitignore": "scratch/\n"})
    return made


def model(name: str) -> str:
    return MODEL.replace("NAME", name)


def read(repo: Repo, folder: str = ".") -> WorktreeCheckout:
    return WorktreeSource(repo.work / folder).fetch()


def paths(checkout: WorktreeCheckout) -> list[str]:
    return [file.path for file in checkout.yaml_files() if isinstance(file, YamlFile)]


def test_a_clean_work_tree_is_its_commit(repo: Repo) -> None:
    checkout = read(repo)

    assert checkout.revision == checkout.commit == repo.head()
    assert paths(checkout) == ["a.yaml"]
    assert checkout.commit_of("a.yaml") == repo.head()


def test_new_and_edited_files_count_and_ignored_ones_do_not(repo: Repo) -> None:
    repo.write("a.yaml", model("edited"))
    repo.write("new/b.yaml", model("b"))
    repo.write("scratch/c.yaml", model("c"))

    checkout = read(repo)

    assert {f.path: f.data for f in checkout.yaml_files()} == {
        "a.yaml": model("edited").encode(),
        "new/b.yaml": model("b").encode(),
    }
    assert re.fullmatch(rf"{repo.head()}\+dirty\.[0-9a-f]{{8}}", checkout.revision)
    assert checkout.commit_of("a.yaml") is None
    assert checkout.commit_of("new/b.yaml") is None


def test_the_revision_changes_with_the_edit_and_comes_back_when_it_is_undone(repo: Repo) -> None:
    clean = read(repo).revision
    repo.write("a.yaml", model("one"))
    one = read(repo).revision
    repo.write("a.yaml", model("two"))
    two = read(repo).revision
    repo.write("a.yaml", model("a"))

    assert len({clean, one, two}) == 3
    assert read(repo).revision == clean


def test_edits_of_files_that_are_not_ours_leave_it_clean(repo: Repo) -> None:
    repo.write("values.yaml", "a: 2\n")
    repo.write("notes.txt", "x")

    assert read(repo).revision == repo.head()


def test_a_deleted_file_and_a_file_that_lost_its_header_are_edits(repo: Repo) -> None:
    repo.publish({"b.yaml": model("b")})
    (repo.work / "a.yaml").unlink()
    repo.write("b.yaml", "")

    checkout = read(repo)

    assert paths(checkout) == []
    assert [(f.path, f.data) for f in checkout.yaml_files(["a.yaml", "b.yaml"])] == [
        ("b.yaml", b"")
    ]
    assert "+dirty." in checkout.revision
    assert checkout.commit_of("b.yaml") is None


def test_a_model_file_of_another_size_is_an_edit(repo: Repo) -> None:
    repo.publish({"model.gguf": b"1234"})
    clean = read(repo)
    digest = clean.model_file("model.gguf")
    repo.write("model.gguf", b"12345")

    edited = read(repo)

    assert clean.revision == repo.head()
    assert digest.size_bytes == 4
    assert "+dirty." in edited.revision
    assert edited.model_file("model.gguf").sha256 != digest.sha256
    with edited.open("model.gguf") as stream:
        assert stream.read() == b"12345"


def test_a_folder_inside_the_work_tree_is_a_fleet_of_its_own(repo: Repo) -> None:
    sha = repo.publish({"lab/b.yaml": model("b")})
    repo.publish({"a.yaml": model("later")})

    checkout = read(repo, "lab")

    assert paths(checkout) == ["b.yaml"]
    assert checkout.commit_of("b.yaml") == sha
    assert checkout.revision == repo.head()
    for folder, subdir, root in ((".", None, ""), ("lab", None, "lab"), ("lab", "x", "lab/x")):
        assert WorktreeSource(repo.work / folder, subdir=subdir).root == root


def test_without_a_commit_it_is_like_a_folder(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    repo.write("a.yaml", model("a"))

    checkout = read(repo)

    assert re.fullmatch(r"dir:[0-9a-f]{8}", checkout.revision)
    assert checkout.commit is None
    assert paths(checkout) == ["a.yaml"]
    assert checkout.commit_of("a.yaml") is None


def test_links_are_never_followed(repo: Repo, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.yaml").write_text(model("x"))
    (outside / "x.gguf").write_bytes(b"x")
    repo.publish({"dir/x.yaml": model("x")})
    (repo.work / "dir/x.yaml").unlink()
    (repo.work / "dir").rmdir()
    (repo.work / "dir").symlink_to(outside)
    (repo.work / "link.yaml").symlink_to(outside / "x.yaml")
    (repo.work / "link.gguf").symlink_to(outside / "x.gguf")

    checkout = read(repo)

    assert paths(checkout) == ["a.yaml"]
    for path in ("link.gguf", "dir/x.gguf"):
        with pytest.raises(SourceError, match="never followed"):
            checkout.model_file(path)


def test_an_lfs_pointer_is_refused_and_its_model_on_disk_is_clean(repo: Repo) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n"
    repo.publish({"model.gguf": pointer})
    with pytest.raises(SourceError, match="LFS pointer"):
        read(repo).model_file("model.gguf")

    repo.write("model.gguf", b"123456789")

    assert read(repo).revision == repo.head()
    assert read(repo).model_file("model.gguf").size_bytes == 9


# root reads every file, unless it gives that up
_WITHOUT_PRIVILEGES = (
    ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
)


def test_a_file_that_cannot_be_read_is_an_error_and_not_an_absence(repo: Repo) -> None:
    (repo.work / "a.yaml").chmod(0)
    code = (
        "from pathlib import Path; from reconciler.source.worktree import WorktreeSource;"
        f"list(WorktreeSource(Path({str(repo.work)!r})).fetch().yaml_files())"
    )

    ran = subprocess.run(
        [*_WITHOUT_PRIVILEGES, sys.executable, "-c", code], capture_output=True, text=True
    )

    assert "SourceError" in ran.stderr
    assert "a.yaml: cannot be read" in ran.stderr


def test_a_rebase_in_progress_is_busy_and_a_stale_lock_is_not(repo: Repo) -> None:
    repo.git("checkout", "-q", "-b", "side", "HEAD")
    repo.publish({"a.yaml": model("side")})
    repo.git("checkout", "-q", "main")
    repo.publish({"a.yaml": model("main")})
    assert busy(repo.work) is None

    with pytest.raises(AssertionError):
        repo.git("rebase", "side")
    during = busy(repo.work / ".")
    repo.git("rebase", "--abort")
    lock = repo.work / ".git/index.lock"
    lock.touch()
    locked = busy(repo.work)
    os.utime(lock, (1, 1))

    assert during == "a rebase is going on"
    assert locked == "git is writing the index"
    assert busy(repo.work) is None


def test_a_linked_work_tree_is_read_and_watched_like_any_other(repo: Repo) -> None:
    linked = repo.work.parent / "linked"
    repo.git("worktree", "add", "-q", str(linked))
    (linked / "a.yaml").write_text(model("linked"))

    checkout = open_source(
        str(linked), cache_dir=repo.work.parent / "cache", working_tree=True
    ).fetch()

    assert checkout.revision.startswith(f"{repo.head()}+dirty.")
    assert busy(linked) is None


def test_a_ref_means_commits_even_in_a_work_tree(repo: Repo) -> None:
    repo.write("a.yaml", model("edited"))

    checkout = open_source(
        str(repo.work), ref="main", cache_dir=repo.work.parent / "cache", working_tree=True
    ).fetch()

    assert checkout.revision == repo.head()
