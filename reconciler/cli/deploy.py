"""Write a Model and an InferenceService into the fleet's folder, after checking that they fit.

Nothing is applied: commit and push the two files, as any change, or have that done by --commit and
--push. NAME is a Model that the fleet declares, which is then served as it is, one of the small
catalogue, or of your own choice with --source.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.cli.written import FileChange, add_commit_options, how_applied, open_folder, write
from reconciler.console.edge import Exit, tell
from reconciler.console.option import add
from reconciler.console.shared import OFFLINE
from reconciler.console.value import argument, count
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.source.directory import DirectorySource
    from reconciler.source.worktree import WorktreeSource

EXAMPLES = {
    "reconcile deploy smollm2-135m --local": "one of the catalogue, if it fits",
    "reconcile deploy mini --source hf://org/mini/mini.gguf": "any other",
    "reconcile deploy smollm2-135m --dry-run": "only show the two files",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the model and of its service")
    parser.add_argument("--source", help="hf://, https://, file:///, oci://, pypi://, or a path")
    parser.add_argument("--accelerator", help="metal, cuda, ...: only nodes that have it")
    parser.add_argument("--node", help="where it is to run (default: the only one it fits)")
    parser.add_argument("--runtime", dest="service_runtime", help="default: the node's own")
    parser.set_defaults(runtime=None)  # of the machine, which is no matter of a new service
    parser.add_argument(
        "--context-size", type=argument(count), metavar="TOKENS", help="default: 8192"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the files, write nothing")
    add_commit_options(parser)
    add(parser, (OFFLINE,))
    add_local_options(parser, runtime=False)
    add_agent_options(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 0 written, 3 where it does not fit. Raises UsageError, SourceError, InvalidFleet."""
    check_output(args, "text")
    from reconciler.catalogue import catalogue
    from reconciler.cli import fit
    from reconciler.cli.draft import Draft

    known = catalogue()
    fleet = open_folder(args)
    draft = Draft.of(args, fleet.fetch(), known)
    entry = known.get(args.name)
    entry = entry if entry and entry.source == draft.source else None
    node = args.node or draft.only_home()
    desired = draft.decided(node)
    if why := fit.why_not(draft, entry, node, desired, draft.observed(desired)):
        tell("\n".join(printable(line) for line in why.splitlines()))
        return Exit.BLOCKED
    for line in fit.warnings(draft, entry, desired):
        tell(printable(f"warning: {line}"))
    return _write(fleet, draft.files(node), args)


def _write(
    fleet: DirectorySource | WorktreeSource, files: dict[str, str], args: argparse.Namespace
) -> int:
    if args.dry_run:
        print("---\n".join(f"# {path}\n{text}" for path, text in files.items()), end="")
        return Exit.OK
    new = {path: FileChange(None, text.encode()) for path, text in files.items()}
    write(Path(fleet.location), new, args, f"Serve {args.name}")
    if not (args.commit or args.push):
        command = "reconcile plan" + ("" if args.local is None else " --local")
        tell(f"written, not applied: look at `{command}`, {how_applied(fleet, args)}")
    return Exit.OK
