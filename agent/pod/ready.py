"""Models that are whole and verified, under the names that engines in other containers are given.

Everything below `ready` is a relative link into the store, so that it holds wherever the volume is
mounted. A folder appears by one rename, complete.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from agent.models.content_store import ContentStore, StoredModel
from reconciler.api.errors import ModelError, UsageError
from reconciler.atomic import sync_directory
from reconciler.fleet.model_file import ModelFile
from reconciler.models.ready import READY, ready_file, ready_key
from reconciler.models.tree import shards_of

_ALL_MAY_READ = 0o444


def publish(root: Path, model: ModelFile, stored: StoredModel) -> Path:
    """Publish a stored model; returns the path for its engine. `root` is the store's folder.

    Raises ModelError if its files cannot have the name that the engine expects.
    """
    links = _links(model, stored)
    top = root / READY
    top.mkdir(parents=True, exist_ok=True)
    place = top / ready_key(model)
    if not place.is_dir():
        _build(top, place, links)
    _amend(place, links, root, stored.digest)
    sync_directory(top)
    # a waiting container may run as another user, with the volume's group
    with contextlib.suppress(OSError):
        (root / "sha256" / stored.digest / ".model.json").chmod(_ALL_MAY_READ)
    return place / ready_file(model)


def why_not(root: Path, contents: ContentStore, key: str) -> str | None:
    """Why the model of a key cannot be used yet, or None. What its folder leads to must be one
    model of the store, each of its files as long as when it was verified."""
    links = _links_in(root / READY / key)
    digests = {_digest_of(root, path) for path in links.values()}
    if not links:
        return "not there yet"
    if len(digests) > 1:
        return "is being replaced"
    (digest,) = digests
    if digest is None or contents.get(digest) is None:
        return f"its files (sha256 {(digest or 'unknown')[:12]}) are not whole"
    return None


def key_of(root: Path, path: Path) -> str:
    """The folder below `ready` that a path is in. Raises UsageError: it is in none."""
    try:
        kind, key, *_ = path.relative_to(root).parts
    except ValueError:
        kind, key = "", ""
    if kind != READY:
        raise UsageError(f"--ready {path}: not below {root / READY}")
    return key


def load_seconds(root: Path, contents: ContentStore, key: str) -> float | None:
    """What it took to bring the model of a key to the store, as it is noted beside its files. None:
    nobody waited for it, or it is not there."""
    digests = {_digest_of(root, path) for path in _links_in(root / READY / key).values()}
    stored = None if len(digests) != 1 else contents.get(digests.pop() or "")
    return stored.took_s if stored else None


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


def _build(top: Path, place: Path, links: Mapping[str, Path]) -> None:
    """The folder with all of its links, in one step; no effect if another process was faster."""
    staged = top / f".{place.name}.{os.urandom(8).hex()}"
    try:
        staged.mkdir()
        for name, target in links.items():
            _link(staged / name, target)
        for folder in (staged, *(path for path in staged.rglob("*") if path.is_dir())):
            sync_directory(folder)
        with contextlib.suppress(OSError):  # it is there and not empty
            staged.rename(place)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _amend(place: Path, links: Mapping[str, Path], root: Path, digest: str) -> None:
    """A folder that was there may lack a name, by which another source calls the same bytes, or
    lead to a model that is gone."""
    there = _links_in(place)
    wrong = {name for name, path in there.items() if _digest_of(root, path) != digest}
    for name, target in links.items():
        if name not in there or name in wrong:
            staged = place.parent / f".{place.name}.{os.urandom(8).hex()}"
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            staged.symlink_to(os.path.relpath(target, (place / name).parent))
            staged.replace(place / name)
    for name in wrong - links.keys():
        (place / name).unlink(missing_ok=True)


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def _links_in(place: Path) -> dict[str, Path]:
    links = (path for path in place.rglob("*") if path.is_symlink())
    return {path.relative_to(place).as_posix(): path for path in links}


def _digest_of(root: Path, path: Path) -> str | None:
    """The digest of the stored model that a link leads to."""
    target = Path(os.path.normpath(path.parent / os.readlink(path)))
    with contextlib.suppress(ValueError):
        kind, digest, *_ = target.relative_to(root).parts
        return digest if kind == "sha256" else None
    return None
