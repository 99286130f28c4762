"""Which documents of a file are ours, and which of these no schema can judge. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reconciler import __version__
from reconciler.api.kinds import KINDS
from reconciler.api.meta import API_VERSION, DEFAULT_NAMESPACE, GROUP, ObjectRef
from reconciler.api.problem import RULES, Problem
from reconciler.flexinfer.translate import unmade, with_cache
from reconciler.foreign_kinds import IN_OUR_GROUP
from reconciler.source import places
from reconciler.source.backends import formats
from reconciler.source.kin import foreign_kind, is_kin, is_read, not_read, renamed_kind
from reconciler.source.mark import has_nearly_our_group, is_meant_as_ours
from reconciler.source.places import FieldPlaces, Place, field_path
from reconciler.source.suggest import closest, did_you_mean

MAX_DEPTH = 128

_VERSION = re.compile(rf"{re.escape(GROUP)}/v[0-9]+((alpha|beta)[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of our kinds, or of one that only LLMKube has, as plain JSON data. `index`
    counts the file's documents from 0."""

    index: int
    kind: str
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unfit:
    """A document of our group that is not checked against a schema. `is_newer`: its only problem is
    a kind or version that this program does not know."""

    index: int
    content: dict[Any, Any]
    problems: tuple[Problem, ...]
    is_newer: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """The content of a file. `others` counts documents of other groups; `whole` are problems of the
    file, or of parts that are not our documents: they have no ref. `kin` are warnings about
    documents that say what ours say, and are not read."""

    documents: tuple[Document, ...]
    others: int
    whole: tuple[Problem, ...]
    unfit: tuple[Unfit, ...] = ()
    kin: tuple[Problem, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        return (*self.whole, *self.kin, *(p for unfit in self.unfit for p in unfit.problems))


def select(path: str, text: Callable[[], str], loaded: list[Any], *, has_tags: bool) -> Reading:
    """Sort the parsed documents of a file. Never raises: each error becomes a Problem. `has_tags`:
    the file may have tags of YAML."""
    at = _Positions(path, text)
    documents: list[Document] = []
    problems: list[Problem] = []
    unfit: list[Unfit] = []
    kin: list[Problem] = []
    others = 0
    for index, content in enumerate(loaded):
        version = content.get("apiVersion") if isinstance(content, dict) else None
        if not isinstance(version, str) or not version.startswith(_OURS):
            if stray := _stray(content):
                placed = tuple(at.placed(index, [stray], ref_of(content)))
                unfit.append(Unfit(index, content, placed, is_newer=False))
                continue
            lists = list(_lists_of_ours(content))
            if isinstance(content, dict) and is_kin(content):
                if is_read(content):
                    content = with_cache(content, loaded, formats())
                unread, mistakes = _of_kin(content, has_tags=has_tags)
                kin += at.placed(index, unread, None)
                if mistakes:
                    placed = tuple(at.placed(index, mistakes, None))
                    unfit.append(Unfit(index, content, placed, is_newer=False))
                    continue
                if not unread:
                    documents.append(Document(index, content["kind"], content))
                    continue
            problems += at.placed(index, lists, None)
            others += content is not None and not lists
            continue
        if instead := foreign_kind(content):
            kin += at.placed(index, [("NotRead", "kind", instead)], None)
            others += 1
            continue
        findings = list(_unfit(content, has_tags=has_tags))
        if findings:
            ref = ref_of(content)
            placed = tuple(at.placed(index, findings, ref))
            unfit.append(Unfit(index, content, placed, ref is not None and _is_newer(content)))
        else:
            documents.append(Document(index, content["kind"], content))
    return Reading(tuple(documents), others, tuple(problems), tuple(unfit), tuple(kin))


def _of_kin(
    content: dict[Any, Any], *, has_tags: bool
) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """Why a document of kin is not read, and what no schema can judge in it; both empty: it is
    read."""
    if not is_read(content):
        return [("NotRead", "kind", not_read(content))], []
    if has_tags or not _is_json(content):
        odd = list(_odd_values(content, ()))
        if odd:
            return [], [(rule, field_path(parts), text) for rule, parts, text in odd]
    why = unmade(content, formats())
    return [why] if why else [], []


def ref_of(content: dict[Any, Any]) -> ObjectRef | None:
    """The identity of a document that is not a valid object, if it has one; a misspelt kind is read
    as the nearest one."""
    kind, metadata = content.get("kind"), content.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return None
    if not isinstance(kind, str):
        return None
    kind = kind if kind in KINDS or kind in IN_OUR_GROUP else closest(kind, KINDS) or kind
    namespace = metadata.get("namespace", DEFAULT_NAMESPACE)
    namespaced = kind not in KINDS or KINDS[kind].namespaced
    return ObjectRef(kind, str(namespace) if namespaced else "", metadata["name"])


def is_too_deep(content: object) -> bool:
    """Whether a document is nested too deep, checked without recursion."""
    level: list[Any] = [content]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for value in level
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


def _stray(content: object) -> tuple[str, str, str] | None:
    """(rule, field, message) of a document that was meant to be ours and names another group."""
    if not isinstance(content, dict):
        return None
    version, right = content.get("apiVersion"), f"write {API_VERSION}"
    is_our_kind = content.get("kind") in tuple(KINDS)  # a list is not hashable
    if "apiVersion" not in content:
        is_meant = is_our_kind and {"metadata", "spec"} <= content.keys()
        return ("UnknownKind", "", f"apiVersion is missing; {right}") if is_meant else None
    if not isinstance(version, str) or version.startswith(_OURS):
        return None
    if has_nearly_our_group(version) or (is_our_kind and is_meant_as_ours(version)):
        return "UnknownKind", "apiVersion", f"{json.dumps(version)} is not our group; {right}"
    return None


def _lists_of_ours(content: object) -> Iterator[tuple[str, str, str]]:
    """The output of `kubectl get -o yaml`, and documents without --- between them: their items must
    not be ignored silently."""
    is_object = isinstance(content, dict)
    items = content.get("items") if isinstance(content, dict) else content
    if isinstance(content, dict) and (tag := _tag_of(content)) and _is_meant(content[tag]):
        yield "UnknownKind", "", _no_tag(tag)
    if isinstance(items, list) and any(map(_is_meant, items)):
        what, field = ("a List", "kind") if is_object else ("a list of documents", "")
        remedy = "write its items as documents of their own, with --- between them"
        yield "UnknownKind", field, f"{what} is not read; {remedy}"


def _is_meant(item: object) -> bool:
    version = item.get("apiVersion") if isinstance(item, dict) else None
    is_ours = isinstance(version, str) and version.startswith(_OURS)
    return is_ours or _stray(item) is not None


class _Positions:
    """What is wrong with documents of one file, with its lines: located once, and only if asked."""

    def __init__(self, path: str, text: Callable[[], str]) -> None:
        self._path, self._text = path, text

    @cached_property
    def _located(self) -> tuple[FieldPlaces, ...]:
        return places.locate(self._text())

    def placed(
        self, index: int, findings: list[tuple[str, str, str]], ref: ObjectRef | None
    ) -> Iterator[Problem]:
        """`findings`: the rule, field and message of each mistake in a document."""
        for rule, field, message in findings:
            located = self._located
            place = located[index].find(field) if index < len(located) else Place(1, 1)
            severity = RULES[rule].severity
            yield Problem(self._path, place.line, place.column, field, severity, rule, message, ref)


def _unfit(content: dict[Any, Any], *, has_tags: bool) -> Iterator[tuple[str, str, str]]:
    """(rule, field, message) of documents that are not checked against a schema."""
    kind = content.get("kind")
    if content["apiVersion"] != API_VERSION:
        yield "UnknownKind", "apiVersion", _no_version(content["apiVersion"])
    if "kind" not in content:
        yield "UnknownKind", "", f"kind is missing; write one of {', '.join(KINDS)}"
    elif not isinstance(kind, str) or (kind not in KINDS and kind not in IN_OUR_GROUP):
        hint = did_you_mean(kind, KINDS) or f"; write one of {', '.join(KINDS)}"
        hint = renamed_kind(kind) or hint
        yield "UnknownKind", "kind", f"no such kind{hint}"
    if has_tags or not _is_json(content):
        odd = _odd_values(content, ())
        yield from ((rule, field_path(parts), text) for rule, parts, text in odd)


def _no_version(version: str) -> str:
    if _VERSION.fullmatch(version) is None:
        return f"no such version; write {API_VERSION}"
    own = version.rpartition("/")[2]
    ours = f"{API_VERSION}, the one of fleet-reconciler {__version__}"
    return f"no such version as {own}; write {ours}, or upgrade to one that knows {own}"


def _is_newer(content: dict[Any, Any]) -> bool:
    """Whether a later version of this program may know the document: a misspelling does not
    count."""
    kind, version = content["kind"], content["apiVersion"]
    return (
        _VERSION.fullmatch(version) is not None
        and (kind in KINDS or closest(kind, KINDS) is None)
        and not any(_odd_values(content, ()))
    )


def _is_json(content: dict[Any, Any]) -> bool:
    """Whether there is certainly nothing odd, as in nearly every document: a quick test."""
    level: list[Any] = [content]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if type(value) is dict and set(map(type, value)) <= {str}:
                below += [item for item in value.values() if type(item) not in _PLAIN]
            elif type(value) is list:
                below += [item for item in value if type(item) not in _PLAIN]
            else:
                return False
        if not below:
            return True
        level = below
    return False


def _odd_values(
    value: object, parts: tuple[str | int, ...]
) -> Iterator[tuple[str, tuple[str | int, ...], str]]:
    """Values that YAML has and JSON does not."""
    if len(parts) > MAX_DEPTH:
        yield "Schema", parts, f"nested deeper than {MAX_DEPTH} levels"
    elif isinstance(value, dict):
        if tag := _tag_of(value):
            yield "Schema", parts, _no_tag(tag)
        for key, item in value.items():
            if type(key) is not str:
                written = json.dumps(key)  # as in YAML: true, null, 1
                yield "Schema", (*parts, written), f"the key {written} is not text; quote it"
            elif type(item) not in _PLAIN:
                yield from _odd_values(item, (*parts, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if type(item) not in _PLAIN:
                yield from _odd_values(item, (*parts, index))
    elif isinstance(value, float) and not math.isfinite(value):
        yield "Schema", parts, f"{value} is not a usable number; write a finite one"


def _no_tag(tag: str) -> str:
    return f"a tag ({'!' if tag == '!!' else tag}) is not read; remove it"


def _tag_of(value: dict[Any, Any]) -> str | None:
    """The parser makes a mapping of a value with a tag of one's own: `!x a` is `{"!x": a}`, and
    `! a` is `{"!!": a}`."""
    key = next(iter(value), None) if len(value) == 1 else None
    return key if isinstance(key, str) and key.startswith("!") else None


_OURS = f"{GROUP}/"
_PLAIN = frozenset({str, int, bool, type(None)})
