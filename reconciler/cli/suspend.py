"""Stop services and keep their files, by `suspend: true` in the fleet's own file.

Everything else in the file stays as it is. Nothing is applied: the plan that follows is shown, and
the change is committed and pushed as any other, or by --commit and --push.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.cli.edited import EditedFleet, add_edit_options, change, named_objects
from reconciler.cli.written import push
from reconciler.console.edge import Exit, tell

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef

EXAMPLES = {
    "reconcile suspend chat": "one service, and the plan that follows",
    "reconcile suspend chat team-a/code --push": "two, committed and pushed",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_edit_options(parser, "NAME", "NAME of a service, or NAMESPACE/NAME")


def run(args: argparse.Namespace) -> int:
    """Exit 0 written, or so already. Raises UsageError, SourceError, InvalidFleet."""
    return switch(args, on=True)


def switch(args: argparse.Namespace, *, on: bool) -> int:
    """Write whether services are suspended."""
    from reconciler.source.edit import with_switch

    fleet, refs = named_objects(args, kind="InferenceService")
    already = [ref for ref in refs if _is_suspended(fleet, ref, resumes=not on) == on]
    word = "suspended" if on else "not suspended"
    for ref in already:
        tell(f"{fleet.place(ref, 'spec.suspend')}: {ref.label} is {word} already")
    is_committed = (args.commit or args.push) and not args.dry_run
    if already and is_committed:
        _must_be_committed(fleet, already, push=args.push)
    if others := [ref for ref in refs if ref not in already]:
        edited = fleet.edited(others, partial(with_switch, key="suspend", on=on))
        verb = "Suspend" if on else "Resume"
        return change(args, fleet, edited, f"{verb} {', '.join(args.names)}")
    if is_committed and args.push:
        push(fleet.root)
    return Exit.OK


def _is_suspended(fleet: EditedFleet, ref: ObjectRef, *, resumes: bool) -> bool:
    """Raises UsageError for one that is to be resumed and would not run then."""
    from reconciler.api.inferenceservice import InferenceService

    service = fleet.loaded.standing.get(InferenceService, ref)
    assert service is not None, "it is declared"
    if resumes and service.spec.replicas == 0:
        place = fleet.place(ref, "spec.replicas")
        raise UsageError(
            f"{place} spec.replicas: 0 stops {ref.label} too; write how many are to run"
        )
    return service.spec.suspend


def _must_be_committed(fleet: EditedFleet, refs: list[ObjectRef], *, push: bool) -> None:
    """What was written before and never committed is not what --commit is asked for: exit 0 would
    say that it is. Raises UsageError."""
    from reconciler.source import committing

    paths = tuple(dict.fromkeys(fleet.loaded.origins[ref].path for ref in refs))
    committing.check(fleet.root, paths, push=push, edited=paths)
