"""A folder of rendered objects, for Flux or Argo CD: kept equal to the fleet, file by file.

A list in the folder says which files are ours: only they are changed or removed. Everything else
in it was not written by us, and such a file where one of ours should be is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from reconciler.api.errors import UsageError
from reconciler.atomic import atomic_write

LIST = ".fleet-rendered"
_HEAD = (
    "# Written by `reconcile render`: the files here that are its own, and that it may remove.\n"
)


@dataclass(frozen=True, slots=True)
class Written:
    """What became of the files, by path within the folder."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int


def write_folder(root: Path, files: Mapping[str, str], held: Collection[str] = ()) -> Written:
    """Make the folder have these files, by path (`cluster/namespace/service.yaml`). `held` are ours
    if they are there, and stay as they are. Raises UsageError: a file or folder that is not ours is
    in the way, or the folder cannot be written."""
    try:
        return _write(root, files, held)
    except OSError as error:
        raise UsageError(f"-o {root}: {error.strerror or error}") from error


def _write(root: Path, files: Mapping[str, str], held: Collection[str]) -> Written:
    before = _listed(root)
    found = {path: _read(root, path) for path in sorted({*files, *before})}
    for path, text in files.items():
        there = found[path]
        if path not in before and there is not None and there != text:
            raise UsageError(f"-o {root}: {path} is there and not ours; move it away, or name"
                             " another folder")  # fmt: skip
    keep = {path for path in before if path in held and found[path] is not None}
    gone = [path for path in before if path not in files and path not in keep]
    changed = [path for path in sorted(files) if found[path] != files[path]]
    root.mkdir(parents=True, exist_ok=True)
    # The list is the first to name a new file and the last to forget one: whatever ends us between
    # leaves nothing without an owner.
    _list(root, {*before, *files})
    for path in changed:
        _replace(root / path, files[path])
    removed = [path for path in gone if found[path] is not None]
    for path in removed:
        _remove(root, path)
    _list(root, {*files, *keep})
    return Written(tuple(changed), tuple(removed), len(files) - len(changed))


def _listed(root: Path) -> tuple[str, ...]:
    """The files that an earlier run wrote. A line that leads elsewhere is none of them."""
    text = _read(root, LIST) or ""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return tuple(sorted({line for line in lines if _is_within(line)}))


def _is_within(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and path.endswith(".yaml")


def _read(root: Path, path: str) -> str | None:
    """None: not there. Raises UsageError for anything but a file of text in plain folders."""
    place = root / path
    for part in (place, *place.parents[: len(PurePosixPath(path).parts) - 1]):
        if part.is_symlink():
            raise UsageError(f"-o {root}: {part.relative_to(root)} is a link; remove it")
    if place.is_dir():
        raise UsageError(f"-o {root}: {path} is a folder; move it away")
    try:
        return place.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        return ""


def _list(root: Path, paths: Collection[str]) -> None:
    text = _HEAD + "".join(f"{path}\n" for path in sorted(paths))
    if _read(root, LIST) != text:
        _replace(root / LIST, text)


def _replace(place: Path, text: str) -> None:
    """By a rename, so that no reader sees half of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(place, text.encode(), mode=0o666, durable=False)  # as the umask has it


def _remove(root: Path, path: str) -> None:
    """The file, and the folders that are empty without it."""
    place = root / path
    place.unlink(missing_ok=True)
    for folder in place.parents[: len(PurePosixPath(path).parts) - 1]:
        try:
            folder.rmdir()
        except OSError:
            return
