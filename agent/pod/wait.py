"""Wait until models are there, whole and verified: what an engine's pod does before its engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

from agent.models.content_store import ContentStore
from agent.pod.ready import key_of, why_not
from reconciler.api.errors import DownloadFailed
from reconciler.models.ready import READY

_LOOK_S = (0.2, 2.0)  # the first pause and the longest
_GROWTH = 1.5
_TELL_EVERY_S = 30.0


def wait(
    root: Path,
    ready: Sequence[Path],
    tell: Callable[[str], None],
    stop: Event,
    timeout_s: float | None = None,
) -> bool:
    """True once every path exists; False if stopped before. `root` is the store's folder, which may
    be mounted read-only. Raises UsageError, and DownloadFailed after the timeout."""
    keys = {path: key_of(root, path) for path in ready}
    contents = ContentStore(root, read_only=True, shared=True)
    began = printed_at = time.monotonic()
    pause, printed = _LOOK_S[0], ""
    while True:
        missing = {
            path: why for path, key in keys.items() if (why := _lacks(root, contents, path, key))
        }
        if not missing:
            return True
        now = time.monotonic()
        text = "; ".join(f"{path}: {why}" for path, why in missing.items())
        if timeout_s is not None and now - began >= timeout_s:
            raise DownloadFailed(f"after {timeout_s:g} s still {text}; see the Job that fetches it")
        if text != printed or now - printed_at >= _TELL_EVERY_S:
            tell(f"waits for {text} ({now - began:.0f} s)")
            printed, printed_at = text, now
        if stop.wait(pause):
            return False
        pause = min(pause * _GROWTH, _LOOK_S[1])


def _lacks(root: Path, contents: ContentStore, path: Path, key: str) -> str | None:
    _look_again(root / READY)
    if why := why_not(root, contents, key):
        return why
    return None if path.exists() else f"{key} is there, and holds no {path.name}"


def _look_again(folder: Path) -> None:
    """A network file system caches that a name did not exist, until its folder is read again."""
    for below in (folder, folder.parent / "sha256"):
        if below.is_dir():
            for _ in below.iterdir():
                break
