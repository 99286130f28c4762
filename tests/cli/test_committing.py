"""`reconcile deploy --commit` and `--push`: as the person would, and nothing of theirs is lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.cli import main
from tests.support.fleets import node
from tests.support.gguf_models import tiny_llama
from tests.support.repos import Repo, git_env, run_git

OK, FAILED, USAGE = 0, 1, 64
FILES = ["models/tiny.yaml", "services/tiny.yaml"]


@dataclass(frozen=True)
class Person:
    """Somebody with a clone of a fleet of one node, and a small model beside it."""

    repo: Repo
    source: str
    output: pytest.CaptureFixture[str]

    def deploy(self, *words: str) -> tuple[int, str]:
        fixed = ("-C", str(self.repo.work), "--source", self.source, "--allow-unreachable")
        code = main(["deploy", "tiny", *fixed, *words])
        return code, self.output.readouterr().err

    def written(self) -> list[str]:
        return [path for path in FILES if (self.repo.work / path).exists()]

    def hook(self, repository: Path, name: str, text: str) -> None:
        (repository / "hooks").mkdir(exist_ok=True)
        file = repository / "hooks" / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)


@pytest.fixture
def person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Person:
    for name, value in git_env().items():
        monkeypatch.setenv(name, value)
    repo = Repo.create(tmp_path)
    repo.publish({"mac.yaml": node("mac", agent={}, memory={"budget": "1Gi"})})
    model = tiny_llama(tmp_path / "tiny.gguf")
    return Person(repo, model.as_uri(), capsys)


def test_the_two_files_and_nothing_else_are_committed(person: Person) -> None:
    """What is staged and what is edited beside them stays as it is."""
    person.repo.write("README.md", "edited\n")
    person.repo.git("add", "README.md")
    person.repo.write("other.yaml", "# later\n")

    code, err = person.deploy("--commit")

    changed = person.repo.git("show", "--name-only", "--format=%an: %s", "HEAD").splitlines()
    assert code == OK, err
    assert changed == ["Ada: Serve tiny", "", *FILES]
    assert person.repo.git("diff", "--cached", "--name-only") == "README.md"
    assert f"committed {person.repo.head()[:7]} on main" in err
    assert "warning: not in that commit, but in this folder: other.yaml" in err


def test_a_folder_of_a_repository_may_be_reached_by_a_link(person: Person) -> None:
    person.repo.publish({"fleet/mac.yaml": node("mac", agent={}), "mac.yaml": "# moved"})
    (person.repo.work.parent / "link").symlink_to(person.repo.work / "fleet")
    fixed = ("--source", person.source, "--allow-unreachable", "--push")

    code = main(["deploy", "tiny", "-C", str(person.repo.work.parent / "link"), *fixed])

    changed = person.repo.git("show", "--name-only", "--format=", "origin/main").splitlines()
    assert (code, changed) == (OK, [f"fleet/{path}" for path in FILES])


def test_another_git_at_work_is_said_in_one_line(person: Person) -> None:
    person.repo.write(".git/index.lock", "")

    code, err = person.deploy("--commit")

    assert code == FAILED
    assert "index.lock': File exists.; Another git process seems to be running" in err
    assert "\\n" not in err
    assert person.written() == FILES


def test_a_push_goes_to_the_branch_that_is_followed(person: Person) -> None:
    person.repo.git("push", "-q", "-u", "origin", "main:fleet")

    code, err = person.deploy("--push")

    assert (code, run_git(person.repo.remote, "rev-parse", "fleet")) == (OK, person.repo.head())
    assert "pushed to origin/fleet" in err


def test_a_branch_that_follows_none_follows_the_only_remote_from_then_on(person: Person) -> None:
    code, err = person.deploy("--push")

    assert code == OK, err
    assert run_git(person.repo.remote, "rev-parse", "main") == person.repo.head()
    assert person.repo.git("rev-parse", "--abbrev-ref", "main@{upstream}") == "origin/main"


def test_a_rejected_push_keeps_the_commit_and_says_how_to_go_on(
    person: Person, tmp_path: Path
) -> None:
    run_git(tmp_path, "clone", "-q", str(person.repo.remote), "other")
    run_git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "sooner")
    run_git(tmp_path / "other", "push", "-q", "origin", "HEAD")

    code, err = person.deploy("--push")

    assert code == FAILED
    assert "not pushed: origin/main has commits that are not here; the commit is on main" in err
    assert "`git pull --rebase`, then `git push`" in err
    assert person.repo.git("log", "-1", "--format=%s") == "Serve tiny"


def test_what_the_other_side_says_of_a_refused_push_is_shown(person: Person) -> None:
    person.hook(person.repo.remote, "pre-receive", "echo freeze until Monday >&2; exit 1")

    code, err = person.deploy("--push")

    assert code == FAILED
    said = re.search(r"not pushed: (.*); the commit is on main here and not lost", err)
    assert said
    refused = "[remote rejected] (pre-receive hook declined); remote: freeze until Monday"
    assert re.sub(" +", " ", said[1]) == refused


def test_a_remote_that_is_gone_keeps_the_commit(person: Person) -> None:
    person.repo.remote.rename(person.repo.remote.with_name("moved.git"))

    code, err = person.deploy("--push")

    assert (code, person.repo.git("log", "-1", "--format=%s")) == (FAILED, "Serve tiny")
    assert "not pushed" in err
    assert "does not appear to be a git repository" in err


def test_a_hook_that_fails_leaves_the_files_written_and_its_words(person: Person) -> None:
    person.hook(person.repo.work / ".git", "pre-commit", "echo no ticket in the message; exit 1")
    before = person.repo.head()

    code, err = person.deploy("--push")

    assert (code, person.repo.head()) == (FAILED, before)
    assert "not committed: no ticket in the message" in err
    assert f"{' and '.join(FILES)} are written: fix that, then `git add` and `git commit`" in err
    assert person.written() == FILES
    assert run_git(person.repo.remote, "rev-parse", "main") == before


def _detach(person: Person) -> None:
    person.repo.git("switch", "-q", "--detach")


def _merge(person: Person) -> None:
    person.repo.write(".git/MERGE_HEAD", person.repo.head() + "\n")


def _ignore(person: Person) -> None:
    person.repo.write(".gitignore", "models/\n")


def _no_remote(person: Person) -> None:
    person.repo.git("remote", "remove", "origin")


def _two_remotes(person: Person) -> None:
    person.repo.git("remote", "add", "backup", "/nowhere")


def _no_repository(person: Person) -> None:
    (person.repo.work / ".git").rename(person.repo.work.parent / "git")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_detach, "and not a branch, so a commit would be on none; `git switch BRANCH` first"),
        (_merge, "in the middle of a merge; finish it"),
        (_ignore, "ignored by git, so it would not be committed"),
        (_no_remote, "follows no branch of a remote, and there is none; `git remote add origin"),
        (_two_remotes, "say which: `git push -u origin main` once"),
        (_no_repository, "not in a git repository, so nothing can be committed"),
    ],
)
def test_what_cannot_be_committed_or_pushed_is_not_written_either(
    spoil: object, words: str, person: Person
) -> None:
    assert callable(spoil)
    spoil(person)

    code, err = person.deploy("--push")

    assert code == USAGE, err
    assert words in err
    assert person.written() == []


def test_without_an_identity_nothing_is_written(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AUTHOR_NAME", "AUTHOR_EMAIL", "COMMITTER_NAME", "COMMITTER_EMAIL"):
        monkeypatch.delenv(f"GIT_{name}")
    person.repo.git("config", "user.useConfigOnly", "true")

    code, err = person.deploy("--commit")

    assert code == USAGE
    assert "git does not know who commits; `git config --global user.name NAME`" in err
    assert person.written() == []


def test_gitpython_is_loaded_by_nothing_else(person: Person) -> None:
    look = (
        "import sys; from reconciler.cli import main; code = main(sys.argv[1:])\n"
        "print('git' in sys.modules, 'gguf' in sys.modules); sys.exit(code)"
    )
    words = ("deploy", "tiny", "-C", str(person.repo.work), "--source", person.source)

    done = subprocess.run(
        (sys.executable, "-c", look, *words, "--allow-unreachable"),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )

    assert done.stdout.splitlines()[-1] == "False False"
