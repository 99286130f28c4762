"""The source for the location that a user gave with -C."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from reconciler.api.errors import SourceError, UsageError
from reconciler.source.address import GitCredentials, parse_address
from reconciler.source.checkout import Source
from reconciler.source.command import read_git


def open_source(
    location: str,
    *,
    cache_dir: Path,
    ref: str | None = None,
    subdir: str | None = None,
    credentials: GitCredentials | None = None,
    working_tree: bool = False,
    applied_from: str | None = None,
    option: str = "-C",
) -> Source:
    """The source of a path or git URL.

    A path inside a work tree, without `ref`, is read from disk if `working_tree` is set; otherwise
    its committed blobs count. A folder that git ignores is a plain folder. A repository that is
    gone and was fetched before counts as an unreachable remote; so does any missing path from which
    the last good state came: `applied_from` is that state's location. `option` is the name of the
    option for messages. Raises UsageError or SourceError.
    """
    if not location.strip():
        raise UsageError(f"{option} is empty: give a folder or a git URL")
    path = parse_address(location).path
    if path is None:
        return _git(location, cache_dir, ref, "", subdir, credentials)
    if _is_bundle(path) and (path.exists() or applied_from or _was_fetched(location, cache_dir)):
        from reconciler.source.bundle import BundleSource

        return BundleSource(path.absolute(), cache_dir=cache_dir, ref=ref, subdir=subdir)
    if not path.exists() and not working_tree:
        if _was_fetched(location, cache_dir):
            return _git(location, cache_dir, ref, "", subdir, credentials)
        if applied_from and path.absolute().is_relative_to(applied_from):
            return _lost(path.absolute(), Path(applied_from), cache_dir, ref, subdir)
    _check_folder(path, option)
    kind, top, prefix = _classify(path)
    if kind == "plain":
        if ref is not None:
            raise UsageError(f"--ref {ref}: {path} is not a git repository, so it has no revisions")
        from reconciler.source.directory import DirectorySource

        return DirectorySource(path, subdir=subdir)
    if kind == "worktree" and working_tree and ref is None:
        from reconciler.source.worktree import WorktreeSource

        return WorktreeSource(path, subdir=subdir)
    return _git(str(top), cache_dir, ref, prefix, subdir, credentials)


def _lost(path: Path, top: Path, cache_dir: Path, ref: str | None, subdir: str | None) -> Source:
    """What a missing path was: a folder of a repository, or a plain folder."""
    if _was_fetched(str(top), cache_dir):
        root = path.relative_to(top).as_posix()
        return _git(str(top), cache_dir, ref, "" if root == "." else root, subdir, None)
    from reconciler.source.directory import DirectorySource

    return DirectorySource(path, subdir=subdir)


def cache_dir() -> Path:
    """Folder for data that can be fetched again: mirrors of git repositories."""
    stated = os.environ.get("XDG_CACHE_HOME", "")
    if Path(stated).is_absolute():
        return Path(stated) / "fleet-reconciler"
    usual = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return Path.home() / usual / "fleet-reconciler"


def _git(
    location: str,
    cache_dir: Path,
    ref: str | None,
    root: str,
    subdir: str | None,
    credentials: GitCredentials | None,
) -> Source:
    from reconciler.source.git import GitSource

    return GitSource(
        location, cache_dir=cache_dir, ref=ref, root=root, subdir=subdir, credentials=credentials
    )


def _is_bundle(path: Path) -> bool:
    if path.is_dir():
        return False
    from reconciler.source.bundle import is_bundle

    return is_bundle(path)


def _was_fetched(location: str, cache_dir: Path) -> bool:
    from reconciler.source.mirror import Mirror, Remote

    return Mirror.of(Remote(parse_address(location)), cache_dir).folder.is_dir()


def _check_folder(path: Path, option: str) -> None:
    if path.is_dir():
        return
    if path.exists():
        raise UsageError(
            f"{path}: is a file and not a git bundle; give the folder or repository that holds it"
        )
    raise SourceError(f"{path}: no such folder; give a folder or a git URL after {option}")


def _classify(path: Path) -> tuple[str, Path, str]:
    """(plain | worktree | bare, where the repository is, path of the folder inside it)."""
    asked = ("--is-inside-work-tree", "--show-toplevel", "--show-prefix")
    output = read_git(path, "rev-parse", *asked)
    is_inside, _, place = output.text.partition("\n")
    if is_inside == "false":
        return "bare", path, ""  # which has no top level: that question fails
    if output.code != 0:
        if "not a git repository" in output.stderr:
            return "plain", path, ""
        from reconciler.source.worktree import explain_refusal

        raise SourceError(explain_refusal(path, output.stderr, output.message))
    top, _, prefix = place.partition("\n")
    if prefix and read_git(path, "check-ignore", "--quiet", ".").code == 0:
        return "plain", path, ""
    return "worktree", Path(top), prefix.rstrip("/\n")
