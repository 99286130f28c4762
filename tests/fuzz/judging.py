"""One input, judged: within its time and its memory, with the documented error or none.

Whatever takes too long is ended by the kernel: a timer of this process that Python does not handle
also ends a loop in C that never lets go of the interpreter.
"""

from __future__ import annotations

import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz.target import Target

# What the kernel says of a process that took too long, and of one that an allocation ended.
ENDED = {
    -signal.SIGPROF: "took too long",
    -signal.SIGALRM: "waited too long",
    -signal.SIGABRT: "was aborted (out of memory?)",
    -signal.SIGSEGV: "crashed",
    -signal.SIGKILL: "was killed",
}


def bound_memory(target: Target) -> None:
    """From now on this process has only so much more."""
    statm = Path("/proc/self/statm")
    if not statm.exists():  # macOS says neither how much it has, nor heeds the limit
        return
    pages = int(statm.read_text().split()[0])
    most = pages * resource.getpagesize() + target.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def failure(target: Target, read: Callable[[bytes], None], data: bytes) -> str:
    """What the reader raised and where; empty where nothing is wrong."""
    with _limited(target):
        try:
            read(data)
        except Exception as error:  # noqa: BLE001 - whatever a reader raises is what we look for
            return _said(error)
    return ""


@contextmanager
def _limited(target: Target) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, target.cpu_s)
    signal.setitimer(signal.ITIMER_REAL, target.wall_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _said(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/site-packages/" not in f.filename] or frames
    last = ours[-1]
    where = "/".join(Path(last.filename).parts[-2:])
    return f"{type(error).__name__} at {where}:{last.lineno}: {str(error)[:200]!r}"
