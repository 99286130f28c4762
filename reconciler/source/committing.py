"""Commit and push files that a command wrote for a user, as that user, with GitPython.

Identity, hooks, signing and credentials are the user's own. No other edits are committed, and
foreseeable failures are reported before anything is written. A fleet is never read by this module
(decision 0014).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from git import (
    GitCommandError,
    GitError,
    InvalidGitRepositoryError,
    NoSuchPathError,
    RemoteProgress,
    Repo,
)
from git.refs import RemoteReference
from git.remote import PushInfo

from reconciler.api.errors import SourceError, UsageError
from reconciler.source.tree import is_candidate

# An operation in progress, by the file that git keeps meanwhile.
_UNFINISHED = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}
logging.getLogger("git").setLevel(logging.ERROR)  # it also logs the errors that we report


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A new commit, and the fleet's files that differ from it: edited, or not committed at all."""

    commit: str
    branch: str
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Destination:
    remote: str
    branch: str  # there
    is_followed: bool  # by the branch that is checked out


def check(root: Path, paths: Sequence[str], *, push: bool, edited: Sequence[str] = ()) -> None:
    """Check before writing that files of these paths below `root` could be committed. `edited` are
    those that are there: what somebody else changed in them is not ours to commit. Raises
    UsageError with what to do first."""
    with _opened(root) as repo:
        for file, what in _UNFINISHED.items():
            if (Path(repo.git_dir) / file).exists():
                raise UsageError(
                    f"{root}: in the middle of a {what}; finish it (`git status` says how), or"
                    " leave out --commit"
                )
        if repo.head.is_detached:
            raise UsageError(
                f"{root}: HEAD is {repo.head.commit.hexsha[:7]} and not a branch, so a commit"
                " would be on none; `git switch BRANCH` first"
            )
        try:
            repo.git.var("GIT_COMMITTER_IDENT")
        except GitCommandError as error:
            raise UsageError(
                f"{root}: git does not know who commits; `git config --global user.name NAME` and"
                " `git config --global user.email ADDRESS` first"
            ) from error
        if ignored := repo.ignored(*(root.resolve() / path for path in paths)):
            raise UsageError(
                f"{', '.join(ignored)}: ignored by git, so it would not be committed; change"
                " .gitignore, or leave out --commit"
            )
        for path in edited:
            if repo.git.status("--porcelain", "--", str(root.resolve() / path)):
                raise UsageError(
                    f"{root / path}: has changes that are not committed; commit them first, or"
                    " leave out --commit"
                )
        if push:
            _destination(repo)


def commit(root: Path, paths: Sequence[str], message: str) -> NewCommit:
    """Commit these files and nothing else, whatever else is edited or staged.

    Raises SourceError if git or a hook refuses; the files stay as they are.
    """
    with _opened(root) as repo:
        files = [str(root.resolve() / path) for path in paths]
        try:
            repo.git.add("--", *files)
            repo.git.commit("--quiet", "--only", "--message", message, "--", *files)
        except GitCommandError as error:
            raise SourceError(
                f"{root}: not committed: {_error_text(error)}; {' and '.join(paths)} are written:"
                " fix that, then `git add` and `git commit` them"
            ) from error
        head = repo.head.commit.hexsha[:7]
        return NewCommit(head, repo.active_branch.name, tuple(_left(repo, root)))


def push(root: Path) -> str:
    """Push the branch that is checked out to its upstream; returns the upstream's name.

    A branch without one gets the only remote's as upstream. Raises SourceError if the remote
    refuses or cannot be reached; the commit stays.
    """
    with _opened(root) as repo:
        branch, to = repo.active_branch.name, _destination(repo)
        kept = f"the commit is on {branch} here and not lost"
        refspec = f"refs/heads/{branch}:refs/heads/{to.branch}"
        progress = RemoteProgress()
        try:
            pushed = repo.remote(to.remote).push(refspec, progress, set_upstream=not to.is_followed)
        except GitError as error:
            raise SourceError(f"{root}: not pushed: {_error_text(error)}; {kept}") from error
        if pushed.error is None and not any(info.flags & PushInfo.ERROR for info in pushed):
            return f"{to.remote}/{to.branch}"
        if any(info.flags & PushInfo.REJECTED for info in pushed):
            why = f"{to.remote}/{to.branch} has commits that are not here; {kept}:"
            raise SourceError(f"{root}: not pushed: {why} `git pull --rebase`, then `git push`")
        refused = [info.summary.strip() for info in pushed if info.flags & PushInfo.ERROR]
        hooks = [line for line in progress.other_lines if line.startswith("remote: ")]
        lines = [*refused, *hooks] or [_error_text(error) for error in (pushed.error,) if error]
        why = _one_line("\n".join(lines))
        raise SourceError(f"{root}: not pushed: {why}; {kept}: `git push` tries again")


@contextmanager
def _opened(root: Path) -> Iterator[Repo]:
    try:
        repo = Repo(root.resolve(), search_parent_directories=True)
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise UsageError(
            f"{root}: not in a git repository, so nothing can be committed; `git init` it, or"
            " leave out --commit"
        ) from error
    with repo:
        yield repo


def _destination(repo: Repo) -> _Destination:
    """Where the branch that is checked out is pushed to. Raises UsageError."""
    branch, names = repo.active_branch, [remote.name for remote in repo.remotes]
    followed: RemoteReference | None = branch.tracking_branch()
    if followed is not None and followed.remote_name in names:
        return _Destination(followed.remote_name, followed.remote_head, True)
    if len(names) == 1:
        return _Destination(names[0], branch.name, False)
    here = f"{repo.working_tree_dir}: branch {branch.name} follows no branch of a remote"
    if not names:
        raise UsageError(f"{here}, and there is none; `git remote add origin ADDRESS` first")
    raise UsageError(f"{here}; say which: `git push -u {names[0]} {branch.name}` once")


def _left(repo: Repo, root: Path) -> Iterator[str]:
    """YAML files below `root` whose content on disk is not in the commit."""
    edited = {diff.a_path or diff.b_path for diff in repo.head.commit.diff(None)}
    top = Path(repo.working_tree_dir or root).resolve()
    for name in sorted({*repo.untracked_files, *filter(None, edited)}):
        if (top / name).is_relative_to(root.resolve()) and is_candidate(name):
            yield str((top / name).relative_to(root.resolve()))


def _error_text(error: Exception) -> str:
    """The error output of git, a hook or the remote, without GitPython's frame around it."""
    text = error.stderr if isinstance(error, GitCommandError) else str(error)
    text = _one_line(text.strip().removeprefix("stderr:").strip().strip("'"))
    return text or f"git ended with status {getattr(error, 'status', 'unknown')}"


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())
