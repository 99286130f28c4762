"""The fleet's own files, changed by a command: only the documents that are meant, and then the plan
that follows from it."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.api.errors import UsageError
from reconciler.cli.options import add_agent_options, add_local_options, check_output
from reconciler.cli.written import FileChange, add_commit_options, how_applied, open_folder, write
from reconciler.console.edge import Exit, tell
from reconciler.console.named import hint, parse_ref
from reconciler.console.option import add
from reconciler.console.shared import OFFLINE
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.api.meta import ObjectRef
    from reconciler.source.directory import DirectorySource
    from reconciler.source.load import Loaded
    from reconciler.source.worktree import WorktreeSource


def add_edit_options(parser: argparse.ArgumentParser, metavar: str, names: str) -> None:
    """`names` says what those are that a person gives."""
    parser.add_argument("names", nargs="+", metavar=metavar, help=names)
    parser.add_argument("--dry-run", action="store_true", help="print the change, write nothing")
    add_commit_options(parser)
    add(parser, (OFFLINE,))
    add_agent_options(parser)
    add_local_options(parser)


@dataclass(frozen=True, slots=True)
class EditedFleet:
    """The folder of a fleet, and what is declared in its files."""

    source: DirectorySource | WorktreeSource
    loaded: Loaded
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, args: argparse.Namespace) -> EditedFleet:
        """Also of a fleet with errors: an edit may be what mends it. Raises UsageError,
        SourceError."""
        from reconciler.source.load import reader

        source = open_folder(args)
        checkout = source.fetch()
        files = {file.path: file.data for file in checkout.yaml_files()}
        return cls(source, reader()(checkout, frozenset()), files)

    @property
    def root(self) -> Path:
        return Path(self.source.location)

    def place(self, ref: ObjectRef, field: str = "") -> str:
        """`services/chat.yaml:12` of a declared object."""
        return f"{self.loaded.origins[ref].path}:{self.loaded.line(ref, field)}"

    def meant(self, name: str, *, kind: str | None = None) -> ObjectRef:
        """What a person calls so: without a namespace also the only one of that name. `kind` is
        the one that a command is for. Raises UsageError."""
        ref = parse_ref(name)
        if kind not in (None, ref.kind):
            raise UsageError(f"{ref}: this is for objects of kind {kind} alone")
        if "/" not in name and ref not in self.loaded.origins:
            others = [
                other
                for other in self.loaded.origins
                if other.name == name and kind in (None, other.kind)
            ]
            if len(others) > 1:
                raise UsageError(f"{name}: say which of {', '.join(map(str, sorted(others)))}")
            ref = others[0] if others else ref
        self._must_declare(ref)
        return ref

    def _must_declare(self, ref: ObjectRef) -> None:
        """Raises UsageError, also where two documents declare it."""
        if ref not in self.loaded.origins:
            known = sorted(str(other) for other in self.loaded.origins if other.kind == ref.kind)
            raise UsageError(f"{ref}: the fleet declares no such object{hint(str(ref), known)}")
        if again := next((item for item in self.loaded.twice if item.ref == ref), None):
            raise UsageError(
                f"{ref} is declared at {self.place(ref)} and at {again.origin.path}:"
                f"{again.origin.line}: remove one of them by hand first"
            )

    def edited(
        self, refs: Iterable[ObjectRef], edit: Callable[[bytes, int], bytes | None]
    ) -> dict[str, bytes | None]:
        """The files after an edit of each document; the last one of a file first, as the others
        then keep their numbers. Raises UsageError."""
        from reconciler.source.edit import NotEditable, other_kind

        origins = self.loaded.origins
        files: dict[str, bytes | None] = {}
        for ref in sorted(refs, key=lambda ref: origins[ref].document, reverse=True):
            path, document = origins[ref].path, origins[ref].document
            data = files.get(path, self.files[path])
            assert data is not None, "it holds what is still to be edited"
            try:
                other = other_kind(data, document, ref)
                files[path] = edit(data, document) if other is None else data
            except NotEditable as error:
                why = "is written in a way that only its author can change safely"
                raise self._by_hand(ref, why) from error
            if other is not None:
                raise self._by_hand(ref, f"is made of the {other} there")
        return files

    def _by_hand(self, ref: ObjectRef, why: str) -> UsageError:
        """For a document that no command may touch."""
        return UsageError(f"{self.place(ref)}: {ref} {why}; edit the file by hand")


def named_objects(
    args: argparse.Namespace, *, kind: str | None = None
) -> tuple[EditedFleet, list[ObjectRef]]:
    """The fleet, and its objects that are named, once each. Raises UsageError, SourceError."""
    check_output(args, "text")
    fleet = EditedFleet.read(args)
    return fleet, list(dict.fromkeys(fleet.meant(name, kind=kind) for name in args.names))


def change(
    args: argparse.Namespace, fleet: EditedFleet, edited: Mapping[str, bytes | None], subject: str
) -> int:
    """Write the files, and show the plan that follows; --dry-run shows the change alone."""
    from reconciler.cli.dry_run import dry_run

    if args.dry_run:
        for path, after in edited.items():
            sys.stdout.writelines(_difference(path, fleet.files[path], after))
        return Exit.OK
    files = {path: FileChange(fleet.files[path], after) for path, after in edited.items()}
    write(fleet.root, files, args, subject)
    args.base, args.confirm = None, []
    dry_run(args)
    if not (args.commit or args.push):
        tell(f"written, not applied: {how_applied(fleet.source, args)}")
    return Exit.OK


def _difference(path: str, before: bytes, after: bytes | None) -> list[str]:
    one, other = (
        [printable(line) for line in (data or b"").decode(errors="replace").splitlines()]
        for data in (before, after)
    )
    to = "/dev/null" if after is None else f"b/{path}"
    lines = difflib.unified_diff(one, other, f"a/{path}", to, lineterm="")
    return [f"{line}\n" for line in lines]
