"""Which commit touched a file last: what a plan cites as the cause of a change."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from reconciler.errors import SourceError

if TYPE_CHECKING:
    from reconciler.source.objects import Objects

_COMMIT = re.compile(r"\x01([0-9a-f]{40,64})")
_SINGLE_QUESTIONS = 3  # asked one by one (found after a few commits); then history is read once
_HISTORY_COMMITS = 20_000  # read at once: about a second; older files are asked for one by one


class Authorship:
    """Answers for one revision. `root` is the folder of the repository that paths start from."""

    def __init__(self, objects: Objects, revision: str, root: str = "") -> None:
        self._objects = objects
        self._revision = revision
        self._prefix = f"{root}/" if root else ""
        self._known: dict[str, str | None] = {}
        self._asked = 0
        self._read_history = False

    def commit_of(self, path: str) -> str | None:
        """The last commit up to this revision that touched (or removed) a file, else None."""
        full = self._prefix + path
        if full not in self._known and not self._read_history:
            self._asked += 1
            if self._asked > _SINGLE_QUESTIONS:
                self._read_history = True
                self._known = self._walk() | self._known
        if full not in self._known:
            self._known[full] = self._single(full)
        return self._known[full]

    def _single(self, path: str) -> str | None:
        argv = ("log", "-1", "--format=%H", "--no-renames", self._revision, "--", path)
        return self._log(*argv) or None

    def _walk(self) -> dict[str, str | None]:
        """One walk for all files. -c: a merge touches what differs from all its parents."""
        out = self._log(
            "log", "-z", "-c", "--name-only", "--no-renames", "--format=%x01%H",
            f"--max-count={_HISTORY_COMMITS}", self._revision,
            *(["--", self._prefix] if self._prefix else []),
        )  # fmt: skip
        found: dict[str, str | None] = {}
        commit = None
        for token in out.split("\0"):
            start = _COMMIT.fullmatch(token)
            if start:
                commit = start[1]
            elif token:
                found.setdefault(token.removeprefix("\n"), commit)
        return found

    def _log(self, *argv: str) -> str:
        done = self._objects.git(*argv)
        if done.code != 0:
            raise SourceError(
                f"the history of {self._revision[:12]} cannot be read: {done.message}"
            )
        return os.fsdecode(done.stdout).rstrip("\n")
