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

_ENTRY = re.compile(rb"\x01([0-9a-f]{40,64})\0|(:[^\0]*)\0([^\0]+)\0")  # a commit, or a file of it
_SINGLE_QUESTIONS = 3  # asked file by file; after that the history is read for all
_PAGES = (4, 256)  # commits of the first parts of it: often they tell all, and each may be long
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
        self._pages: list[_Page] = []
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
        if not self._pages and full not in self._single:
            if len(self._single) < _SINGLE_QUESTIONS:
                self._single.add(full)
            else:
                self._read_on()
        if not self._pages or full.endswith("/"):  # a folder means its files
            yield from self._ask(full, since or self._revision, _STAGES)
            return
        last = None
        for touch in self._in_pages(full, since.partition("^")[0] if since else None):
            last = touch
            yield touch
        if not self._pages[-1].is_end or (since and last is None):
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
        page = next((page for page in self._pages if commit in page.commits), None)
        if page is not None:
            yield from page.beside(commit, self._prefix + path, most)

    def between(self, parent: str, commit: str) -> Iterator[Row]:
        """The files that differ between two commits; none where there is no such parent."""
        out = self._run("diff-tree", "-r", *_ROWS, parent, commit, missing_is_empty=True)
        for entry in _entries(out):
            name = os.fsdecode(entry[3])
            if name.startswith(self._prefix):
                olds, new = _oids(entry[2])
                yield Row(name.removeprefix(self._prefix), olds[0], new)

    def _ask(self, full: str, revision: str, stages: Iterable[int]) -> Iterator[Touch]:
        """About one file: in stages, as git would read a long history to its end for the rest."""
        yielded = 0
        for count in stages:
            question = full, revision, count
            if question not in self._answers:
                limit = (f"--max-count={count}",) if count else ()
                out = self._run(
                    "log", "-c", *_ROWS, "--format=%x01%H", *limit, revision, "--", full,
                    missing_is_empty=revision != self._revision,
                )  # fmt: skip
                self._answers[question] = tuple(_touches(out))
            touches = self._answers[question]
            yield from touches[yielded:]
            yielded = len(touches)
            if not count or yielded < count:
                return

    def _in_pages(self, full: str, before: str | None) -> Iterator[Touch]:
        """What all that is read tells of a file, and then more of it. `before`: from the commit
        after this one."""
        is_there, number = before is None, 0
        while number < len(self._pages) or self._read_on():
            page = self._pages[number]
            if is_there:
                yield from page.touches(full)
            elif before in page.commits:
                is_there = True
                yield from page.touches(full, before)
            number += 1

    def _read_on(self) -> bool:
        """Read the next commits, with all their files; False: there are no more, or too many."""
        if self._pages and self._pages[-1].is_last:
            return False
        known_commits = sum(len(page.commits) for page in self._pages)
        left = _HISTORY_COMMITS - known_commits
        most = min(left, *_PAGES[len(self._pages) : len(self._pages) + 1])
        most_bytes = _HISTORY_BYTES - sum(len(page.out) for page in self._pages)
        out = self._run(
            "log", "-c", *_ROWS, "--format=%x01%H",
            f"--skip={known_commits}", f"--max-count={most}", self._revision,
            *(["--", self._prefix] if self._prefix else []),
            most_bytes=most_bytes,
        )  # fmt: skip
        self._pages.append(_Page(out, most, is_cut=len(out) >= most_bytes, is_limit=most == left))
        return True

    def _run(
        self, *argv: str, missing_is_empty: bool = False, most_bytes: int = _HISTORY_BYTES
    ) -> bytes:
        if self._spent_s > _PATIENCE_S:
            raise SourceError(
                f"reading the history of {self._revision[:12]} takes longer than"
                f" {_PATIENCE_S:g} s; follow a repository with a shorter history"
            )
        began = time.monotonic()
        done = self._objects.git_beginning(*argv, most_bytes=most_bytes)
        self._spent_s += time.monotonic() - began
        if done.code != 0 and missing_is_empty:
            return b""  # the first commit has no parent, nor has the last one of a shallow clone
        if done.code != 0:
            raise SourceError(
                f"the history of {self._revision[:12]} cannot be read: {done.message}"
            )
        return done.stdout


class _Page:
    """Some commits on end, and where in git's output each file of them is: the output is smaller
    than what it says. `is_end`: no commit is older; `is_last`: none is read after these."""

    def __init__(self, out: bytes, most: int, *, is_cut: bool, is_limit: bool) -> None:
        self.out = out
        self.commits: dict[str, int] = {}
        self._rows: dict[bytes, list[int]] = {}
        self._names: list[bytes] | None = None
        for entry in _entries(out):
            if entry[1]:
                self.commits[entry[1].decode("ascii")] = entry.start()
            else:
                self._rows.setdefault(entry[3], []).append(entry.start())
        self.is_end = not is_cut and len(self.commits) < most
        self.is_last = is_cut or is_limit or self.is_end
        self._order = [*self.commits]
        self._starts = [*self.commits.values()]

    def touches(self, full: str, before: str | None = None) -> Iterator[Touch]:
        start = -1 if before is None else self.commits[before]
        for at in self._rows.get(os.fsencode(full), ()):
            number = bisect_right(self._starts, at) - 1
            if self._starts[number] > start:
                yield Touch(self._order[number], *self._oids(at))

    def beside(self, commit: str, full: str, most: int) -> Iterator[str]:
        name = os.fsencode(full)
        depth = bisect_right(self._rows.get(name, ()), self.commits[commit])
        if self._names is None:
            self._names = sorted(n for n in self._rows if n.endswith((b".yaml", b".yml")))
        first = bisect_right(self._names, name)
        for other in self._names[first : first + most]:
            for at in self._rows[other][depth : depth + 1]:
                olds, new = self._oids(at)
                yield from (oid for oid in (*olds, new) if oid)

    def _oids(self, at: int) -> tuple[tuple[str | None, ...], str | None]:
        return _oids(self.out[at : self.out.index(b"\0", at)])


def _touches(out: bytes) -> Iterator[Touch]:
    commit = ""
    for entry in _entries(out):
        if entry[1]:
            commit = entry[1].decode("ascii")
        else:
            yield Touch(commit, *_oids(entry[2]))


def _entries(out: bytes) -> Iterator[re.Match[bytes]]:
    """The entries of an output that may be cut, also within a name."""
    return _ENTRY.finditer(out, 0, out.rfind(b"\0") + 1)


def _oids(meta: bytes) -> tuple[tuple[str | None, ...], str | None]:
    """`:MODE MODE OID OID M`; of a merge one colon, mode and id more for each further parent."""
    parents = len(meta) - len(meta.lstrip(b":"))
    oids = meta.decode("ascii").split()[parents + 1 : 2 * parents + 2]
    *olds, new = (None if set(oid) == {"0"} else oid for oid in oids)
    return tuple(olds), new
