"""Take objects out of the fleet's files: a service, or whatever else is named with its kind.

Of a file with several documents only theirs go; a file without any other goes whole. What others
refer to stays, unless they are named too. Nothing is applied: the plan that follows is shown, and
the change is committed and pushed as any other, or by --commit and --push.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator

from reconciler.api.meta import ObjectRef
from reconciler.cli.edited import EditedFleet, add_edit_options, change, named_objects
from reconciler.console.edge import Exit, tell
from reconciler.report.terminal import printable

EXAMPLES = {
    "reconcile rm chat": "a service",
    "reconcile rm chat model/qwen3 --commit": "with its model, committed",
    "reconcile rm fleetnode/mac --dry-run": "only show the change",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_edit_options(parser, "REF", "NAME of a service, NAMESPACE/NAME, or KIND/NAME")


def run(args: argparse.Namespace) -> int:
    """Exit 0 written, 3 where others refer to it. Raises UsageError, SourceError, InvalidFleet."""
    from reconciler.source.edit import without_document

    fleet, refs = named_objects(args)
    if needed := sorted(_referring(fleet, refs)):
        tell("\n".join(printable(line) for line in (*needed, "Nothing was removed.")))
        return Exit.BLOCKED
    removed = ", ".join(sorted(_short(ref) for ref in refs))
    return change(args, fleet, fleet.edited(refs, without_document), f"Remove {removed}")


def _referring(fleet: EditedFleet, refs: Collection[ObjectRef]) -> Iterator[str]:
    """A line for each field of those that stay which names one that goes."""
    for resource in fleet.loaded.standing.objects.values():
        for reference in resource.references:
            if reference.ref in refs and resource.ref not in refs:
                place = fleet.place(resource.ref, reference.field)
                yield f"{place} {reference.field}: {resource.ref} needs {reference.ref}"


def _short(ref: ObjectRef) -> str:
    return ref.name if ref.kind == "InferenceService" else f"{ref.kind.lower()}/{ref.name}"
