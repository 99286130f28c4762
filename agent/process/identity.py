"""Know a process again, so that no signal ever reaches a stranger.

A pid alone is not enough: pids are reused. Together with the kernel's start time and the boot it
names exactly one process. The marker, an environment variable that we set, finds a child whose pid
was never recorded, and is required as well wherever the platform shows it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from agent.process.launch import Child, Identity

MARKER_VARIABLE = "FLEET_RECONCILER_INSTANCE"


def identity_of(pid: int) -> Identity | None:
    """The process that has this pid now; None if there is none, or only a zombie."""
    started = _started(pid)
    return None if started is None else Identity(pid, started, boot_id())


def is_ours(child: Child) -> bool:
    """Whether the recorded process is alive and still the one that we started."""
    pid = child.identity.pid
    return identity_of(pid) == child.identity and marker_of(pid) == child.marker


def find_marked(marker: str) -> Identity | None:
    """The session leader that was started with this marker, whatever its pid."""
    for pid in process_ids():
        if session_of(pid) == pid and marker_of(pid) == marker:
            return identity_of(pid)
    return None


def members_of(session: int, marker: str) -> tuple[Identity, ...]:
    """Processes of a session that carry the marker: children that outlived their parent."""
    identities = (
        identity_of(pid)
        for pid in process_ids()
        if session_of(pid) == session and marker_of(pid) == marker
    )
    return tuple(identity for identity in identities if identity is not None)


def describe(pid: int | None) -> str:
    """`pid 123 (nginx)` for messages, or less where the name is not visible."""
    if pid is None:
        return "another program"
    name = program_of(pid)
    return f"pid {pid}" if name is None else f"pid {pid} ({name})"


def program_of(pid: int) -> str | None:
    """The name of a process; None where it is not visible."""
    import psutil

    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return None


def marker_of(pid: int) -> str | None:
    """Our marker in a process's environment; None if there is none or it may not be read."""
    return variable_of(pid, MARKER_VARIABLE)


def process_ids() -> Iterator[int]:
    """The pids of everything that runs on this machine."""
    import psutil

    return iter(psutil.pids())


def session_of(pid: int) -> int | None:
    """The leader of its session; None where there is none, or it may not be seen."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


if sys.platform == "linux":

    def boot_id() -> str:
        """The id of this boot of the machine."""
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def variable_of(pid: int, name: str) -> str | None:
        """A variable of a process's environment; None if there is none or it may not be read."""
        try:
            block = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return None
        wanted = f"{name}=".encode()
        for entry in block.split(b"\0"):
            if entry.startswith(wanted):
                return entry[len(wanted) :].decode(errors="replace")
        return None

    def _started(pid: int) -> str | None:
        """Field 22 of /proc/PID/stat, in clock ticks since boot; None for zombies."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        # the name in field 2 may contain blanks and parentheses: count from the last one
        fields = text[text.rindex(")") + 2 :].split()
        return None if fields[0] in "ZX" else fields[19]

else:  # macOS

    @functools.cache
    def boot_id() -> str:
        """The id of this boot of the machine. Not the boot time: macOS computes that from the
        clock, so it changes whenever the clock is set."""
        from agent.system.tool import run_tool

        uuid = (run_tool("sysctl", "-n", "kern.bootsessionuuid") or "").strip()
        if uuid:
            return uuid
        import psutil

        return str(int(psutil.boot_time()))

    def variable_of(pid: int, name: str) -> str | None:
        """A variable of a process's environment; None if there is none or it may not be read."""
        import psutil

        try:
            return psutil.Process(pid).environ().get(name)
        except psutil.Error:
            return None

    def _started(pid: int) -> str | None:
        """The kernel's start time in seconds since the epoch; None for zombies."""
        import psutil

        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.Error:
            return None
        # `create_time()` moves when the clock is set; what psutil identifies a process by does not.
        _, started = process._ident  # type: ignore[attr-defined]  # not in its stubs
        return None if started is None else repr(started)
