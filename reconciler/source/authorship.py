"""The last commit that touched a file: a plan names it as the cause of a change."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

from reconciler.api.errors import SourceError

if TYPE_CHECKING:
    from reconciler.source.objects import GitObjects

_TOKEN = re.compile(rb"[^\0]+")
_COMMIT = re.compile(rb"\x01([0-9a-f]{40,64})")
_SINGLE_QUESTIONS = 3  # asked file by file; after that the history is read once for all
_HISTORY_COMMITS = 20_000  # read at once: about a second; older files are asked for one by one
_HISTORY_BYTES = 16 * 2**20  # likewise: a commit may change every file there is
_PATIENCE_S = 120.0  # for all queries about one revision


class Authorship:
    """The last commit of each file in one revision. `root` is the folder of the repository that
    paths are relative to."""

    def __init__(self, objects: GitObjects, revision: str, root: str = "") -> None:
        self._objects = objects
        self._revision = revision
        self._prefix = f"{root}/" if root else ""
        self._known: dict[str, str | None] = {}
        self._asked = 0
        self._read_history = self._read_all = False
        self._spent_s = 0.0

    def commit_of(self, path: str) -> str | None:
        """The last commit up to this revision that touched (or removed) a file; None if no commit
        did."""
        full = self._prefix + path
        if full not in self._known and not self._read_history:
            self._asked += 1
            if self._asked > _SINGLE_QUESTIONS:
                self._read_history = True
                self._known = self._walk() | self._known
        if full not in self._known:
            # A path that the whole history does not mention never existed; a folder means its
            # files.
            is_nowhere = self._read_all and not full.endswith("/")
            self._known[full] = None if is_nowhere else self._single(full)
        return self._known[full]

    def _single(self, path: str) -> str | None:
        argv = ("log", "-1", "--format=%H", "--no-renames", self._revision, "--", path)
        return os.fsdecode(self._log(*argv)).rstrip("\n") or None

    def _walk(self) -> dict[str, str | None]:
        """The last commit of each file in one walk, newest commit first. Where the output is cut,
        the entries before it are still right. -c: a merge touches the files that differ from all
        its parents."""
        out = self._log(
            "log", "-z", "-c", "--name-only", "--no-renames", "--format=%x01%H",
            f"--max-count={_HISTORY_COMMITS}", self._revision,
            *(["--", self._prefix] if self._prefix else []),
        )  # fmt: skip
        whole = out[
            : out.rfind(b"\0") + 1
        ]  # the last name is cut: it may be another file's, or none
        found: dict[str, str | None] = {}
        commit, commits = None, 0
        for match in _TOKEN.finditer(whole):
            start = _COMMIT.fullmatch(match[0])
            if start:
                commit, commits = start[1].decode("ascii"), commits + 1
            else:
                found.setdefault(os.fsdecode(match[0].removeprefix(b"\n")), commit)
        self._read_all = len(out) < _HISTORY_BYTES and commits < _HISTORY_COMMITS
        return found

    def _log(self, *argv: str) -> bytes:
        if self._spent_s > _PATIENCE_S:
            raise SourceError(
                f"reading the history of {self._revision[:12]} takes longer than"
                f" {_PATIENCE_S:g} s; follow a repository with a shorter history"
            )
        began = time.monotonic()
        done = self._objects.git_beginning(*argv, most_bytes=_HISTORY_BYTES)
        self._spent_s += time.monotonic() - began
        if done.code != 0:
            raise SourceError(
                f"the history of {self._revision[:12]} cannot be read: {done.message}"
            )
        return done.stdout
