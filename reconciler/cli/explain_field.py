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
    from reconciler.report.field_entries import FieldEntry


def is_field(text: str) -> bool:
    """Whether it begins with the name of a kind and a dot: no object's name has a capital."""
    from reconciler.api.kinds import KINDS

    return text.partition(".")[0] in KINDS and "." in text


def explain_field(args: argparse.Namespace) -> int:
    """Exit 0. Raises UsageError for a field that there is not."""
    from reconciler.api.kinds import KINDS
    from reconciler.report.field_entries import FieldEntry, field_entries, shared_entries
    from reconciler.report.field_text import field_json, field_text
    from reconciler.runtimes import RUNTIMES

    kind, _, wanted = args.object.partition(".")
    about = KINDS[kind].model_fields["spec"].description or ""
    spec = FieldEntry("spec", "fields below", about)
    entries = (*_of_llmkube(kind), spec, *field_entries(kind, RUNTIMES), *shared_entries(RUNTIMES))
    by_path = {_plain(entry.path): entry for entry in entries}
    entry = by_path.get(_plain(wanted))
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


def _of_llmkube(kind: str) -> Iterator[FieldEntry]:
    """LLMKube's fields, each behind the parts that it is in: some of those only LLMKube has."""
    from reconciler.llmkube.schema import PART, row_text
    from reconciler.llmkube.translate import TABLES
    from reconciler.report.field_entries import FieldEntry

    for row in TABLES.get(kind, ()):
        *parts, _ = accumulate(row.path.split("."), "{}.{}".format)
        yield from (FieldEntry(part, "fields below", PART) for part in parts)
        yield FieldEntry(row.path, "LLMKube's name", row_text(row))


def _plain(path: str) -> str:
    """An item of a list may be written with its brackets or without, as kubectl has it."""
    return path.replace("[]", "")
