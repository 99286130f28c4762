"""Models that are whole and verified, under the names that engines in other containers are given.

Everything below `ready` is a relative link into the store, so that it holds wherever the volume is
mounted. A folder appears by one rename, complete; what it leads to never changes after that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from agent.models.shelf import Shelf, StoredModel
from agent.state import sync_directory
from reconciler.errors import ModelError
from reconciler.models.ready import READY, ready_file, ready_key
from reconciler.models.tree import shards_of
from reconciler.workload import ModelFile

_ALL_MAY_READ = 0o444


def publish(root: Path, model: ModelFile, stored: StoredModel) -> Path:
    """Make a stored model appear; returns what its engine is given. `root` is the store's folder.

    Raises ModelError where its files cannot be given the name that the engine will ask for.
    """
    links = _links(model, stored)
    top = root / READY
    place = top / ready_key(model)
    if not _leads(place, links):
        top.mkdir(parents=True, exist_ok=True)
        staged = top / f".{place.name}.{os.getpid()}.{os.urandom(4).hex()}"
        try:
            _build(staged, links, depth=root)
            _swap(staged, place, links)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        sync_directory(top)
    with contextlib.suppress(OSError):  # whoever waits may be another user, with the volume's group
        (_shelved(root, stored.digest) / ".model.json").chmod(_ALL_MAY_READ)
    return place / ready_file(model)


def why_not(root: Path, shelf: Shelf, key: str) -> str | None:
    """Why the model of a key cannot be used yet, or None. Every file that its folder leads to must
    belong to a model of the store that is as long as when it was verified."""
    place = root / READY / key
    links = [path for path in place.rglob("*") if path.is_symlink()]
    if not links:
        return "not there yet"
    for path in links:
        digest = _digest_of(root, path)
        if digest is None:
            return f"{path.relative_to(place)} leads out of the store"
        if shelf.get(digest) is None or not path.exists():
            return f"its files (sha256 {digest[:12]}) are not whole"
    return None


def _links(model: ModelFile, stored: StoredModel) -> Mapping[str, Path]:
    """Name in the folder -> the stored file."""
    files = {file.path: stored.base / file.path for file in stored.files}
    wanted = ready_file(model)
    if not wanted or wanted in files:
        return files
    if len(files) == 1:
        return {wanted: stored.path}
    if not stored.path.is_file() or shards_of(stored.path.name):
        raise ModelError(
            f"its engine would be given {wanted}, but it is split into several files: name its"
            f" first part, {stored.path.name}, in spec.source or spec.files"
        )
    return {**files, wanted: stored.path}


def _leads(place: Path, links: Mapping[str, Path]) -> bool:
    """Whether a folder has these links and no others."""
    found = {str(p.relative_to(place)): p for p in place.rglob("*") if p.is_symlink()}
    return found.keys() == links.keys() and all(
        path.resolve() == links[name].resolve() for name, path in found.items()
    )


def _build(staged: Path, links: Mapping[str, Path], depth: Path) -> None:
    """`staged` lies where the folder will: as deep below the store."""
    staged.mkdir()
    for name, target in links.items():
        path = staged / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(target, path.parent))
    for folder in {staged, *(path for path in staged.rglob("*") if path.is_dir())}:
        if not folder.is_symlink():
            sync_directory(folder)


def _swap(staged: Path, place: Path, links: Mapping[str, Path]) -> None:
    """Put it in place. One that is there and leads elsewhere is of no use: it goes first."""
    for _ in range(2):
        try:
            staged.rename(place)
            return
        except OSError:
            if _leads(place, links):  # another process was faster
                return
            aside = staged.with_name(f"{staged.name}.old")
            with contextlib.suppress(OSError):
                place.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
    raise ModelError(f"{place}: another process keeps replacing it")


def _digest_of(root: Path, path: Path) -> str | None:
    """The digest of the stored model that a link leads to."""
    target = Path(os.path.normpath(path.parent / os.readlink(path)))
    with contextlib.suppress(ValueError):
        kind, digest, *_ = target.relative_to(root).parts
        return digest if kind == "sha256" else None
    return None


def _shelved(root: Path, digest: str) -> Path:
    return root / "sha256" / digest
