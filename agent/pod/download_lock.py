"""A lock for fetching one model to a volume that several nodes mount.

Not every network file system has locks that reach other nodes. But on all of them, of several
processes that create a file exclusively one succeeds. So the holder owns the highest of the files
`<name>.<number>`, and proves every few seconds that it lives by changing its content. A process
that sees no change for long takes the next number; clocks are never compared. A holder that slept
meanwhile sees the higher number, and stops.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.process.identity import boot_id
from agent.system.clock import Clock, SystemClock
from reconciler.api.errors import DiskFull, DownloadFailed, StateError


class DownloadLock:
    """Entered once the lock is ours; `lost` tells whether it still is. `waits` takes a line for the
    log while another process has it. DownloadFailed if `stop` is set before, DiskFull if there is
    not even room for the lock, StateError if the volume takes it for no other reason."""

    def __init__(
        self,
        folder: Path,
        name: str,
        waits: Callable[[str], None],
        stop: threading.Event,
        *,
        beat_s: float = 5.0,
        stale_s: float = 45.0,
        look_s: float = 0.5,
        clock: Clock | None = None,
    ) -> None:
        self._folder, self._name, self._waits, self._stop = folder, name, waits, stop
        self._beat_s, self._stale_s, self._look_s = beat_s, stale_s, look_s
        self._clock: Clock = clock or SystemClock()
        self._me = f"{boot_id()} {uuid.uuid4().hex}"  # the machine, and this process
        self._number = 0
        self._beats = 0
        self._descriptor: int | None = None
        self._ended = threading.Event()
        self._lost = False
        self.taken_over = False  # from a process that no longer proved that it lives

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._take()
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next one waits for us to show life
                self._give_up()
            raise _unwritable(self._folder.parent, error) from error
        threading.Thread(target=self._show_life, name="download-lock", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._give_up()

    def lost(self) -> bool:
        """Whether another process has taken it, because this one did not prove for too long that it
        lives."""
        return self._lost

    def _take(self) -> None:
        seen: tuple[int, str] | None = None
        since, has_printed = self._clock.monotonic(), False
        while True:
            top = max(self._numbers(), default=0)
            holder = (top, self._read(top)) if top else None
            if holder != seen:
                seen, since = holder, self._clock.monotonic()
            gone = holder is None or self._is_dead(*holder)
            if gone or self._clock.monotonic() - since >= self._stale_s:
                if self._create(top + 1):
                    self.taken_over = holder is not None
                    return
                continue
            if not has_printed:
                self._waits("another process brings it")
                has_printed = True
            if self._stop.wait(self._look_s):
                raise DownloadFailed("stopped while it waited for another process")

    def _create(self, number: int) -> bool:
        """Whether the number is ours. The owner of a lower one sees it; its file is removed."""
        try:
            descriptor = os.open(self._path(number), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        self._descriptor, self._number = descriptor, number
        with contextlib.suppress(OSError):  # only for those on the same machine: see _is_dead
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._beat()
        if any(other > number for other in self._numbers()):  # it was gone, and taken meanwhile
            self._give_up()
            return False
        lower = [other for other in self._numbers() if other < number]
        for other in lower:
            self._path(other).unlink(missing_ok=True)
        if any(other != number - 1 for other in lower):  # one that began a moment ago stops
            self._ended.wait(2 * self._beat_s)
        return True

    def _is_dead(self, number: int, text: str) -> bool:
        """Whether its owner ran on this machine, and its kernel reports that it has ended."""
        if text.partition(" ")[0] != boot_id():
            return False
        try:
            descriptor = os.open(self._path(number), os.O_RDWR)
        except OSError:
            return False  # it has ended meanwhile: the next check sees that
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its owner holds it, or there are no locks here
            return False
        else:
            return True
        finally:
            os.close(descriptor)

    def _show_life(self) -> None:
        while not self._ended.wait(self._beat_s):
            # a full disk: we cannot prove that we live, and may lose it
            with contextlib.suppress(OSError):
                self._beat()
            with contextlib.suppress(OSError):
                if max(self._numbers(), default=0) != self._number:
                    self._lost = True
                    return

    def _beat(self) -> None:
        assert self._descriptor is not None
        self._beats += 1
        os.pwrite(self._descriptor, f"{self._me} {self._beats}\n".encode(), 0)
        os.fsync(self._descriptor)

    def _give_up(self) -> None:
        if self._descriptor is not None:
            self._path(self._number).unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def _numbers(self) -> tuple[int, ...]:
        names = (path.name.removeprefix(f"{self._name}.") for path in self._folder.iterdir())
        return tuple(int(name) for name in names if name.isdecimal())

    def _read(self, number: int) -> str:
        try:
            return self._path(number).read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}.{number}"


def _unwritable(volume: Path, error: OSError) -> DiskFull | StateError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull(f"no space left on {volume}: free some, or give it a larger volume")
    return StateError(
        f"{volume}: cannot be written by user {os.geteuid()}: {error.strerror}; a folder of the"
        " node (cache: host:/PATH) must belong to that user"
    )
