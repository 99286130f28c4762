"""The reference of all fields as a page of Markdown. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from reconciler.api.kinds import KINDS
from reconciler.foreign.field import ForeignField
from reconciler.foreign.project import Project
from reconciler.foreign_kinds import PROJECTS
from reconciler.report.field_entries import (
    FieldEntry,
    field_entries,
    option_entries,
    shared_entries,
)
from reconciler.runtimes.runtime import Runtime
from reconciler.schema import own_schema

_HEAD = """# Every field

What each field of each kind does. It is in the JSON Schemas, which an editor shows, and in the
definitions of a cluster, where `kubectl explain isvc.spec.contextSize` prints it; without a cluster
`reconcile explain InferenceService.spec.contextSize` does. This page is made from the kinds
(`make schemas`).

A size is bytes, or a number with Ki, Mi, Gi, Ti, k, M, G or T (`12Gi`). A duration has units
(`500ms`, `60s`, `1h30m`). A name has lower-case letters, digits, `-` and `.`.
"""
_SERVICE = """
*A change* is what another value reaches:

- **process**: it is another process or pod. A router reloads the models that are concerned, where
  only theirs change.
- **pods**: new pods in a cluster, and nothing on a machine.
- **nothing restarts**.
- **place**: where or whether it runs, or is measured.

*Per model*: an entry of `models` can state it, too. *Pods only*: a node with an agent makes nothing
of it, and says so. *Runtimes* are those that make something of it (none named: all); the others
say so.

"""
_LLMKUBE = """
## LLMKube's fields

The group and the kinds are LLMKube's, too. What its definitions have beside the fields above
(v1alpha1, 0.9.19) is read as well: it is another name of one of ours, or is answered by a note
(done here anyway) or a warning (done by nothing here). What says two different things is an error
that names both. A ModelPool becomes one service, and of a ModelRouter nothing is made
([what becomes of them](llmkube.md#modelpool-and-modelrouter)). [From theirs to ours](llmkube.md).
"""
_FLEXINFER = """
## FlexInfer's fields

A `ModelDeployment` of FlexInfer (`ai.flexinfer/v1alpha1`) is a Model and an InferenceService of its
name. What becomes of each of its fields is here; its other kinds are named with what to write
instead. [What it becomes](flexinfer.md).
"""
_COLUMNS = ("field", "value", "what it does")


def field_page(runtimes: Mapping[str, Runtime]) -> str:
    """The whole page."""
    return "".join(_parts(runtimes))


def _parts(runtimes: Mapping[str, Runtime]) -> Iterator[str]:
    yield _HEAD
    for kind in KINDS:
        what = own_schema(kind, runtimes)["properties"]["kind"]["description"]
        yield f"\n## {kind}\n\n{what}\n"
        rows = [(*_row(e), e.change, ", ".join(e.runtimes)) for e in field_entries(kind, runtimes)]
        if kind == "InferenceService":
            yield _SERVICE
            yield _table((*_COLUMNS, "a change", "runtimes"), rows)
            yield "\n### spec.runtimeOptions\n\n"
            options = ((*_row(e), ", ".join(e.runtimes)) for e in option_entries(runtimes))
            yield _table((*_COLUMNS, "runtimes"), options)
        else:
            yield "\n"
            yield _table(_COLUMNS, (row[: len(_COLUMNS)] for row in rows))
    yield "\n## What every kind has\n\n"
    yield _table(_COLUMNS, map(_row, shared_entries(runtimes)))
    for project in PROJECTS:
        yield from _of_project(project)


def _of_project(project: Project) -> Iterator[str]:
    yield _ABOUT[project.name]
    for kind, rows in project.tables.items():
        yield f"\n### Of a {project.name} {kind}\n\n"
        yield _table(("field", "what becomes of it"), map(_outcome, rows))
    others = {k: text for k, text in project.instead.items() if k not in project.tables}
    yield f"\n### Other kinds of {project.name}\n\n"
    yield _table(
        ("kind", "what to write instead"),
        ((f"`{k}`", text.format(name="NAME")) for k, text in others.items()),
    )


_ABOUT: Mapping[str, str] = {"LLMKube": _LLMKUBE, "FlexInfer": _FLEXINFER}


def _outcome(row: ForeignField) -> tuple[str, str]:
    if row.native is not None:
        return f"`{row.path}`", f"the same as {row.text}"
    quiet = ", ".join(f"`{json.dumps(value)}`" for value in row.quiet)
    effect = "a warning" if row.is_lost else "a note"
    return f"`{row.path}`", f"{effect}{f' (none for {quiet})' if quiet else ''}: {row.text}"


def _row(entry: FieldEntry) -> tuple[str, str, str]:
    return f"`{entry.path}`", entry.value, entry.description


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
