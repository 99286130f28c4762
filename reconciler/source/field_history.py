"""The commit that gave a field of an object its value, wherever the object stood then.

Versions of a document are compared by what they say. Comments, order and quotes are no change, nor
is another place: who indents a file, or moves a document, is not the cause of what it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from reconciler.api.kinds import KINDS
from reconciler.api.meta import ObjectRef
from reconciler.source.authorship import Authorship
from reconciler.source.documents import read_foreign
from reconciler.source.field_value import value_at
from reconciler.source.mark import may_be_ours
from reconciler.source.ours import ref_of
from reconciler.source.plain_edit import is_plain_edit
from reconciler.source.tree import is_candidate

Read = Callable[[Iterable[str]], Mapping[str, bytes]]
"""Blobs by object id: those that this copy has, and that are no longer than a fleet's file."""

_Documents = Mapping[ObjectRef, Any]
_Blob = str | bytes | None  # an object id, or bytes that no commit has; None: no file
_Versions = tuple[str, str | None, _Blob]  # a file, as it was and as it is
_MARKER = re.compile(rb"^(?:---|\.\.\.)(?=\s|\Z)", re.MULTILINE)
_AT_ONCE = 1_000  # files, of which one question to git brings the blobs
_FIRST = 8  # files beside the first that is asked for; each question that follows brings more
_KEPT = 1_000  # comparisons of two blobs; each holds the documents that differ, mostly one
_KEPT_BYTES = 16 * 2**20  # of blobs


class ChangedBy(NamedTuple):
    """Who gave a field its value. `commit` None: it is not committed."""

    commit: str | None


class Edited(NamedTuple):
    """A file that is not as it was committed: its blob there and its bytes now; None where it is
    not there."""

    old: str | None
    data: bytes | None


class _Step(NamedTuple):
    """One change of a file: what it was in each parent, and what it became."""

    commit: str | None
    olds: tuple[str | None, ...]
    new: _Blob


class _Before(NamedTuple):
    """An object before a step, and its file then. `document` None: there was no such object."""

    document: Any
    path: str


class _Unreadable:
    """A version that is not YAML, or not in this copy: what it says is not known."""


_UNREADABLE = _Unreadable()


class FieldHistory:
    """Who changed what in one revision. `edited` are files that differ from its commit; `subdir` is
    where the fleet is."""

    def __init__(
        self,
        authors: Authorship,
        read: Read,
        edited: Mapping[str, Edited] | None = None,
        subdir: str = "",
    ) -> None:
        self._authors = authors
        self._read = read
        self._edited = edited or {}
        self._subdir = subdir
        self._blobs: dict[str, bytes | None] = {}
        self._blob_bytes = 0
        self._ahead = _FIRST
        self._compared: dict[tuple[_Blob, _Blob], tuple[_Documents | None, _Documents | None]] = {}
        self._departed: dict[tuple[str | None, int], Mapping[ObjectRef, _Before]] = {}
        self._known: dict[tuple[str, ObjectRef, str], ChangedBy | None] = {}

    def changed_by(self, path: str, ref: ObjectRef, field: str = "") -> ChangedBy | None:
        """Who gave a field of a declared object its value, or took it away; without a field, who
        changed the object last. None: no version of the object stated the field.

        An item of a list may be named instead of counted: `spec.models["phi"].contextSize`.
        """
        key = path, ref, field
        if key not in self._known:
            self._known[key] = self._search(path, ref, field)
        return self._known[key]

    def is_newer(self, commit: str, than: str) -> bool:
        """Whether a commit builds on another one."""
        return self._authors.is_newer(commit, than)

    def removed_by(self, path: str, ref: ObjectRef) -> ChangedBy | None:
        """Who removed an object that was in this file, or in one that it moved to."""
        seen: set[str] = set()
        while path not in seen:
            seen.add(path)
            for step in self._steps(path):
                parents = self._in_parents(step, path, ref)
                gone = [b for b in parents if isinstance(b, _Before) and b.document is not None]
                if gone and self._after(step, ref) is None:
                    there = self._arrived(step, ref)
                    if there is None or there in seen:
                        return ChangedBy(step.commit)
                    path = there
                    break
        return None

    def changed_since(self, revision: str) -> tuple[_Documents, _Documents] | None:
        """The documents that another commit and this revision do not share: what it has of them,
        and what is there now. None: the commit is not here."""
        if not self._authors.knows(revision):
            return None
        was: dict[ObjectRef, Any] = {}
        now: dict[ObjectRef, Any] = {}
        rows: dict[str, tuple[str | None, _Blob]]
        rows = {row.path: (row.old, row.new) for row in self._authors.since(revision)}
        rows |= {p: (rows.get(p, (e.old,))[0], e.data) for p, e in self._edited.items()}
        ours = [(p, *versions) for p, versions in rows.items() if is_candidate(p, self._subdir)]
        for _, before, after in self._compared_one_by_one(ours):
            was |= before
            now |= after
        return was, now

    def _search(self, path: str, ref: ObjectRef, field: str) -> ChangedBy | None:
        now: Any = None  # what it says: known from the first step that touched it
        is_known = False
        unread: ChangedBy | None = None  # who touched it since the last version that can be read
        steps = self._steps(path)
        while (step := next(steps, None)) is not None:
            by = ChangedBy(step.commit)
            if not (is_known or unread or field) and self._is_plain(step, path, ref):
                return by
            parents = self._in_parents(step, path, ref)
            if None in parents:
                continue
            after = self._after(step, ref)
            if not isinstance(after, _Unreadable):
                if not is_known:
                    now, is_known = _value_of(after, field), True
                elif not _is_same(_value_of(after, field), now):
                    continue  # on another branch, which did not prevail
                else:
                    unread = None
            if any(isinstance(before, _Unreadable) for before in parents):
                unread = unread or by
                continue
            known_parents = [before for before in parents if isinstance(before, _Before)]
            same = [
                number
                for number, before in enumerate(known_parents)
                if before.document is not None and _is_same(_value_of(before.document, field), now)
            ]
            if not same:
                existed = any(before.document is not None for before in known_parents)
                return (unread or by) if now is not None or existed else None
            unread = None
            if known_parents[same[0]].path != path:
                path = known_parents[same[0]].path
                steps = self._steps(path, step, same[0])
        return unread

    def _steps(self, path: str, since: _Step | None = None, parent: int = 0) -> Iterator[_Step]:
        """The changes of a file, newest first; `since`: those that led to this parent of it."""
        if since is None and path in self._edited:
            yield _Step(None, (self._edited[path].old,), self._edited[path].data)
        before = f"{since.commit}^{parent + 1}" if since is not None and since.commit else None
        for touch in self._authors.touches(path, before):
            yield _Step(*touch)

    def _is_plain(self, step: _Step, path: str, ref: ObjectRef) -> bool:
        """Whether the latest step of a file surely changed the object that is in it now, with no
        need to parse it: the file is new, or one line of it was edited."""
        if not any(step.olds):
            return not self._came(step, ref)
        if len(step.olds) > 1:
            return False
        self._load_beside(step, path)
        old, new = self._bytes(step.olds[0]), self._bytes(step.new)
        return old is not None and new is not None and is_plain_edit(old, new)

    def _in_parents(
        self, step: _Step, path: str, ref: ObjectRef
    ) -> list[_Before | _Unreadable | None]:
        """The object in each parent of a step."""
        self._load_beside(step, path)
        return [self._before(step, number, path, ref) for number in range(len(step.olds))]

    def _before(
        self, step: _Step, number: int, path: str, ref: ObjectRef
    ) -> _Before | _Unreadable | None:
        """The object in one parent of a step; None: the step did not touch it."""
        old, new = self._compare(step.olds[number], step.new)
        if old is not None and ref in old:
            return _Before(old[ref], path)
        if ref not in (new or {}) and not (old is None and new is None):
            return None
        if old is None:
            return _UNREADABLE
        return self._left(step.commit, number).get(ref) or _Before(None, path)

    def _after(self, step: _Step, ref: ObjectRef) -> Any:  # noqa: ANN401 - any JSON
        _, new = self._compare(step.olds[0], step.new)
        return _UNREADABLE if new is None else new.get(ref)

    def _came(self, step: _Step, ref: ObjectRef) -> bool:
        """Whether an object came to a file from another one."""
        return any(ref in self._left(step.commit, number) for number in range(len(step.olds)))

    def _left(self, commit: str | None, number: int) -> Mapping[ObjectRef, _Before]:
        """The objects that left files in a step: any may have come to another."""
        key = commit, number
        if key not in self._departed:
            left: dict[ObjectRef, _Before] = {}
            for path, was, is_ in self._differing(commit, number, 1):
                left |= {ref: _Before(was[ref], path) for ref in was.keys() - is_.keys()}
            self._departed[key] = left
        return self._departed[key]

    def _arrived(self, step: _Step, ref: ObjectRef) -> str | None:
        """The file that an object came to in a step."""
        rows = self._differing(step.commit, 0, 2)
        return next((path for path, was, is_ in rows if ref in is_ and ref not in was), None)

    def _differing(
        self, commit: str | None, number: int, needed: int
    ) -> Iterator[tuple[str, _Documents, _Documents]]:
        """The files that a step changed, with the documents that differ; `needed`: only files that
        were there before (1), or are after (2)."""
        rows: list[_Versions]
        if commit is None:
            rows = [(path, edited.old, edited.data) for path, edited in self._edited.items()]
        else:
            between = self._authors.between(f"{commit}^{number + 1}", commit)
            rows = [(row.path, row.old, row.new) for row in between]
        rows = [row for row in rows if row[needed] is not None and is_candidate(row[0])]
        yield from self._compared_one_by_one(rows)

    def _compared_one_by_one(
        self, rows: Sequence[_Versions]
    ) -> Iterator[tuple[str, _Documents, _Documents]]:
        """Each file, with the documents that differ. Where a blob is not at hand, one question
        brings it with those that are next, as many as one answer holds."""

        def following(number: int) -> Iterator[str]:
            for at in range(number, min(number + _AT_ONCE, len(rows))):
                yield from (oid for oid in rows[at][1:] if isinstance(oid, str))

        for number, (path, old, new) in enumerate(rows):
            self._load((old, new), following(number))
            was, is_ = self._compare(old, new)
            yield path, was or {}, is_ or {}

    def _compare(self, old: _Blob, new: _Blob) -> tuple[_Documents | None, _Documents | None]:
        """The documents that only one of two versions has; None of one that cannot be read."""
        key = old, new
        if key not in self._compared:
            if len(self._compared) >= _KEPT:
                self._compared.clear()
            parts, others = self._parts(old), self._parts(new)
            self._compared[key] = (
                None if parts is None else _documents(parts, {*(others or ())}),
                None if others is None else _documents(others, {*(parts or ())}),
            )
        return self._compared[key]

    def _parts(self, blob: _Blob) -> list[bytes] | None:
        """The text of each document of a file."""
        if blob is None:
            return []
        data = self._bytes(blob)
        return None if data is None else _MARKER.split(data.replace(b"\r\n", b"\n"))

    def _bytes(self, blob: _Blob) -> bytes | None:
        """What a blob says; None: it is not here."""
        if not isinstance(blob, str):
            return blob
        self._load((blob,))
        return self._blobs[blob]

    def _load_beside(self, step: _Step, path: str) -> None:
        """Have the versions of a step at hand, with those of files that are likely to be next."""
        if step.commit is not None:
            self._load((*step.olds, step.new), self._authors.beside(step.commit, path, self._ahead))

    def _load(self, needed: Iterable[_Blob], beside: Iterable[str] = ()) -> None:
        """Have these blobs at hand; where any is missing, with those likely to be next."""
        oids: dict[str, None] = dict.fromkeys(oid for oid in needed if isinstance(oid, str))
        if all(oid in self._blobs for oid in oids):
            return
        if self._blob_bytes > _KEPT_BYTES:
            self._blobs, self._blob_bytes = {}, 0
        wanted = {**oids, **dict.fromkeys(beside)}
        self._ahead = min(_AT_ONCE, self._ahead * 4)
        contents = self._read(oid for oid in wanted if oid not in self._blobs)
        self._blobs |= {**{oid: None for oid in oids if oid not in self._blobs}, **contents}
        self._blob_bytes += sum(map(len, contents.values()))


def _documents(parts: Iterable[bytes], others: set[bytes]) -> _Documents | None:
    text = b"\n---\n".join(part for part in parts if part not in others)
    if not may_be_ours(text):
        return {}
    try:
        contents = read_foreign(text)
    except ValueError:
        return None
    ours = (c for c in contents if isinstance(c, dict) and c.get("kind") in tuple(KINDS))
    return {ref: content for content in ours if (ref := ref_of(content))}


def _value_of(document: Any, field: str) -> Any:  # noqa: ANN401 - any JSON
    """What a document says of a field; None: nothing."""
    return None if document is None else value_at(document, field)


def _is_same(one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether two values are the same, where 1 and true, or 1 and 1.0, are not."""
    return one == other and _has_same_types(one, other)


def _has_same_types(one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether equal values have the same types."""
    if isinstance(one, dict):
        return all(_has_same_types(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(_has_same_types, one, other))
    return type(one) is type(other)
