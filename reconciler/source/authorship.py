"""Which commits touched a file, newest first: a plan names one of them as the cause of a change."""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from reconciler.api.errors import SourceError

if TYPE_CHECKING:
    from reconciler.source.objects import GitObjects

_TOKEN = re.compile(rb"[^\0]+")
_COMMIT = re.compile(rb"\x01([0-9a-f]{40,64})")
_SINGLE_QUESTIONS = 3  # asked file by file; after that the history is read once for all
_STAGES = (1, 16, 0)  # commits that a single question asks for; most are answered by the newest
_HISTORY_COMMITS = 20_000  # read at once: about a second; older files are asked for one by one
_HISTORY_BYTES = 16 * 2**20  # likewise: a commit may change every file there is
_PATIENCE_S = 120.0  # for all queries about one revision
_ROWS = ("--raw", "-z", "--no-renames", "--no-abbrev")


class Touch(NamedTuple):
    """What a commit did to a file: its blob in each parent and in the commit, by object id. None:
    the file is not there. `parents` are revisions."""

    commit: str
    olds: tuple[str | None, ...]
    new: str | None

    @property
    def parents(self) -> tuple[str, ...]:
        return tuple(f"{self.commit}^{number + 1}" for number in range(len(self.olds)))


class Row(NamedTuple):
    """One file that differs between two commits. `path` is relative to the fleet's folder."""

    path: str
    old: str | None
    new: str | None


class Authorship:
    """Who touched the files of one revision. `root` is the folder of the repository that paths are
    relative to."""

    def __init__(self, objects: GitObjects, revision: str, root: str = "") -> None:
        self._objects = objects
        self._revision = revision
        self._prefix = f"{root}/" if root else ""
        self._last: dict[str, str | None] = {}
        self._single: set[str] = set()
        self._answers: dict[tuple[str, str, int], tuple[Touch, ...]] = {}
        self._history: _History | None = None
        self._spent_s = 0.0

    def commit_of(self, path: str) -> str | None:
        """The last commit up to this revision that touched (or removed) a file, or any file of a
        folder (`path/`); None if no commit did."""
        if path not in self._last:
            touch = next(self.touches(path), None)
            self._last[path] = touch.commit if touch else None
        return self._last[path]

    def is_newer(self, commit: str, than: str) -> bool:
        """Whether a commit builds on another one."""
        return self._objects.is_ancestor(than, commit)

    def touches(self, path: str, since: str | None = None) -> Iterator[Touch]:
        """The commits up to this revision that touched a file, newest first. `since`: only those
        before this commit's parent, as `Touch.parents` names it. A merge touches the files that
        differ from all its parents."""
        full = self._prefix + path
        if self._history is None and full not in self._single:
            if len(self._single) < _SINGLE_QUESTIONS:
                self._single.add(full)
            else:
                self._history = self._walk()
        history = self._history
        if history is None or full.endswith("/"):  # a folder means its files
            yield from self._ask(full, since or self._revision, _STAGES)
            return
        last = None
        for touch in history.touches(full, since.partition("^")[0] if since else None):
            last = touch
            yield touch
        if not history.is_whole:
            older = f"{last.commit}^1" if last and last.olds else since or self._revision
            yield from self._ask(full, older, _STAGES)

    def knows(self, revision: str) -> bool:
        return self._objects.resolve(f"{revision}^{{commit}}") is not None

    def since(self, revision: str) -> Iterator[Row]:
        """The files that differ between another commit and this revision."""
        yield from self.between(revision, self._revision)

    def beside(self, commit: str, path: str, most: int) -> Iterator[str]:
        """Blobs of the next files by name, if all was read: likely the next to be asked for. Of
        each as many commits ago as this one is for this file."""
        if self._history is not None:
            yield from self._history.beside(commit, self._prefix + path, most)

    def between(self, parent: str, commit: str) -> Iterator[Row]:
        """The files that differ between two commits; none where there is no such parent."""
        out = self._run("diff-tree", "-r", *_ROWS, parent, commit, missing_is_empty=True)
        for meta, path in _rows(out):
            name = os.fsdecode(path)
            if name.startswith(self._prefix):
                olds, new = _oids(meta)
                yield Row(name.removeprefix(self._prefix), olds[0], new)

    def _ask(self, full: str, revision: str, stages: Iterable[int]) -> Iterator[Touch]:
        """About one file: in stages, as git would read a long history to its end for the rest."""
        told = 0
        for count in stages:
            question = full, revision, count
            if question not in self._answers:
                limit = (f"--max-count={count}",) if count else ()
                out = self._run(
                    "log", "-c", *_ROWS, "--format=%x01%H", *limit, revision, "--", full,
                    missing_is_empty=revision != self._revision,
                )  # fmt: skip
                self._answers[question] = tuple(_touches(out))
            found = self._answers[question]
            yield from found[told:]
            told = len(found)
            if not count or told < count:
                return

    def _walk(self) -> _History:
        """All commits in one walk. Where the output is cut, what is before it is still right."""
        out = self._run(
            "log", "-c", *_ROWS, "--format=%x01%H",
            f"--max-count={_HISTORY_COMMITS}", self._revision,
            *(["--", self._prefix] if self._prefix else []),
        )  # fmt: skip
        return _History(out)

    def _run(self, *argv: str, missing_is_empty: bool = False) -> bytes:
        if self._spent_s > _PATIENCE_S:
            raise SourceError(
                f"reading the history of {self._revision[:12]} takes longer than"
                f" {_PATIENCE_S:g} s; follow a repository with a shorter history"
            )
        began = time.monotonic()
        done = self._objects.git_beginning(*argv, most_bytes=_HISTORY_BYTES)
        self._spent_s += time.monotonic() - began
        if done.code != 0 and missing_is_empty:
            return b""  # the first commit has no parent, nor has the last one of a shallow clone
        if done.code != 0:
            raise SourceError(
                f"the history of {self._revision[:12]} cannot be read: {done.message}"
            )
        return done.stdout


class _History:
    """The output of one walk, and where in it each file is: the output is smaller than what it
    says."""

    def __init__(self, out: bytes) -> None:
        whole = out[: out.rfind(b"\0") + 1]  # the last name is cut: it may be another file's
        self._out = whole
        self._commits: list[int] = []
        self._rows: dict[bytes, list[int]] = {}
        self._names: list[bytes] | None = None
        meta = -1
        for match in _TOKEN.finditer(whole):
            if meta >= 0:
                self._rows.setdefault(match[0], []).append(meta)
                meta = -1
            elif _COMMIT.fullmatch(match[0]):
                self._commits.append(match.start())
            elif match[0].lstrip(b"\n").startswith(b":"):
                meta = match.start()
        self.is_whole = len(out) < _HISTORY_BYTES and len(self._commits) < _HISTORY_COMMITS

    def touches(self, full: str, before: str | None) -> Iterator[Touch]:
        start = self._out.find(b"\x01" + before.encode()) if before else -1
        for at in self._rows.get(os.fsencode(full), ()):
            commit = self._commits[bisect_right(self._commits, at) - 1]
            if commit > start:
                yield Touch(self._token(commit)[1:].decode("ascii"), *_oids(self._token(at)))

    def beside(self, commit: str, full: str, most: int) -> Iterator[str]:
        name, start = os.fsencode(full), self._out.find(b"\x01" + commit.encode())
        depth = bisect_right(self._rows.get(name, ()), start)
        if self._names is None:
            self._names = sorted(n for n in self._rows if n.endswith((b".yaml", b".yml")))
        first = bisect_right(self._names, name)
        for other in self._names[first : first + most]:
            for at in self._rows[other][depth : depth + 1]:
                olds, new = _oids(self._token(at))
                yield from (oid for oid in (*olds, new) if oid)

    def _token(self, at: int) -> bytes:
        return self._out[at : self._out.index(b"\0", at)]


def _touches(out: bytes) -> Iterator[Touch]:
    commit = ""
    for meta, path in _rows(out):
        if path:
            yield Touch(commit, *_oids(meta))
        else:
            commit = meta[1:].decode("ascii")


def _rows(out: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(facts, path) of each file, and (\\x01commit, nothing) before those of a commit."""
    meta = b""
    for match in _TOKEN.finditer(out[: out.rfind(b"\0") + 1]):
        if meta:
            yield meta, match[0]
            meta = b""
        elif _COMMIT.fullmatch(match[0]):
            yield match[0], b""
        elif match[0].lstrip(b"\n").startswith(b":"):
            meta = match[0]


def _oids(meta: bytes) -> tuple[tuple[str | None, ...], str | None]:
    """`:MODE MODE OID OID M`; of a merge one colon, mode and id more for each further parent."""
    facts = meta.lstrip(b"\n")
    parents = len(facts) - len(facts.lstrip(b":"))
    oids = facts.decode("ascii").split()[parents + 1 : 2 * parents + 2]
    *olds, new = (None if set(oid) == {"0"} else oid for oid in oids)
    return tuple(olds), new
