"""A folder of rendered objects, for Flux or Argo CD: kept equal to the fleet, file by file.

A list in the folder says which files are ours: only they are changed or removed. Everything else
in it was not written by us, and such a file where one of ours should be is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from reconciler.api.errors import UsageError
from reconciler.source.folder_writer import FolderWriter, LinkInTheWay

LIST = ".fleet-rendered"
_HEAD = (
    "# Written by `reconcile render`: the files here that are its own, and that it may remove.\n"
)


@dataclass(frozen=True, slots=True)
class RenderedFiles:
    """What became of the files, by path within the folder."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int


def write_folder(
    root: Path, files: Mapping[str, str], held_paths: Collection[str] = ()
) -> RenderedFiles:
    """Make the folder have these files, by path (`cluster/namespace/service.yaml`). `held_paths`
    are ours if they are there, and stay as they are. Raises UsageError: a file or folder that is
    not ours is in the way, or the folder cannot be written."""
    try:
        with FolderWriter(root, named=False) as folder:
            return _write(folder, root, files, held_paths)
    except LinkInTheWay as error:
        raise UsageError(f"-o {root}: {error.filename} is a link; remove it") from error
    except OSError as error:
        raise UsageError(f"-o {root}: {error.strerror or error}") from error


def _write(
    folder: FolderWriter, root: Path, files: Mapping[str, str], held_paths: Collection[str]
) -> RenderedFiles:
    before = _listed(folder, root)
    on_disk = {path: _read(folder, root, path) for path in sorted({*files, *before})}
    for path, text in files.items():
        there = on_disk[path]
        if path not in before and there is not None and there != text:
            raise UsageError(f"-o {root}: {path} is there and not ours; move it away, or name"
                             " another folder")  # fmt: skip
    keep = {path for path in before if path in held_paths and on_disk[path] is not None}
    gone = [path for path in before if path not in files and path not in keep]
    changed = [path for path in sorted(files) if on_disk[path] != files[path]]
    # The list is the first to name a new file and the last to forget one: whatever ends us between
    # leaves nothing without an owner.
    _list(folder, root, {*before, *files})
    for path in changed:
        folder.replace(path, files[path].encode())
    removed = [path for path in gone if on_disk[path] is not None]
    for path in removed:
        folder.remove(path)
    _list(folder, root, {*files, *keep})
    return RenderedFiles(tuple(changed), tuple(removed), len(files) - len(changed))


def _listed(folder: FolderWriter, root: Path) -> tuple[str, ...]:
    """The files that an earlier run wrote. A line that leads elsewhere is none of them."""
    text = _read(folder, root, LIST) or ""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return tuple(sorted({line for line in lines if _is_within(line)}))


def _is_within(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and path.endswith(".yaml")


def _read(folder: FolderWriter, root: Path, path: str) -> str | None:
    """None: not there. Raises UsageError for anything but a file of text."""
    try:
        data = folder.read(path)
        return None if data is None else data.decode()
    except IsADirectoryError as error:
        raise UsageError(f"-o {root}: {path} is a folder; move it away") from error
    except UnicodeDecodeError:
        return ""


def _list(folder: FolderWriter, root: Path, paths: Collection[str]) -> None:
    text = _HEAD + "".join(f"{path}\n" for path in sorted(paths))
    if _read(folder, root, LIST) != text:
        folder.replace(LIST, text.encode())
