"""The directory that holds everything a node must remember, and its lock."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from reconciler.api.meta import ObjectRef
from reconciler.errors import StateError

_FOLDERS = ("records", "logs", "desired", "models", "workloads")
_LOCK_PAUSE_S = 0.02
_OWNED_TRIES = 10  # while another process ends that had the lock
_LOOKED_TRIES = 500  # while others only look: a moment, which may be long on a busy machine
_LONGEST_SLUG = 200  # a file name may have 255 bytes


class StateDir:
    """Paths below one root, made with mode 0700; `lock` makes this process its only user."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records = root / "records"
        self.logs = root / "logs"
        self.desired = root / "desired"
        self.models = root / "models"
        self.workloads = root / "workloads"
        self.ports = root / "ports.json"
        self.api_key = root / "api-key"  # elsewhere where a person said so
        self.lock_file = root / "agent.lock"
        self._lock: int | None = None

    @classmethod
    def open(cls, root: Path) -> StateDir:
        """Make the folders that are missing; StateError when that cannot be done."""
        state = cls(root.expanduser().absolute())
        try:
            state.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in _FOLDERS:
                (state.root / folder).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"{state.root}: the state directory cannot be made ({error.strerror});"
                " choose another with --state-dir"
            ) from error
        return state

    def lock(self) -> None:
        """Become the only user, until `unlock` or the end of this process.

        StateError names the process that is. Children do not inherit the lock.
        """
        try:
            descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(f"{self.lock_file}: {error.strerror}") from error
        try:
            _lock_exclusively(descriptor)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise StateError(f"{self.lock_file}: cannot be locked: {error.strerror}") from error
            raise StateError(
                f"{self.root}: already in use by pid {holder or 'unknown'};"
                " stop that one, or choose another directory with --state-dir"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor

    def unlock(self) -> None:
        """Let another process in. Harmless when not locked."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def holder(self) -> int | None:
        """The pid of the process that has the lock now, for showing; None when it is free."""
        if self._lock is not None:
            return os.getpid()
        try:
            descriptor = os.open(self.lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            return int(text) if text.isdecimal() else None
        finally:
            os.close(descriptor)
        return None

    def record_file(self, ref: ObjectRef) -> Path:
        return self.records / f"{slug(ref)}.json"

    def log_file(self, ref: ObjectRef) -> Path:
        return self.logs / slug(ref) / "current.log"

    def workload_dir(self, ref: ObjectRef) -> Path:
        """The service's own directory: its working directory, and what `{dir}` stands for."""
        return self.workloads / slug(ref)


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
        time.sleep(_LOCK_PAUSE_S)


def _is_shared(descriptor: int) -> bool:
    """Whether those who have the lock only look."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def default_root(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Where the state lives unless told: XDG_STATE_HOME, or Application Support on macOS."""
    home = Path(environ.get("HOME") or Path.home())
    if platform == "darwin":
        return home / "Library" / "Application Support" / "fleet-reconciler"
    stated = environ.get("XDG_STATE_HOME", "")
    base = Path(stated) if Path(stated).is_absolute() else home / ".local" / "state"
    return base / "fleet-reconciler"


def slug(ref: ObjectRef) -> str:
    """A file name for an object; `_` cannot be part of a name, so no two share one."""
    text = f"{ref.namespace}_{ref.name}"
    if len(text) <= _LONGEST_SLUG:
        return text
    return f"{text[: _LONGEST_SLUG - 17]}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def atomic_write(path: Path, data: bytes) -> None:
    """Replace a file so that a reader, or a crash, sees either the old bytes or the new ones."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, after a rename or an unlink."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Move a file that cannot be read out of the way; the newest such file is kept."""
    aside = path.with_name(f"{path.name}.corrupt")
    path.replace(aside)
    return aside
