"""What a field does: `reconcile explain InferenceService.spec.contextSize`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import accumulate
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.console.edge import Exit, width_of

if TYPE_CHECKING:
    from reconciler.foreign.field import ForeignField
    from reconciler.foreign.project import Project
    from reconciler.report.field_entries import FieldEntry


def is_field(text: str) -> bool:
    """Whether it begins with the name of a kind and a dot: no object's name has a capital."""
    from reconciler.api.kinds import KINDS
    from reconciler.foreign_kinds import READ, not_read

    kind, dot, _ = text.partition(".")
    return bool(dot) and (kind in KINDS or kind in READ or not_read(kind) is not None)


def explain_field(args: argparse.Namespace) -> int:
    """Exit 0. Raises UsageError for a field that there is not."""
    from reconciler.report.field_text import field_json, field_text

    kind, _, wanted = args.object.partition(".")
    by_path = {_plain(entry.path): entry for entry in _entries(kind)}
    entry = by_path.get(_plain(wanted)) or _inside(kind, _plain(wanted))
    if entry is None:
        near = get_close_matches(_plain(wanted), by_path, 1)
        hint = f"did you mean {kind}.{by_path[near[0]].path}?" if near else "docs/fields.md has all"
        raise UsageError(f"{args.object}: {kind} has no such field; {hint}")
    parts = [e for path, e in by_path.items() if path.rpartition(".")[0] == _plain(wanted)]
    if args.output == "json":
        print(json.dumps(field_json(entry, parts), indent=2))
    else:
        sys.stdout.write(field_text(kind, entry, parts, width_of(sys.stdout)))
    return Exit.OK


def _entries(kind: str) -> Iterator[FieldEntry]:
    """What can be said of a kind; the last of a path counts. Raises UsageError for a kind that
    nobody reads."""
    from reconciler.api.kinds import KINDS
    from reconciler.foreign_kinds import READ, not_read
    from reconciler.report.field_entries import FieldEntry, field_entries, shared_entries
    from reconciler.runtimes import RUNTIMES

    if kind not in KINDS and kind not in READ:
        raise UsageError(not_read(kind) or "")
    yield from _of_others(kind)
    if kind in KINDS:
        about = KINDS[kind].model_fields["spec"].description or ""
        yield FieldEntry("spec", "fields below", about)
        yield from field_entries(kind, RUNTIMES)
    yield from shared_entries(RUNTIMES)


def _of_others(kind: str) -> Iterator[FieldEntry]:
    """Other projects' fields, each behind the parts that it is in: some of those only they have."""
    from reconciler.foreign.schema import part_text
    from reconciler.report.field_entries import FieldEntry

    for project, row in _rows(kind):
        *parts, _ = accumulate(row.path.split("."), "{}.{}".format)
        yield from (FieldEntry(part, "fields below", part_text(project)) for part in parts)
        yield _row_entry(project, row)


def _inside(kind: str, path: str) -> FieldEntry | None:
    """The field of another project that has this one in it, and is answered as a whole."""
    from reconciler.foreign.field import takes

    for project, row in _rows(kind):
        if path.startswith(f"{row.path}."):
            parts = path.removeprefix(f"{row.path}.").split(".")
            return _row_entry(project, row) if takes(row.shape, parts) else None
    return None


def _rows(kind: str) -> Iterator[tuple[Project, ForeignField]]:
    from reconciler.foreign_kinds import PROJECTS

    for project in PROJECTS:
        yield from ((project, row) for row in project.tables.get(kind, ()))


def _row_entry(project: Project, row: ForeignField) -> FieldEntry:
    from reconciler.foreign.schema import row_text
    from reconciler.report.field_entries import FieldEntry

    return FieldEntry(row.path, f"{project.name}'s name", row_text(row, project))


def _plain(path: str) -> str:
    """An item of a list may be written with its brackets or without, as kubectl has it."""
    return path.replace("[]", "")
