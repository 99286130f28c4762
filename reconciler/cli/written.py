"""Files that a command changes in the folder of the fleet for a person, and commits if asked."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reconciler.api.errors import StateError, UsageError
from reconciler.console.edge import tell
from reconciler.report.terminal import printable

if TYPE_CHECKING:
    from reconciler.source.directory import DirectorySource
    from reconciler.source.folder_writer import FolderWriter
    from reconciler.source.worktree import WorktreeSource


class FileChange(NamedTuple):
    """What a file is to hold in the place of what it held; None: no file."""

    before: bytes | None
    after: bytes | None


def add_commit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--commit", action="store_true", help="commit these files, and nothing else, as yourself"
    )
    parser.add_argument("--push", action="store_true", help="--commit, then push the branch")


def open_folder(args: argparse.Namespace) -> DirectorySource | WorktreeSource:
    """The fleet, where it is a folder on this machine. Raises UsageError."""
    from reconciler.cli.fleet import open_fleet
    from reconciler.source.directory import DirectorySource
    from reconciler.source.worktree import WorktreeSource

    fleet = open_fleet(args, working_tree=True)
    if not isinstance(fleet, DirectorySource | WorktreeSource):
        raise UsageError("files are written into a folder: -C must be one, without --ref")
    return fleet


def how_applied(source: DirectorySource | WorktreeSource, args: argparse.Namespace) -> str:
    """What a person does next with files that were written and not committed."""
    from reconciler.source.worktree import WorktreeSource

    if isinstance(source, WorktreeSource):
        return "commit and push"
    words = [] if args.fleet == "." else ["-C", args.fleet]
    if args.local is not None:
        words.append(f"--local={args.local}" if args.local else "--local")
    words += (word for name in args.cluster for word in ("--cluster", name))
    return f"run `{shlex.join(['reconcile', 'apply', *words])}`"


def write(
    root: Path, files: Mapping[str, FileChange], args: argparse.Namespace, subject: str
) -> None:
    """Change them all, and commit with --commit. What can be refused is refused before the first
    is written. Raises UsageError, SourceError, StateError."""
    with _writing(root) as folder:
        for path, file in files.items():
            if file.before is None and folder.exists(path):
                raise UsageError(
                    f"{root / path}: is there already; edit it, or choose another name"
                )
    is_committed = args.commit or args.push
    if is_committed:
        from reconciler.source import committing

        edited = [path for path, file in files.items() if file.before is not None]
        committing.check(root, tuple(files), push=args.push, edited=edited)
    with _writing(root) as folder:
        _write_all(folder, root, files)
    for path in files:
        print(root / path, flush=True)
    if is_committed:
        _commit(root, tuple(files), args, subject)


def _write_all(folder: FolderWriter, root: Path, files: Mapping[str, FileChange]) -> None:
    """Where one cannot be written, no new one stays."""
    made = []
    try:
        for path, file in files.items():
            _write(folder, root, path, file)
            if file.before is None:
                made.append(path)
    except OSError:
        for path in made:
            folder.remove(path)
        raise


def _write(folder: FolderWriter, root: Path, path: str, file: FileChange) -> None:
    if file.before is None:
        folder.create(path, file.after or b"")
    elif not folder.rewrite(path, file.before, file.after):
        raise StateError(f"{root / path}: was changed meanwhile, and is left so; try again")


@contextmanager
def _writing(root: Path) -> Iterator[FolderWriter]:
    from reconciler.source.folder_writer import FolderWriter

    try:
        with FolderWriter(root) as folder:
            yield folder
    except OSError as error:
        raise StateError(f"{root}: cannot be written: {error.strerror}") from error


def _commit(root: Path, paths: tuple[str, ...], args: argparse.Namespace, subject: str) -> None:
    from reconciler.source import committing

    done = committing.commit(root, paths, subject)
    tell(f"committed {done.commit} on {printable(done.branch)}")
    if done.left:
        tell(
            printable(f"warning: not in that commit, but in this folder: {', '.join(done.left)}"),
        )
    if args.push:
        push(root)


def push(root: Path) -> None:
    """Push what is committed. Raises SourceError."""
    from reconciler.source import committing

    tell(printable(f"pushed to {committing.push(root)}"))
