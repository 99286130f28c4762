"""The directory that holds everything a node must remember, and its lock."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import shlex
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from agent.state.lock import OwnerLock
from agent.state.room import is_full, make_room, name_largest, removable_logs
from agent.state.writable import free_bytes, takes_files, why_unwritable
from reconciler.api.errors import StateError, error_text
from reconciler.api.meta import ObjectRef
from reconciler.api.quantity import show_at_least, show_bytes
from reconciler.atomic import atomic_write

_log = logging.getLogger(__name__)
_FOLDERS = ("records", "logs", "desired", "models", "workloads")
_ROOM_BYTES = 256 << 10  # a record, an engine's files, the first lines of its log
_RESERVE = ".reserve"  # room for what a stop writes, on a disk that is full
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
        self._lock = OwnerLock(root)
        self.lock_file = self._lock.inside

    @classmethod
    def open(cls, root: Path) -> StateDir:
        """Make the folders that are missing; StateError when that cannot be done, or when what is
        there may belong to another user: then nothing is made."""
        state = cls(root.expanduser().absolute())
        state._make()
        return state

    def _make(self) -> None:
        self.must_take_changes()
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in _FOLDERS:
                (self.root / folder).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._unusable(error_text(error)) from error
        self.must_be_ours()  # another may have made one of them just then
        self._close()

    def must_be_ours(self) -> None:
        """What others may write here, a record's command line among it, would run as us, and what
        they say of this node would be believed. Raises StateError; what is missing does not
        matter."""
        for folder in (self.root, *(self.root / name for name in _FOLDERS)):
            with contextlib.suppress(OSError):
                _refuse_strangers(folder, folder.stat())

    def must_take_changes(self) -> None:
        """Raise what `open` and `lock` would, for a caller that only asks. Models may lie where
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
                status = folder.lstat()
                if (
                    stat.S_ISDIR(status.st_mode)
                    and status.st_mode & 0o020
                    and status.st_uid == os.geteuid()
                ):
                    folder.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
        for log in self.logs.glob("*/current.log*"):
            with contextlib.suppress(OSError):
                if log.lstat().st_mode & 0o077:  # as earlier versions made them
                    log.chmod(0o600)

    def lock(self) -> None:
        """Become the only user, until `unlock` or the end of this process.

        StateError names the process that is. Children do not inherit the lock.
        """
        try:
            self._lock.take()
        except OSError as error:
            raise self._unusable(error_text(error)) from error
        self._reserve()

    def unlock(self) -> None:
        """Let another process in. Harmless when not locked."""
        self._lock.give_up()

    def holder(self) -> int | None:
        """The pid of the process that has the lock now, for showing; None when it is free."""
        return self._lock.holder()

    @property
    def is_gone(self) -> bool:
        """Whether somebody uses this directory and it is not there: removed under its owner, who
        makes it again."""
        return not self.lock_file.exists() and self.holder() is not None

    def keep(self) -> bool:
        """For its owner: whether the directory had gone, or another was in its place. It is there
        now, and locked, and nothing that the owner wrote is in it. StateError where it cannot be
        made, StateInUse where another process owns what is there."""
        if self._lock.is_in_place:
            self._reserve()  # a stop may have taken it while the disk was full
            return False
        self._make()
        try:
            self._lock.take_again()
        except OSError as error:
            raise self._unusable(error_text(error)) from error
        return True

    def write(self, path: Path, data: bytes, *, is_stop: bool = False) -> None:
        """Replace a file of this directory, as `atomic_write` does. On a full disk, engine logs are
        cut for it. `is_stop`: a stop by hand may take the reserve as well. Raises OSError."""
        try:
            atomic_write(path, data)
        except OSError as error:
            has_room = is_full(error) and (
                self._cut_logs() or (is_stop and self._give_up_reserve())
            )
            if not has_room:
                raise
            atomic_write(path, data)

    def _reserve(self) -> None:
        reserve = self.root / _RESERVE
        with contextlib.suppress(OSError):  # a full disk now: then the next owner
            if not reserve.exists():
                atomic_write(reserve, bytes(_ROOM_BYTES), durable=False)

    def _cut_logs(self) -> bool:
        """Cut large engine logs. Return True if that freed anything."""
        freed = make_room(self.logs)
        if freed:
            _log.warning(
                "%s: the disk is full: %s of engine logs are cut", self.logs, show_bytes(freed)
            )
        return freed > 0

    def _give_up_reserve(self) -> bool:
        try:
            (self.root / _RESERVE).unlink()
        except OSError:
            return False
        return True

    def why_unwritable(self) -> str | None:
        """Why no new record, and what else a start writes, would find a place now; None where it
        would. Tried, since a file system may refuse for more reasons than it tells."""
        trial = self.records / ".room"
        try:
            try:
                trial.write_bytes(bytes(_ROOM_BYTES))
            except OSError as error:
                if not is_full(error) or not self._cut_logs():
                    raise
                trial.write_bytes(bytes(_ROOM_BYTES))
        except OSError as error:
            largest = name_largest(removable_logs(self.logs)) if is_full(error) else ""
            return f"the state directory cannot be written: {error.strerror}{largest}"
        finally:
            with contextlib.suppress(OSError):
                trial.unlink()
        self._reserve()
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
            f"{name_largest(removable_logs(self.logs))}"
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
        default = Path(os.path.realpath(default_root(os.environ)))
        return "" if self.root == default else f" --state-dir {shlex.quote(str(self.root))}"

    def record_file(self, ref: ObjectRef) -> Path:
        return self.records / f"{slug(ref)}.json"

    def log_file(self, ref: ObjectRef) -> Path:
        return self.logs / slug(ref) / "current.log"

    def workload_dir(self, ref: ObjectRef) -> Path:
        """The service's own directory: its working directory, and the value of `{dir}`."""
        return self.workloads / slug(ref)


def state_root(given: str | None) -> Path:
    """Return the state directory that was passed, or the platform's own one, without links.

    Commands of its services contain the path, so each directory has one name. Raises StateError if
    the path leads to a file or to nothing.
    """
    stated = Path(os.path.expanduser(given) if given else default_root(os.environ)).absolute()
    for path in (stated, *stated.parents):
        if path.is_symlink() and not os.path.exists(path):
            raise StateError(
                f"{path}: the link leads to {os.path.realpath(path)}, which is not there; make that"
                " folder or mount its disk, or choose another with --state-dir"
            )
        if os.path.exists(path):
            if os.path.isdir(path):
                break
            raise StateError(f"{path}: this is not a folder; choose another with --state-dir")
    return Path(os.path.realpath(stated))


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


def _refuse_strangers(folder: Path, status: os.stat_result) -> None:
    others = 0o002 if status.st_gid == os.getegid() else 0o022  # many have a group of their own
    if status.st_mode & others:
        raise StateError(
            f"{folder}: others may write there (mode {status.st_mode & 0o777:o}), and what it"
            " holds is run: chmod 700 it, or choose another with --state-dir"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise StateError(f"{folder}: belongs to another user; choose another with --state-dir")
