"""Stop services and keep their files, by `suspend: true` in the fleet's own file.

Everything else in the file stays as it is. Nothing is applied: the plan that follows is shown, and
the change is committed and pushed as any other, or by --commit and --push.
"""

from __future__ import annotations

import argparse

from reconciler.api.errors import UsageError
from reconciler.cli.edited import EditedFleet, add_edit_options, change
from reconciler.cli.options import check_output
from reconciler.console.edge import Exit, tell

EXAMPLES = {
    "reconcile suspend chat": "one service, and the plan that follows",
    "reconcile suspend chat team-a/code --push": "two, committed and pushed",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="+", metavar="NAME", help="NAME of a service, or NAMESPACE/NAME"
    )
    add_edit_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 written, or so already. Raises UsageError, SourceError, InvalidFleet."""
    return switch(args, on=True)


def switch(args: argparse.Namespace, *, on: bool) -> int:
    """Write whether services are suspended."""
    check_output(args, "text")
    from reconciler.api.inferenceservice import InferenceService
    from reconciler.source.edit import NotEditable, with_switch

    fleet = EditedFleet.read(args)
    word = "suspended" if on else "not suspended"
    edited: dict[str, bytes | None] = {}
    already: dict[str, None] = {}
    for ref in dict.fromkeys(fleet.meant(name, kind="InferenceService") for name in args.names):
        service = fleet.loaded.standing.get(InferenceService, ref)
        assert service is not None, "it is declared"
        if not on and service.spec.replicas == 0:
            place = fleet.place(ref, "spec.replicas")
            raise UsageError(
                f"{place} spec.replicas: 0 stops {ref.label} too; write how many are to run"
            )
        if service.spec.suspend == on:
            tell(f"{fleet.place(ref, 'spec.suspend')}: {ref.label} is {word} already")
            already[fleet.loaded.origins[ref].path] = None
            continue
        origin = fleet.loaded.origins[ref]
        data = edited.get(origin.path) or fleet.files[origin.path]
        try:
            edited[origin.path] = with_switch(data, origin.document, "suspend", on=on)
        except NotEditable as error:
            raise fleet.by_hand(ref) from error
    if already and (args.commit or args.push) and not args.dry_run:
        # Written before and never committed: exit 0 would say that it is.
        from reconciler.source import committing

        paths = tuple(already)
        committing.check(fleet.root, paths, push=args.push, edited=paths)
    if not edited:
        return Exit.OK
    verb = "Suspend" if on else "Resume"
    return change(args, fleet, edited, f"{verb} {', '.join(args.names)}")
