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
    from reconciler.llmkube.field import LlmkubeField
    from reconciler.report.field_entries import FieldEntry


def is_field(text: str) -> bool:
    """Whether it begins with the name of a kind and a dot: no object's name has a capital."""
    from reconciler.api.kinds import KINDS
    from reconciler.llmkube.documents import INSTEAD, READ

    kind, dot, _ = text.partition(".")
    return bool(dot) and kind in {*KINDS, *READ, *INSTEAD}


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
    from reconciler.llmkube.documents import INSTEAD
    from reconciler.report.field_entries import FieldEntry, field_entries, shared_entries
    from reconciler.runtimes import RUNTIMES

    if kind in INSTEAD:
        raise UsageError(f"a {kind} of LLMKube is not read; {INSTEAD[kind]}")
    yield from _of_llmkube(kind)
    if kind in KINDS:
        about = KINDS[kind].model_fields["spec"].description or ""
        yield FieldEntry("spec", "fields below", about)
        yield from field_entries(kind, RUNTIMES)
    yield from shared_entries(RUNTIMES)


def _of_llmkube(kind: str) -> Iterator[FieldEntry]:
    """LLMKube's fields, each behind the parts that it is in: some of those only LLMKube has."""
    from reconciler.llmkube.schema import PART
    from reconciler.llmkube.translate import TABLES
    from reconciler.report.field_entries import FieldEntry

    for row in TABLES.get(kind, ()):
        *parts, _ = accumulate(row.path.split("."), "{}.{}".format)
        yield from (FieldEntry(part, "fields below", PART) for part in parts)
        yield _row_entry(row)


def _inside(kind: str, path: str) -> FieldEntry | None:
    """The field of LLMKube that has this one in it, and is answered as a whole."""
    from reconciler.llmkube.field import takes
    from reconciler.llmkube.translate import TABLES

    for row in TABLES.get(kind, ()):
        if path.startswith(f"{row.path}."):
            parts = path.removeprefix(f"{row.path}.").split(".")
            return _row_entry(row) if takes(row.shape, parts) else None
    return None


def _row_entry(row: LlmkubeField) -> FieldEntry:
    from reconciler.llmkube.schema import row_text
    from reconciler.report.field_entries import FieldEntry

    return FieldEntry(row.path, "LLMKube's name", row_text(row))


def _plain(path: str) -> str:
    """An item of a list may be written with its brackets or without, as kubectl has it."""
    return path.replace("[]", "")
