"""One run's own folder: everything that the tests write, and how to know what they started."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil

from tests.support.wait import RUN_FOLDER

_DEADLINE_S = 10.0


class RunFolder:
    """Removed at the end, unless `keep` was called."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="fleet-tests-")).resolve()
        self.temporary = self.path / "tmp"
        self.temporary.mkdir()
        self._is_kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()
        if self._is_kept:
            shutil.rmtree(self.temporary / "other", ignore_errors=True)
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def keep(self) -> None:
        """For a person to look at."""
        self._is_kept = True

    @property
    def environment(self) -> dict[str, str]:
        """For the tests. Whatever they make with `tempfile` is in the folder, too."""
        other = self.temporary / "other"
        other.mkdir(exist_ok=True)
        # Four hundred modules compiled again by each worker and each program cost minutes.
        # And what was said of this run is not meant for one that a test makes.
        left_out = {"PYTHONDONTWRITEBYTECODE", "T", "SEED", "WORKERS"}
        kept = {k: v for k, v in os.environ.items() if k not in left_out}
        return {**kept, RUN_FOLDER: str(self.path), "TMPDIR": str(other)}

    def processes(self) -> list[psutil.Process]:
        """Those that live, were started by this run's tests, and have not ended with them."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def kill_all(self) -> None:
        """Also what starts while others are killed."""
        deadline = time.monotonic() + _DEADLINE_S
        while (left := self.processes()) and time.monotonic() < deadline:
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=0.5)

    def _is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                return False
            return any(str(self.path) in text for text in _traces(process))
        return False


def _traces(process: psutil.Process) -> Iterator[str]:
    """Where a process that we started names a folder of ours: services have an environment of
    their own, and every one of them a folder."""
    for read in (process.environ, process.cwd, process.cmdline):
        with contextlib.suppress(psutil.Error, OSError):
            said = read()
            yield from (
                said.values()
                if isinstance(said, dict)
                else [said]
                if isinstance(said, str)
                else said
            )
