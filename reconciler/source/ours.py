"""Which documents of a file are ours, and which of these are none that a schema can judge. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reconciler.api import KINDS
from reconciler.api.meta import API_VERSION, DEFAULT_NAMESPACE, GROUP, ObjectRef
from reconciler.problem import RULES, Problem
from reconciler.source import places
from reconciler.source.places import Place, field_path
from reconciler.source.suggest import closest, did_you_mean

MAX_DEPTH = 128

_VERSION = re.compile(rf"{re.escape(GROUP)}/v[0-9]+((alpha|beta)[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of ours as plain JSON data. `index` counts the file's documents from 0."""

    index: int
    kind: str
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unfit:
    """A document of our group that no schema is to be asked about. `is_newer`: nothing is wrong
    with it but a kind or a version that this program does not know."""

    index: int
    content: dict[Any, Any]
    problems: tuple[Problem, ...]
    is_newer: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file holds. `others` counts documents of other groups; `whole` are problems of the
    file, or of what in it is no document of ours: they have no ref."""

    documents: tuple[Document, ...]
    others: int
    whole: tuple[Problem, ...]
    unfit: tuple[Unfit, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        return (*self.whole, *(p for unfit in self.unfit for p in unfit.problems))


def select(path: str, text: str, loaded: list[Any]) -> Reading:
    """Sort what the reader made of a file. Never raises: what is wrong becomes a Problem."""
    documents: list[Document] = []
    problems: list[Problem] = []
    unfit: list[Unfit] = []
    others = 0
    for index, content in enumerate(loaded):
        version = content.get("apiVersion") if isinstance(content, dict) else None
        if not isinstance(version, str) or not version.startswith(f"{GROUP}/"):
            lists = [("UnknownKind", "kind", _SPLIT)] if _is_list_of_ours(content) else []
            problems += _placed(path, text, index, lists, None)
            others += content is not None and not lists
            continue
        found = list(_unfit(content))
        if found:
            ref = ref_of(content)
            said = tuple(_placed(path, text, index, found, ref))
            unfit.append(Unfit(index, content, said, ref is not None and _is_newer(content)))
        else:
            documents.append(Document(index, content["kind"], content))
    return Reading(tuple(documents), others, tuple(problems), tuple(unfit))


def ref_of(content: dict[Any, Any]) -> ObjectRef | None:
    """Who a document would have been that is no object, where it says so; a misspelt kind is taken
    for the one that it is near to."""
    kind, metadata = content.get("kind"), content.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return None
    if not isinstance(kind, str):
        return None
    kind = kind if kind in KINDS else closest(kind, KINDS) or kind
    namespace = metadata.get("namespace", DEFAULT_NAMESPACE)
    namespaced = kind not in KINDS or KINDS[kind].namespaced
    return ObjectRef(kind, str(namespace) if namespaced else "", metadata["name"])


_SPLIT = "a List is not read; write its items as documents of their own, with --- between them"


def _is_list_of_ours(content: object) -> bool:
    """What `kubectl get -o yaml` prints: nobody means its items to be left out."""
    items = content.get("items") if isinstance(content, dict) else None
    if not isinstance(items, list):
        return False
    versions = [item.get("apiVersion") for item in items if isinstance(item, dict)]
    return any(isinstance(v, str) and v.startswith(f"{GROUP}/") for v in versions)


def _placed(
    path: str,
    text: str,
    index: int,
    found: list[tuple[str, str, str]],
    ref: ObjectRef | None,
) -> Iterator[Problem]:
    if not found:
        return
    located = places.locate(text)
    for rule, field, message in found:
        place = located[index].find(field) if index < len(located) else Place(1, 1)
        severity = RULES[rule].severity
        yield Problem(path, place.line, place.column, field, severity, rule, message, ref)


def _unfit(content: dict[Any, Any]) -> Iterator[tuple[str, str, str]]:
    """(rule, field, message) of what no schema is to be asked about."""
    kind = content.get("kind")
    if content["apiVersion"] != API_VERSION:
        yield "UnknownKind", "apiVersion", f"no such version; write {API_VERSION}"
    if "kind" not in content:
        yield "UnknownKind", "", f"kind is missing; write one of {', '.join(KINDS)}"
    elif not isinstance(kind, str) or kind not in KINDS:
        hint = did_you_mean(kind, KINDS) or f"; write one of {', '.join(KINDS)}"
        yield "UnknownKind", "kind", f"no such kind{hint}"
    if not _is_json(content):
        odd = _odd_values(content, ())
        yield from ((rule, field_path(parts), text) for rule, parts, text in odd)


def _is_newer(content: dict[Any, Any]) -> bool:
    """Whether a later version of this program may know the document: a misspelling is none."""
    kind, version = content["kind"], content["apiVersion"]
    return (
        _VERSION.fullmatch(version) is not None
        and (kind in KINDS or closest(kind, KINDS) is None)
        and not any(_odd_values(content, ()))
    )


def _is_json(content: dict[Any, Any]) -> bool:
    """Whether it is sure that nothing is odd, as in nearly every document: quick, for the many."""
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
    """Values that YAML has and JSON has not."""
    if len(parts) > MAX_DEPTH:
        yield "Schema", parts, f"nested deeper than {MAX_DEPTH} levels"
    elif isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                written = json.dumps(key)  # as in YAML: true, null, 1
                yield "Schema", (*parts, written), f"the key {written} is no text; quote it"
            elif type(item) not in _PLAIN:
                yield from _odd_values(item, (*parts, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if type(item) not in _PLAIN:
                yield from _odd_values(item, (*parts, index))
    elif isinstance(value, float) and not math.isfinite(value):
        yield "Schema", parts, f"{value} is no number that can be used; write a finite one"


_PLAIN = frozenset({str, int, bool, type(None)})
