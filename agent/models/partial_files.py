"""Folders of what has arrived of models: who works on one, and giving up what nobody works on.

Whoever works on a folder holds a lock on the file beside it, and removes that file afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.models.disk import used_bytes
from agent.models.downloads import Transfer
from reconciler.api.errors import DownloadFailed

_LOCK_POLL_S = 0.25
_NO_LOCKS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK}
_ELSEWHERE = "another process is downloading it"


@contextmanager
def only_user(path: Path, transfer: Transfer, *, may_lack_locks: bool) -> Iterator[None]:
    """Wait until no other process (or cancelled thread of this one) works on the partial file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, may_lack_locks=may_lack_locks)
            if _is_still(path, descriptor):  # its last user removes it
                break
        except BlockingIOError:
            transfer.say(_ELSEWHERE)
            transfer.cancelled.wait(_LOCK_POLL_S)
        except OSError:  # a file system without locks: each attempt would leave a descriptor open
            os.close(descriptor)
            raise
        os.close(descriptor)
        if transfer.cancelled.is_set():
            raise DownloadFailed("stopped while it waited for another process")
    if transfer.message == _ELSEWHERE:
        transfer.say("")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def is_in_use(place: Path) -> bool:
    """Whether a process works on what has arrived there."""
    try:
        descriptor = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # the last user removes it
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def touched(place: Path) -> float:
    """When something in it was written last; 0 of what is gone."""
    times = [0.0]
    for path in (place, *place.glob("*")):
        with contextlib.suppress(OSError):  # its owner removed it
            times.append(path.stat().st_mtime)
    return max(times)


def clear(place: Path) -> None:
    """Remove a folder of partial files and its lock, unless somebody works there."""
    if place.exists() or place.with_suffix(".lock").exists():
        give_up(place)


def give_up(place: Path) -> int:
    """Remove what has arrived of a model that nobody works on; the bytes that it took."""
    path = place.with_suffix(".lock")
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            freed = used_bytes(place)
            if place.exists():
                shutil.rmtree(place)
            path.unlink()
            return freed
        finally:
            os.close(descriptor)
    return 0


def lock(descriptor: int, how: int, *, may_lack_locks: bool) -> None:
    """OSError as flock raises it; with `may_lack_locks`, none if the file system has no locks."""
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        if not may_lack_locks or error.errno not in _NO_LOCKS:
            raise


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
