"""Take objects out of the fleet's files: a service, or whatever else is named with its kind.

Of a file with several documents only theirs go; a file without any other goes whole. What others
refer to stays, unless they are named too. Nothing is applied: the plan that follows is shown, and
the change is committed and pushed as any other, or by --commit and --push.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator

from reconciler.api.meta import ObjectRef
from reconciler.cli.edited import EditedFleet, add_edit_options, change
from reconciler.cli.options import check_output
from reconciler.console.edge import Exit, tell
from reconciler.report.terminal import printable

EXAMPLES = {
    "reconcile rm chat": "a service",
    "reconcile rm chat model/qwen3 --commit": "with its model, committed",
    "reconcile rm fleetnode/mac --dry-run": "only show the change",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="+", metavar="REF", help="NAME of a service, NAMESPACE/NAME, or KIND/NAME"
    )
    add_edit_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 written, 3 where others refer to it. Raises UsageError, SourceError, InvalidFleet."""
    check_output(args, "text")
    fleet = EditedFleet.read(args)
    refs = {fleet.meant(name) for name in args.names}
    if needed := sorted(_referring(fleet, refs)):
        tell("\n".join(printable(line) for line in (*needed, "Nothing was removed.")))
        return Exit.BLOCKED
    removed = ", ".join(sorted(_short(ref) for ref in refs))
    return change(args, fleet, _without(fleet, refs), f"Remove {removed}")


def _referring(fleet: EditedFleet, refs: Collection[ObjectRef]) -> Iterator[str]:
    """A line for each field of those that stay which names one that goes."""
    for resource in fleet.loaded.standing.objects.values():
        for reference in resource.references:
            if reference.ref in refs and resource.ref not in refs:
                place = fleet.place(resource.ref, reference.field)
                yield f"{place} {reference.field}: {resource.ref} needs {reference.ref}"


def _without(fleet: EditedFleet, refs: Collection[ObjectRef]) -> dict[str, bytes | None]:
    """The files as they are left; the last document of one first, as the others then keep their
    numbers."""
    from reconciler.source.edit import NotEditable, without_document

    origins = fleet.loaded.origins
    edited: dict[str, bytes | None] = {}
    for ref in sorted(refs, key=lambda ref: origins[ref].document, reverse=True):
        path = origins[ref].path
        data = edited.get(path, fleet.files[path])
        assert data is not None, "it holds what is still to be removed"
        try:
            edited[path] = without_document(data, origins[ref].document)
        except NotEditable as error:
            raise fleet.by_hand(ref) from error
    return edited


def _short(ref: ObjectRef) -> str:
    return ref.name if ref.kind == "InferenceService" else f"{ref.kind.lower()}/{ref.name}"
