"""Two versions of the code asked the same, and what differs in their answers. Pure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.api.plain_json import parse_json

_WIDEST = 100
_ABSENT = object()
# Keys of the programs' JSON whose values are sentences for people.
_SENTENCES = frozenset({"message", "reasons", "held", "unknown"})


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended. `files` are those that it wrote."""

    code: int | None
    out: str
    err: str
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    case: str
    question: str
    where: str
    old: str
    new: str


def differences(
    case: str, question: str, old: Answer, new: Answer, *, messages: bool
) -> tuple[Difference, ...]:
    """Exit code, output and files; what is said to people with `messages` only."""
    sides = (_comparable(answer, messages=messages) for answer in (old, new))
    return tuple(Difference(case, question, *found) for found in _differing("", *sides))


def _comparable(answer: Answer, *, messages: bool) -> Any:
    try:
        out = parse_json(answer.out) if answer.out.strip() else None
    except ValueError:
        out = answer.out if messages else None
    kept = {"exit": answer.code, "out": _named(out), "file": dict(answer.files)}
    return kept | {"err": answer.err} if messages else _without_sentences(kept)


def _named(value: Any) -> Any:
    """Problems and changes by what they are about: one more of them moves none of the others."""
    if isinstance(value, dict):
        return {key: _named(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    items = defaultdict(list)
    for item in value:
        items[_name(item)].append(_short(item))
    return value if "" in items else dict(items)


def _name(item: Any) -> str:
    """Empty for what only its place in the list tells from others."""
    if not isinstance(item, dict):
        return ""
    if "rule" in item:
        return f"{item['path']}:{item['line']} {item['rule']}"
    ref, target = item.get("ref"), item.get("target") or item.get("node")
    return f"{target} {_spelt(ref)} {_spelt(item.get('object'))}".rstrip() if ref else ""


def _short(item: Any) -> Any:
    """Of a problem what its name does not tell."""
    if not isinstance(item, dict) or "rule" not in item:
        return item
    short = f"{item['severity']} {item['field']} (column {item['column']})"
    return {"is": short, "message": item["message"]}


def _spelt(ref: Any) -> str:
    return "/".join((ref["kind"], ref["namespace"], ref["name"])) if ref else ""


def _without_sentences(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_sentences(v) for k, v in value.items() if k not in _SENTENCES}
    return [_without_sentences(item) for item in value] if isinstance(value, list) else value


def _differing(where: str, old: Any, new: Any) -> Iterator[tuple[str, str, str]]:
    """The innermost values that are not equal, by their place."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            sides = (side.get(key, _ABSENT) for side in (old, new))
            yield from _differing(f"{where}/{key}", *sides)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _differing(f"{where}/{index}", *pair)
    elif old != new:
        yield where, _shown(old), _shown(new)


def _shown(value: Any) -> str:
    return "(nothing)" if value is _ABSENT else json.dumps(value)


def table(found: Iterable[Difference]) -> Iterator[str]:
    """Lines: each way to differ once, with how many answers do and where one is."""
    rows: defaultdict[tuple[str, ...], list[Difference]] = defaultdict(list)
    for one in found:
        rows[one.question.partition(" ")[0], one.where, one.old, one.new].append(one)
    for (_, where, old, new), alike in sorted(rows.items()):
        yield f"{len(alike)} x {alike[0].case}: {alike[0].question}"
        yield f"    {where}: {_cut(old)} -> {_cut(new)}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def summary(found: Iterable[Difference], asked: Mapping[str, int], cases: int) -> str:
    """One line: how many of the answers to each kind of question differ."""
    differing = Counter(q.partition(" ")[0] for _, q in {(d.case, d.question) for d in found})
    parts = (f"{name} {differing[name]} of {count}" for name, count in asked.items())
    return f"{cases} cases; answers that differ: {', '.join(parts)}"
