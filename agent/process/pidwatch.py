"""Notice the exit of processes at once, and signal them without ever hitting a stranger.

Linux has pidfds: a descriptor refers to one process for good. macOS has kqueue, where the identity
is checked again before each signal (on Linux the tests have a kqueue made of pidfds).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

from agent.process.identity import boot_id, identity_of, is_ours, members_of
from agent.process.launch import Child, Identity

_LONGEST_WAIT_S = 3600.0


def kill_leftovers(child: Child) -> int:
    """Kill what a dead process left running in its session; returns how many processes that were.

    A router's child that is still loading outlives its parent by seconds and holds memory.
    """
    if child.identity.boot != boot_id() or identity_of(child.identity.pid) is not None:
        return 0  # the pid was reused, so the session of that number is not ours
    left = members_of(child.identity.pid, child.marker)
    for identity in left:
        _kill(identity)
    return len(left)


if sys.platform == "linux":
    _SIGNAL_GROUP = 1 << 2  # PIDFD_SIGNAL_PROCESS_GROUP, Linux 6.9

    class PidWatch:
        """Waits for the exit of any of several processes, and for a wake-up byte."""

        def __init__(self, wake: int) -> None:
            self._wake = wake
            self._poll = select.poll()
            self._poll.register(wake, select.POLLIN)
            self._pids: dict[int, int] = {}  # descriptor -> pid
            self._descriptors: dict[int, int] = {}  # pid -> descriptor

        def add(self, child: Child) -> bool:
            """Watch a process; False if it has ended or is not the one that we started."""
            try:
                descriptor = os.pidfd_open(child.identity.pid)
            except ProcessLookupError:
                return False
            # checked after opening, so that the pid cannot be reused in between
            if child.adopted and not is_ours(child):
                os.close(descriptor)
                return False
            self._pids[descriptor] = child.identity.pid
            self._descriptors[child.identity.pid] = descriptor
            self._poll.register(descriptor, select.POLLIN)
            return True

        def remove(self, pid: int) -> None:
            descriptor = self._descriptors.pop(pid, None)
            if descriptor is not None:
                del self._pids[descriptor]
                self._poll.unregister(descriptor)
                os.close(descriptor)

        def signal(self, child: Child, number: signal.Signals) -> None:
            """Signal a watched process and its group; no effect if it has ended."""
            descriptor = self._descriptors.get(child.identity.pid)
            if descriptor is None:
                return
            with contextlib.suppress(ProcessLookupError):
                try:
                    signal.pidfd_send_signal(descriptor, number, None, _SIGNAL_GROUP)
                except OSError as error:
                    if isinstance(error, ProcessLookupError):
                        raise
                    # an older kernel: signal the leader alone; its children are killed after it
                    signal.pidfd_send_signal(descriptor, number)

        def wait(self, timeout_s: float | None) -> tuple[int, ...]:
            """Pids of watched processes that have ended. Returns as soon as there are any, on a
            wake-up byte, or after the timeout."""
            timeout_s = _LONGEST_WAIT_S if timeout_s is None else min(timeout_s, _LONGEST_WAIT_S)
            ready = self._poll.poll(max(0, int(timeout_s * 1000 + 0.999)))
            return tuple(self._pids[fd] for fd, _ in ready if fd in self._pids)

        def close(self) -> None:
            for pid in tuple(self._descriptors):
                self.remove(pid)

    def _kill(identity: Identity) -> None:
        try:
            descriptor = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return
        try:
            if identity_of(identity.pid) == identity:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)

else:
    _AGAIN_S = 0.01

    class PidWatch:
        """Waits for the exit of any of several processes, and for a wake-up byte."""

        def __init__(self, wake: int) -> None:
            self._queue = select.kqueue()
            self._queue.control(
                [select.kevent(wake, select.KQ_FILTER_READ, select.KQ_EV_ADD)], 0, 0
            )
            self._children: dict[int, Child] = {}
            self._ending: set[int] = set()  # their pids: the kernel reports each once

        def add(self, child: Child) -> bool:
            """Watch a process; False if it has ended or is not the one that we started."""
            pid = child.identity.pid
            event = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
            try:
                self._queue.control([event], 0, 0)
            except ProcessLookupError:
                if child.adopted:
                    return False
                self._ending.add(pid)  # our own child, ended already: a zombie cannot be watched
            if child.adopted and not is_ours(child):
                return False
            self._children[pid] = child
            return True

        def remove(self, pid: int) -> None:
            self._children.pop(pid, None)  # the kernel drops the filter with the process
            self._ending.discard(pid)

        def signal(self, child: Child, number: signal.Signals) -> None:
            """Signal a watched process and its group; no effect if it has ended."""
            if child.identity.pid in self._children and is_ours(child):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.identity.pid, number)

        def wait(self, timeout_s: float | None) -> tuple[int, ...]:
            """Pids of watched processes that have ended. Returns as soon as there are any, on a
            wake-up byte, or after the timeout."""
            timeout_s = _LONGEST_WAIT_S if timeout_s is None else min(timeout_s, _LONGEST_WAIT_S)
            # The kernel reports an exit before the process can be reaped: poll until it can.
            timeout_s = min(timeout_s, _AGAIN_S) if self._ending else timeout_s
            events = self._queue.control(None, 64, max(0.0, timeout_s))
            noted = {event.ident for event in events if event.filter == select.KQ_FILTER_PROC}
            self._ending |= noted & self._children.keys()
            return tuple(pid for pid in self._ending if self._has_ended(pid))

        def close(self) -> None:
            self._queue.close()

        def _has_ended(self, pid: int) -> bool:
            return identity_of(pid) != self._children[pid].identity

    def _kill(identity: Identity) -> None:
        if identity_of(identity.pid) == identity:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(identity.pid, signal.SIGKILL)
