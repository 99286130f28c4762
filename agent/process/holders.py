"""Who has a port that a service here cannot get, and the command that ends it."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.process.identity import (
    MARKER_VARIABLE,
    describe,
    process_ids,
    program_of,
    session_of,
    variable_of,
)
from agent.process.ports import answers, can_bind, not_local
from agent.process.records import Records
from agent.process.sockets import listener
from agent.process.spawn import CONFIG_VARIABLE
from agent.state.directory import StateDir
from reconciler.core.observation import PortHolder


@dataclass(frozen=True, slots=True)
class Started:
    """A process that some fleet-agent started: from which state directory, and what its records
    say of it. `label` and `port` are None where they say nothing."""

    pid: int
    root: Path
    label: str | None
    port: int | None

    @property
    def ends_with(self) -> str:
        """The command that ends it."""
        if self.label is None:
            return f"kill {self.pid}"
        return f"fleet-agent stop {self.label} --state-dir {shlex.quote(str(self.root))}"


def taken_ports(
    state: StateDir, wanted: Iterable[tuple[str, int]], own: Container[int]
) -> dict[int, PortHolder]:
    """Which of the wanted ports (host, port) somebody has who is no service of this state
    directory. `own`: the ports of its processes, which are not looked at. Of an address that is not
    this machine's nobody can have a port: that is another refusal."""
    wanted = tuple(wanted)
    here = {host for host in {host for host, _ in wanted} if not_local(host) is None}
    holders = {
        port: stranger_on(state, host, port)
        for host, port in wanted
        if port not in own and host in here
    }
    return {port: holder for port, holder in holders.items() if holder is not None}


def stranger_on(state: StateDir, host: str, port: int) -> PortHolder | None:
    """Who has a port and will not leave it by a plan of this state directory; None: nobody."""
    holder = holder_of(state, host, port)
    return None if holder is not None and holder.state_dir == str(state.root) else holder


def holder_of(state: StateDir, host: str, port: int) -> PortHolder | None:
    """Why a process cannot have a port now; None: it can."""
    taken = taken_by(host, port)
    if taken is None:
        return None
    pid = listener(port) if taken.startswith(_taken(port)) else None
    if pid is None:
        return PortHolder(f"{taken}: state another endpoint.port, or see to that")
    started, program = started_of(pid), program_of(pid) or ""
    if started is None:
        remedy = "end that program, or state another endpoint.port"
        return PortHolder(f"{taken}: {remedy}", pid, program)
    whose = (
        f"{started.label} of the state directory {started.root} (pid {pid})"
        if started.label is not None
        else f"pid {pid}, which was started from {started.root} and has no record there"
    )
    message = f"{_taken(port)} {whose}: `{started.ends_with}` ends it"
    return PortHolder(message, pid, program, str(started.root))


def taken_by(host: str, port: int) -> str | None:
    """Why a server cannot listen there: `port 8080 is taken by pid 123 (nginx)`; None if it can."""
    try:
        if can_bind(host, port):
            return None
    except OSError as error:
        return f"cannot listen on {host}:{port}: {error.strerror}"
    if port < 1024 and not answers(host, port):
        return f"port {port} may not be used without privileges; set one above 1023"
    return f"{_taken(port)} {describe(listener(port))}"


def _taken(port: int) -> str:
    return f"port {port} is taken by"


def started_of(pid: int) -> Started | None:
    """The process as the agent that started it knows it; None: no agent did, or it may not be
    seen."""
    marker, folder = variable_of(pid, MARKER_VARIABLE), variable_of(pid, CONFIG_VARIABLE)
    if marker is None or folder is None:
        return None
    root = Path(folder).parent.parent
    for record in Records(StateDir(root)).read_all():
        if record.marker == marker:
            return Started(pid, root, record.launch.ref.label, record.launch.port)
    return Started(pid, root, None, None)


def leftovers(state: StateDir) -> Iterator[Started]:
    """Every process of this user that some fleet-agent started and that this state directory has no
    record of."""
    for pid in process_ids():
        started = started_of(pid) if session_of(pid) == pid else None
        if started is not None and (started.root != state.root or started.label is None):
            yield started
