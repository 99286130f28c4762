"""Whether git is in the middle of something in a work tree, so that its files are half-way."""

from __future__ import annotations

import time
from pathlib import Path

_BUSY = {
    "rebase-merge": "a rebase is going on",
    "rebase-apply": "a rebase or git am is going on",
    "MERGE_HEAD": "a merge is going on",
    "CHERRY_PICK_HEAD": "a cherry-pick is going on",
    "REVERT_HEAD": "a revert is going on",
}
_LOCK_AGE_S = 60.0  # an older index.lock is left over from a git that died


def busy(path: Path) -> str | None:
    """The git operation in progress, or None. --watch waits until it is over."""
    git_dir = _find_git_dir(path.absolute())
    if git_dir is None:
        return None
    for name, what in _BUSY.items():
        if (git_dir / name).exists():
            return what
    try:
        age = time.time() - (git_dir / "index.lock").stat().st_mtime
    except OSError:
        return None
    return "git is writing the index" if age < _LOCK_AGE_S else None


def _find_git_dir(path: Path) -> Path | None:
    for folder in (path, *path.parents):
        mark = folder / ".git"
        if mark.is_dir():
            return mark
        if mark.is_file():
            text = mark.read_text(encoding="utf-8", errors="replace")
            return (folder / text.removeprefix("gitdir:").strip()).absolute()
    return None
