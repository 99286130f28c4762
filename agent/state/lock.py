"""The lock of a state directory: who has it is its only user, also once the directory is gone.

It is a lock on two files: one in the directory, and one beside it, which a directory that was
removed, replaced or restored does not take along. Where nothing can be made beside the directory,
nobody but an administrator can remove it either, and the first file has to do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path

from reconciler.api.errors import StateError, StateInUse, error_text

_PAUSE_S = 0.02
_LONGEST = 16  # bytes of a pid and blanks
_OWNED_TRIES = 10  # while another process ends that had the lock
_LOOKED_TRIES = 500  # while others only look: a moment, which may be long on a busy machine


class OwnerLock:
    """A lock on one directory. Children do not inherit it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.inside = root / "agent.lock"
        self.beside = root.parent / f".{root.name}.lock"
        self._held: dict[Path, int] = {}

    def take(self) -> None:
        """Until `give_up` or the end of this process. OSError where the file cannot be made,
        StateInUse where another process is the owner."""
        if self.beside not in self._held:
            with contextlib.suppress(OSError):
                self._held[self.beside] = self._locked(self.beside)
        try:
            self._held[self.inside] = self._locked(self.inside)
        except (OSError, StateError):
            self.give_up()
            raise

    def take_again(self) -> None:
        """The file in the directory, after that went away. As `take`, and what is held stays."""
        self._held[self.inside] = self._locked(self.inside)

    def give_up(self) -> None:
        """Let another process in. The file beside is removed before it can be another's."""
        if self.beside in self._held and self._is_at(self.beside):
            with contextlib.suppress(OSError):
                self.beside.unlink()
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    @property
    def is_held(self) -> bool:
        return self.inside in self._held

    @property
    def is_in_place(self) -> bool:
        """Whether the directory is the one that was locked."""
        return self._is_at(self.inside)

    def holder(self) -> int | None:
        """The pid of the process that has it now, for showing; None when it is free."""
        if self.is_held:
            return os.getpid()
        holders = (_holder(path) for path in (self.inside, self.beside))
        return next((pid for pid in holders if pid is not None), None)

    def _is_at(self, path: Path) -> bool:
        return path in self._held and _is_same(path, self._held[path])

    def _locked(self, path: Path) -> int:
        """A new descriptor of the file that is there, locked: its owner may have removed the one
        that was opened."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        while True:
            # Beside the directory others may have their files, too.
            descriptor = os.open(path, flags | os.O_NOFOLLOW * (path == self.beside), 0o600)
            try:
                if path == self.beside and os.fstat(descriptor).st_uid != os.geteuid():
                    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
                self._lock(descriptor, path)
            except BaseException:
                os.close(descriptor)
                raise
            if _is_same(path, descriptor):
                break
            os.close(descriptor)
        if old := self._held.pop(path, None):
            os.close(old)
        with contextlib.suppress(OSError):  # over what is there: a full disk takes that, too
            os.pwrite(descriptor, f"{os.getpid()}\n".ljust(_LONGEST).encode(), 0)
        return descriptor

    def _lock(self, descriptor: int, path: Path) -> None:
        try:
            _lock_exclusively(descriptor)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise StateError(f"{path}: cannot be locked: {error_text(error)}") from error
            raise StateInUse(
                f"{self._root}: already in use by pid {_pid_in(descriptor) or 'unknown'};"
                " stop that one, or choose another directory with --state-dir"
            ) from error


def _holder(path: Path) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _pid_in(descriptor)
    finally:
        os.close(descriptor)
    return None


def _pid_in(descriptor: int) -> int | None:
    text = os.pread(descriptor, _LONGEST, 0).decode(errors="replace").strip()
    return int(text) if text.isdecimal() else None


def _is_same(path: Path, descriptor: int) -> bool:
    """Whether the file at a path is the one that is open."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _lock_exclusively(descriptor: int) -> None:
    """OSError when another process has it for longer than `holder` takes to look."""
    owned = looked = 0
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _is_shared(descriptor):
                looked += 1
            else:
                owned += 1
            if owned == _OWNED_TRIES or looked == _LOOKED_TRIES:
                raise
        time.sleep(_PAUSE_S)


def _is_shared(descriptor: int) -> bool:
    """Whether those who have the lock only look."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True
