"""The directory that holds everything a node must remember, and its lock."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shlex
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from agent.state.writable import free_bytes, takes_files, why_unwritable
from reconciler.api.errors import StateError, words_of
from reconciler.api.meta import ObjectRef
from reconciler.api.quantity import show_at_least

_FOLDERS = ("records", "logs", "desired", "models", "workloads")
_LOCK_PAUSE_S = 0.02
_OWNED_TRIES = 10  # while another process ends that had the lock
_LOOKED_TRIES = 500  # while others only look: a moment, which may be long on a busy machine
_ROOM_BYTES = 256 << 10  # a record, an engine's files, the first lines of its log
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
        """Make the folders that are missing; StateError when that cannot be done, or when what is
        there may belong to another user: then nothing is made."""
        state = cls(root.expanduser().absolute())
        state.must_take_changes()
        try:
            state.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in _FOLDERS:
                (state.root / folder).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise state._unusable(words_of(error)) from error
        state.must_be_ours()  # another may have made one of them just then
        state._close()
        return state

    def must_be_ours(self) -> None:
        """What others may write here, a record's command line among it, would run as us, and what
        they say of this node would be believed. Raises StateError; what is missing does not
        matter."""
        for folder in (self.root, *(self.root / name for name in _FOLDERS)):
            with contextlib.suppress(OSError):
                _refuse_strangers(folder, folder.stat())

    def must_take_changes(self) -> None:
        """As `open` and `lock` find it, for who only asks whether they would. Models may lie where
        nothing can be written, and be all there. Raises StateError."""
        self.must_be_ours()
        for folder in (self.root, *(self.root / name for name in _FOLDERS)):
            is_read_only = folder == self.models and folder.is_dir()
            if not is_read_only and (why := why_unwritable(folder)):
                raise self._unusable(why)
        if self.lock_file.exists() and not os.access(self.lock_file, os.R_OK | os.W_OK):
            raise self._unusable(f"{self.lock_file}: {os.strerror(errno.EACCES)}")

    def _unusable(self, why: str) -> StateError:
        return StateError(
            f"{self.root}: the state directory cannot be used ({why}); see to that, or choose"
            " another with --state-dir"
        )

    def _close(self) -> None:
        """Take away what a umask gave to a group: who else is in it, nobody here knows. What a link
        leads to is somebody's choice."""
        for folder in (self.root, *(self.root / name for name in _FOLDERS)):
            with contextlib.suppress(OSError):
                found = folder.lstat()
                if (
                    stat.S_ISDIR(found.st_mode)
                    and found.st_mode & 0o020
                    and found.st_uid == os.geteuid()
                ):
                    folder.chmod(stat.S_IMODE(found.st_mode) & ~0o022)

    def lock(self) -> None:
        """Become the only user, until `unlock` or the end of this process.

        StateError names the process that is. Children do not inherit the lock.
        """
        try:
            descriptor = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(words_of(error)) from error
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
        with contextlib.suppress(OSError):  # a full disk: who asks is not told the pid
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

    def why_unwritable(self) -> str | None:
        """Why no new record, and what else a start writes, would find a place now; None where it
        would. Tried, since a file system may refuse for more reasons than it tells."""
        trial = self.records / ".room"
        try:
            trial.write_bytes(bytes(_ROOM_BYTES))
        except OSError as error:
            return f"the state directory cannot be written: {error.strerror}"
        finally:
            with contextlib.suppress(OSError):
                trial.unlink()
        return None

    def why_takes_nothing(self) -> str | None:
        """Why no service could be started from here, without trying; None: as far as can be told,
        one could."""
        for folder in (self.records, self.workloads, self.logs):
            if why := why_unwritable(folder):
                return f"the state directory cannot be written: {why}; see to that"
        free = free_bytes(self.root)
        if free is None or free >= _ROOM_BYTES:
            return None
        return (
            f"the state directory cannot be written: {os.strerror(errno.ENOSPC)};"
            f" free {show_at_least(_ROOM_BYTES - free)} on the disk of {self.root}"
        )

    def why_takes_nothing_of(self, ref: ObjectRef) -> str | None:
        """The same of one service's own folders, where nothing is wrong with those above them."""
        for folder in (self.workload_dir(ref), self.log_file(ref).parent):
            if not takes_files(folder) and (why := why_unwritable(folder)):
                return f"the state directory cannot be written: {why}; see to that"
        return None

    @property
    def option(self) -> str:
        """What to add to a command of `fleet-agent` to mean this one; mostly nothing."""
        default = default_root(os.environ)
        return "" if self.root == default else f" --state-dir {shlex.quote(str(self.root))}"

    def record_file(self, ref: ObjectRef) -> Path:
        return self.records / f"{slug(ref)}.json"

    def log_file(self, ref: ObjectRef) -> Path:
        return self.logs / slug(ref) / "current.log"

    def workload_dir(self, ref: ObjectRef) -> Path:
        """The service's own directory: its working directory, and the value of `{dir}`."""
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


def _refuse_strangers(folder: Path, found: os.stat_result) -> None:
    others = 0o002 if found.st_gid == os.getegid() else 0o022  # many have a group of their own
    if found.st_mode & others:
        raise StateError(
            f"{folder}: others may write there (mode {found.st_mode & 0o777:o}), and what it"
            " holds is run: chmod 700 it, or choose another with --state-dir"
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise StateError(f"{folder}: belongs to another user; choose another with --state-dir")
