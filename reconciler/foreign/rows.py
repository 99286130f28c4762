"""Putting rows into effect: a document with fields of another project -> ours, and what is to be
said of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from reconciler.foreign.field import ForeignField
from reconciler.foreign.remark import Remark

Tree = dict[str, Any]  # name -> a row, or the tree below
_ARGS = "spec.extraArgs"


class Translated(NamedTuple):
    """`written` says under which of its author's fields a value of ours stands; of a flag behind
    the name of its list: `spec.extraArgs --dtype`."""

    content: dict[str, Any]
    remarks: tuple[Remark, ...]
    written: Mapping[str, str]


def theirs_of(written: Mapping[str, str], field: str, flag: str = "") -> str | None:
    """The field of its author that says one of ours; of `extraArgs`, the one that says this
    flag."""
    if field == _ARGS or field.startswith(f"{_ARGS}["):
        return written.get(f"{_ARGS} {flag}")
    own = next((own for own in written if field == own or field.startswith(f"{own}.")), None)
    return written[own] if own else None


def applied(tree: Tree, content: Mapping[str, Any], whose: str) -> Translated | None:
    """The document in our fields; None: it has none that are rows. `whose` names their project."""
    rows: list[tuple[ForeignField, Any]] = []
    left = _split(tree, content, rows)
    if not rows:
        return None
    remarks: list[Remark] = []
    written: dict[str, str] = {}
    for row, value in rows:
        if row.native is None:
            if remark := _answer(row, value, whose):
                remarks.append(remark)
        elif row.behind and any(_get(content, path) is not None for path in row.behind):
            continue  # what it would say is said by that field
        else:
            for path, own in row.native(value).items():
                if wrong := _put(left, row, path, own, written):
                    remarks.append(wrong)
    return Translated(left, tuple(remarks), written)


def answers(
    rows: Sequence[ForeignField], content: Mapping[str, Any], whose: str
) -> Iterator[Remark]:
    """What to say of the fields of a document by rows that have no field of ours. `whose` names
    their project."""
    written: list[tuple[ForeignField, Any]] = []
    _split(tree_of(rows), content, written)
    for row, value in written:
        if remark := _answer(row, value, whose):
            yield remark


def _answer(row: ForeignField, value: object, whose: str) -> Remark | None:
    """A note, a warning, or None where it asks for what is done anyway."""
    for quiet in row.quiet:
        if value == quiet and type(value) is type(quiet):
            return None
    if row.is_lost:
        return Remark("FieldIgnored", row.path, f"{whose}'s, and has no effect here: {row.text}")
    return Remark("FieldAnswered", row.path, f"{whose}'s, and needed no more: {row.text}")


def _put(
    left: dict[str, Any], row: ForeignField, path: str, own: object, written: dict[str, str]
) -> Remark | None:
    """Give our field its value; what is wrong where it has another."""
    there = _get(left, path)
    flag = ""
    if type(own) is tuple:  # words of a command line: they are added to the others
        flag = own[0]
        own, there = _added(there or [], own)
    elif there is not None and isinstance(own, dict) and isinstance(there, dict):
        own, there = _merged(there, own)
    if there is None:
        _set(left, path, own)
        written.setdefault(path, row.path)
        if flag:
            written[f"{path} {flag}"] = row.path
        return None
    if there == own:
        return None
    first = written.get(path, path)
    return Remark("Schema", row.path, f"it says {own}, and {first} says {there}; keep one of them")


def _merged(entries: Mapping[str, Any], more: Mapping[str, Any]) -> tuple[object, object]:
    """The new entries and None, or, of those that are there with another value, what each says."""
    for name, value in more.items():
        if entries.get(name, value) != value:
            return f"{name}: {value}", f"{name}: {entries[name]}"
    return {**entries, **more}, None


def _added(args: Sequence[Any], words: tuple[str, ...]) -> tuple[object, object]:
    """The new list and None, or, of a flag that is there, what each says."""
    flag, *values = words
    for index, arg in enumerate(args):
        name, equals, value = str(arg).partition("=")
        if name == flag:
            after = args[index + 1 : index + 1 + len(values)]
            its = [value] if equals else map(str, after)
            return " ".join([flag, *values]), " ".join([flag, *its])
    return [*args, *words], None


@lru_cache(maxsize=256)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _get(content: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401  # JSON
    node: Any = content
    for name in _parts(path):
        if type(node) is not dict or name not in node:
            return None
        node = node[name]
    return node


def _set(left: dict[str, Any], path: str, value: object) -> None:
    """Whatever contains it is copied, but for the spec, which `_split` made: the document stays as
    it was written."""
    spec, *parts, last = _parts(path)
    node = left.setdefault(spec, {})
    for name in parts:
        node[name] = dict(node.get(name, {}))
        node = node[name]
    node[last] = value


def _split(
    tree: Tree, content: Mapping[str, Any], rows: list[tuple[ForeignField, Any]]
) -> dict[str, Any]:
    """A document without the fields of rows, and without what contains nothing more then; `rows` is
    given those that it has, with their values."""
    left: dict[str, Any] = {}
    for name, value in content.items():
        below = tree.get(name)
        if below is None:
            left[name] = value
        elif type(below) is ForeignField:
            rows.append((below, value))
        elif not isinstance(value, dict):
            left[name] = value
        else:
            inner = _split(below, value, rows)
            if inner or not value or name == "spec":
                left[name] = inner
    return left


def tree_of(rows: Sequence[ForeignField]) -> Tree:
    tree: Tree = {}
    for row in rows:
        *parts, last = row.path.split(".")
        node = tree
        for name in parts:
            node = node.setdefault(name, {})
        node[last] = row
    return tree
