"""A work tree as people plan in it: its files, judged by the history that its commits have."""

from __future__ import annotations

from reconciler.source.checkout import Historied
from reconciler.source.commit import GitCheckout
from reconciler.source.git import GitSource
from reconciler.source.worktree import WorktreeCheckout, WorktreeSource


class CloneSource(Historied):
    """The files of a work tree, as a pass sees them that follows its commits: a head that went back
    is held, and behind an invalid commit stands the one that was applied last.

    `commits` is the same place as `--once` and the loop follow it; it is fetched where its history
    is asked for, and not before.
    """

    def __init__(self, files: WorktreeSource, commits: GitSource) -> None:
        self.location = commits.location
        self.ref = commits.ref
        self.root = self.folder = commits.folder
        self.files: WorktreeCheckout | None = None  # as they were fetched last
        self._files = files
        self._commits = commits

    def fetch(self) -> WorktreeCheckout:
        """The files as they are now. Raises SourceError."""
        self.files = self._files.fetch()
        return self.files

    def knows(self, revision: str) -> bool:
        """Whether the repository has this commit, or ever had it when it was fetched."""
        return self._files.knows(revision) or self._commits.knows(revision)

    def at(self, revision: str) -> GitCheckout:
        """A commit that was fetched before. Raises SourceError."""
        return self._commits.at(revision)

    def bring(self, revision: str) -> None:
        """Fetch one commit that is not here. Raises SourceError."""
        self._commits.bring(revision)

    def keep(self, revision: str, holder: str) -> None:
        self._commits.keep(revision, holder)

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `newer` builds on `older`. Raises SourceError."""
        self._commits.fetch()
        return self._commits.is_ancestor(older, newer)

    def is_unrelated(self, one: str, other: str) -> bool:
        """True if both commits are here and share no commit. Raises SourceError."""
        self._commits.fetch()
        return self._commits.is_unrelated(one, other)
