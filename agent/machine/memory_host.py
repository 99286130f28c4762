"""This machine's memory and its users, from the kernel. A figure that cannot be read is None, never
0.

Linux counts the pages of mapped files (a model's weights) as available, as it can drop them and
read them again: they do not count as in use.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.process.identity import describe
from reconciler.api.quantity import show_bytes

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The machine's own memory in bytes; `in_use` is what no process could get now."""

    total: int
    in_use: int


@dataclass(frozen=True, slots=True)
class Resident:
    """What a process holds in bytes: all of it, and the part that the machine counts as in use."""

    total: int
    fixed: int


@dataclass(frozen=True, slots=True)
class Programs:
    """Who runs: the processes of each service, by the pid of its first, and the largest other."""

    trees: Mapping[int, tuple[int, ...]]
    largest_other: str = ""

    def of(self, leader: int) -> tuple[int, ...]:
        """The processes of one service, the first and its children."""
        return self.trees.get(leader, ())


def programs(leaders: Collection[int]) -> Programs:
    """Read every process once. Each of our services has a session of its own, whose number is the
    pid of the process that we started."""
    import psutil

    wanted, trees = frozenset(leaders), dict[int, list[int]]()
    largest, size = None, 0
    for pid in psutil.pids():
        session = _session(pid)
        if session in wanted:
            trees.setdefault(session, []).append(pid)
        elif pid != os.getpid() and (bytes_held := _held_bytes(pid)) > size:
            largest, size = pid, bytes_held
    named = f"{describe(largest)}, {show_bytes(size)}" if largest is not None else ""
    return Programs({leader: tuple(pids) for leader, pids in trees.items()}, named)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _fields(path: Path) -> dict[str, int]:
    """`Name:  123 kB` lines -> bytes; empty if the file cannot be read."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines if line.endswith(" kB"))
    return {w[0].rstrip(":"): int(w[1]) * 1024 for w in words if len(w) == 3 and w[1].isdecimal()}


if sys.platform == "linux":

    def host_memory(root: Path = Path("/")) -> HostMemory | None:
        """The machine's memory now."""
        memory = _fields(root / "proc/meminfo")
        total, available = memory.get("MemTotal"), memory.get("MemAvailable")
        return None if total is None or available is None else HostMemory(total, total - available)

    def resident(pid: int) -> Resident | None:
        """What a process holds; counters of the kernel, read in microseconds. Pages that several
        processes map count for each."""
        fields = _fields(Path(f"/proc/{pid}/status"))
        total = fields.get("VmRSS")
        if total is None:
            return None
        own = fields.get("RssAnon", total) + fields.get("RssShmem", 0)
        return Resident(total, min(own + fields.get("VmLck", 0), total))

    def measured_bytes(pid: int) -> int | None:
        """PSS: what a process maps, each shared page divided among the processes that map it. The
        kernel walks all of its pages for it: 7 ms a GiB (6.18, pages of 4 KiB)."""
        return _fields(Path(f"/proc/{pid}/smaps_rollup")).get("Pss")

    def _held_bytes(pid: int) -> int:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
        return 0

else:  # macOS; not exercised by the tests on Linux

    def host_memory(root: Path = Path("/")) -> HostMemory | None:
        """The machine's memory now, as vm_stat counts it: what is free or inactive is available."""
        import psutil

        memory = psutil.virtual_memory()
        return HostMemory(memory.total, memory.total - memory.available)

    def resident(pid: int) -> Resident | None:
        """What a process holds."""
        held = _held_bytes(pid)
        return Resident(held, held) if held else None

    def measured_bytes(pid: int) -> int | None:
        """What would be free if the process ended (USS). The footprint that Activity Monitor shows
        comes from a tool that takes seconds."""
        import psutil

        try:
            return int(psutil.Process(pid).memory_full_info().uss)
        except psutil.Error:
            return None

    def _held_bytes(pid: int) -> int:
        import psutil

        with contextlib.suppress(psutil.Error):
            return int(psutil.Process(pid).memory_info().rss)
        return 0
