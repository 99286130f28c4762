"""Write a Model and an InferenceService into the fleet's folder, after checking that they fit.

Nothing is applied: commit and push the two files, as any change. NAME is a model of the small
catalogue, or of your own choice with --source.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.edge import Exit
from reconciler.errors import StateError, UsageError
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.catalogue import Entry
    from reconciler.cli.draft import Draft
    from reconciler.desired import Desired
    from reconciler.plan import Plan

_DISAGREES = 0.25  # a share of the catalogue's figure


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the model and of its service")
    parser.add_argument("--source", help="hf://, https://, file:///, oci://, pypi://, or a path")
    parser.add_argument("--accelerator", help="metal, cuda, ...: only nodes that have it")
    parser.add_argument("--node", help="where it is to run (default: the only one it fits)")
    parser.add_argument("--runtime", help="default: the node's own")
    parser.add_argument("--context-size", type=int, metavar="TOKENS", help="default: 8192")
    parser.add_argument("--dry-run", action="store_true", help="print the files, write nothing")
    add_local_options(parser)
    add_agent_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 written, 3 where it does not fit. Raises UsageError, SourceError, InvalidFleet."""
    check_output(args, "text")
    from reconciler.catalogue import catalogue
    from reconciler.cli.draft import Draft
    from reconciler.cli.fleet import open_fleet
    from reconciler.source.directory import DirectorySource
    from reconciler.source.worktree import WorktreeSource

    known = catalogue()
    entry = None if args.source else known.get(args.name)
    if args.source is None and entry is None:
        raise UsageError(_unknown(args.name, known))
    fleet = open_fleet(args, working_tree=True)
    if not isinstance(fleet, DirectorySource | WorktreeSource):
        raise UsageError("files are written into a folder: -C must be one, without --ref")
    draft = Draft(args, args.source or (entry.source if entry else ""), fleet.fetch())
    node = args.node or draft.only_home()
    desired = draft.decided(node)
    plan = desired.plan(draft.observed(desired))
    if why := _why_not(draft, entry, node, desired, plan):
        print("\n".join(printable(line) for line in why.splitlines()), file=sys.stderr)
        return Exit.BLOCKED
    for line in _warnings(draft, entry, desired):
        print(printable(f"warning: {line}"), file=sys.stderr)
    return _write(Path(fleet.location), draft.files(node), dry_run=args.dry_run)


def _unknown(name: str, known: Iterable[str]) -> str:
    return f"{name} is not in the catalogue ({', '.join(known)}); say where it is with --source"


def _why_not(
    draft: Draft, entry: Entry | None, node: str, desired: Desired, plan: Plan
) -> str | None:
    """What keeps it from running there, in the plan or by the catalogue's figure."""
    title = f"{draft.args.name} ({entry.quantisation})" if entry else draft.args.name
    for item in plan.blocked:
        if draft.ref not in (item.ref, *item.holds) and item.ref.name != draft.args.name:
            continue
        if item.reason != "MemoryFits":
            return f"{title} cannot run on node {node}: {item.reason}: {item.message}"
        arithmetic, *ways = item.message.split("; ")
        return _insufficient(title, node, _estimate(draft, desired), arithmetic, ways)
    if entry is not None and (short := _short_by_figure(draft, entry, node, desired)):
        figure = f"{_shown(entry.memory_bytes)} (the catalogue's figure)"
        return _insufficient(title, node, figure, short, ["a smaller quantisation", "another node"])
    return None


def _insufficient(
    title: str, node: str, estimate: str, arithmetic: str, ways: Iterable[str]
) -> str:
    suggestions = "\n              ".join(ways) or "another node, or a smaller quantisation"
    return (
        f"Error: insufficient memory for {title} on node {node}\n"
        f"  Estimated requirement: {estimate}\n"
        f"  Available budget: {arithmetic}\n"
        f"  Suggestion: {suggestions}\n"
        "Nothing was written."
    )


def _estimate(draft: Draft, desired: Desired) -> str:
    """What it would take in all, as far as that is known."""
    for admission in desired.assignment.admissions:
        for sized in (*admission.admitted, *admission.refused):
            if sized.workload.ref == draft.ref and sized.workload.memory is not None:
                return _shown(sized.workload.memory.total_bytes)
    return "not known"


def _short_by_figure(draft: Draft, entry: Entry, node: str, desired: Desired) -> str | None:
    """Where no header could be read: the catalogue's figure against the largest pool there."""
    if not draft.why_unknown:
        return None
    for admission in desired.assignment.admissions:
        if admission.node.metadata.name == node:
            room = admission.room()
            free = [p.budget_bytes - room.taken.taken_bytes(p.name) for p in room.pools]
            if free and max(free) < entry.memory_bytes:
                return f"{_shown(max(free))} ({'; '.join(pool.basis for pool in room.pools)})"
    return None


def _warnings(draft: Draft, entry: Entry | None, desired: Desired) -> Iterable[str]:
    """What is not known, and where the catalogue and the file's header disagree."""
    if draft.why_unknown:
        yield f"its memory is weighed once it is downloaded: {draft.why_unknown}"
    for admission in desired.assignment.admissions if entry else ():
        for sized in admission.admitted:
            memory = sized.workload.memory
            if entry and sized.workload.ref == draft.ref and memory is not None:
                found = memory.total_bytes
                if abs(found - entry.memory_bytes) > _DISAGREES * entry.memory_bytes:
                    yield (
                        f"the catalogue says that {draft.args.name} takes"
                        f" {_shown(entry.memory_bytes)}, its header {_shown(found)}: the header"
                        " is right"
                    )


def _shown(count: int) -> str:
    from reconciler.api.quantity import show_bytes

    return show_bytes(count)


def _write(root: Path, files: dict[str, str], *, dry_run: bool) -> int:
    if dry_run:
        print("---\n".join(f"# {path}\n{text}" for path, text in files.items()), end="")
        return Exit.OK
    for path in files:
        if (root / path).exists():
            raise UsageError(f"{root / path}: is there already; edit it, or choose another name")
    for path, text in files.items():
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise StateError(f"{root / path}: cannot be written: {error.strerror}") from error
        print(root / path)
    print("written, not applied: look at `reconcile --dry-run`, commit and push", file=sys.stderr)
    return Exit.OK
