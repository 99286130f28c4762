"""Whether a live process still is what was started here, and does what the fleet declares.

Looking costs reads of the process table and one question over HTTP, so a thread does it beside the
loop: soon after a process is ready, then every `again_s`. Nothing is judged by what cannot be read.
"""

from __future__ import annotations

import contextlib
import http.client
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from agent.node.settings import Intervals
from agent.process.launch import Launch, ProcessSnapshot
from agent.state.drift_file import Known, read_drifts, write_drifts
from agent.system.clock import Clock, SystemClock
from reconciler.api.meta import ObjectRef
from reconciler.core.observation import Drift, DriftKind
from reconciler.runtimes import RUNTIMES
from reconciler.worker import Worker

_LOOK_S = 5.0  # between two checks of which processes are due, at most
_STAYED = "; a restart did not change that"

Difference = tuple[DriftKind, str]
Ask = Callable[[Launch, str], object]
"""The answer of a process to a GET of a path, as parsed JSON; OSError, HTTPException or ValueError
where it gives none."""


def differences(launch: Launch, pid: int, ask: Ask) -> tuple[Difference, ...]:
    """What of a living, ready process is not as its launch says."""
    differing: list[Difference] = []
    with contextlib.suppress(psutil.Error, OSError):  # it ended, or may not be seen: not judged
        process = psutil.Process(pid)
        differing += _command_line(launch, process.cmdline())
        differing += _environment(launch, process)
        differing += _program(launch, process)
    differing += _model_files(launch)
    differing += _settings(launch, ask)
    return tuple(differing)


def _command_line(launch: Launch, arguments: list[str]) -> Iterator[Difference]:
    """The interpreter of a script comes before the script's own arguments."""
    wanted = launch.command.argv[1:]
    if not arguments or tuple(arguments[len(arguments) - len(wanted) :]) == wanted:
        return
    strange = [word for word in arguments if word not in launch.command.argv][:3]
    lacking = [word for word in wanted if word not in arguments][:3]
    differences = [f"has {' '.join(strange)}"] if strange else []
    differences += [f"lacks {' '.join(lacking)}"] if lacking else []
    yield DriftKind.RESTART, f"its command line {', '.join(differences) or 'has another order'}"


def _environment(launch: Launch, process: psutil.Process) -> Iterator[Difference]:
    """Names only: a value may be a secret. Empty where the process wrote over it."""
    actual = process.environ()
    names = [n for n, value in launch.command.env.items() if actual.get(n) != value]
    if actual and names:
        yield DriftKind.RESTART, f"its environment differs in {', '.join(sorted(names))}"


def _program(launch: Launch, process: psutil.Process) -> Iterator[Difference]:
    """The file that it runs against the file that would be run now. Scripts are their engine's
    business: what runs is their interpreter."""
    path = launch.command.argv[0]
    running = os.stat(f"/proc/{process.pid}/exe") if os.path.isdir("/proc") else None
    if running is None or _is_script(path):
        return
    try:
        same = os.path.samestat(running, os.stat(path))
    except FileNotFoundError:
        yield DriftKind.DEFERRED, f"{path} is gone from the disk; what runs is not touched"
        return
    if not same:
        yield DriftKind.DEFERRED, f"{path} was replaced since (an upgrade)"


def _is_script(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _model_files(launch: Launch) -> Iterator[Difference]:
    """A content-addressed file never changes: one that is gone or cut was damaged by hand."""
    for word in launch.command.argv:
        if "/sha256/" in word and word.startswith("/") and not os.path.exists(word):
            yield (
                DriftKind.COSMETIC,
                f"{word} is gone from the store: it goes on with what it has in memory, and the"
                " file is fetched again",
            )


def _settings(launch: Launch, ask: Ask) -> Iterator[Difference]:
    """What the process says of its own settings."""
    row = RUNTIMES.get(launch.runtime)
    settings = launch.inputs.get("settings")
    if row is None or row.effective is None or not isinstance(settings, Mapping):
        return
    try:
        differing = row.effective.differs(partial(ask, launch), settings)
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return
    for text in differing:  # its command line is right: the engine itself made that of it
        yield DriftKind.COSMETIC, f"its {text}"


@dataclass(slots=True)
class _DriftSeen:
    pid: int
    due: float  # monotonic
    drifts: tuple[Drift, ...] = ()


@dataclass(slots=True)
class DriftWatch:
    """Keeps the drifts of every process. `changed` is called in its thread when some changed.

    `file` keeps them for others, and for our next life: drift is as old as it was then.
    """

    states: Callable[[], Iterable[ProcessSnapshot]]
    ask: Ask
    file: Path
    changed: Callable[[], None] = lambda: None
    clock: Clock = field(default_factory=SystemClock)
    again_s: float = Intervals().drift_s  # between two checks of one process
    end_s: float = 3.0  # for a look to end when we do
    _before: Known = field(default_factory=dict)  # by an earlier run of this agent
    _seen: dict[ObjectRef, _DriftSeen] = field(default_factory=dict)
    _tried: dict[ObjectRef, frozenset[str]] = field(default_factory=dict)
    _worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        self._before = read_drifts(self.file, is_owner=True)
        every_s = min(_LOOK_S, self.again_s)
        self._worker = Worker(
            *("drift", self._round),
            every_s=every_s,
            first_s=every_s,
            end_s=self.end_s,
            what="look for drift",
        )

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """A process that is slow to answer delays nothing."""
        self._worker.close()

    def of(self, state: ProcessSnapshot) -> tuple[Drift, ...]:
        """What is known of one process now."""
        if state.reason == "PortInUse":
            return (Drift(DriftKind.FOREIGN, state.message, state.since),)
        seen = self._seen.get(state.ref)
        return seen.drifts if seen is not None and seen.pid == state.pid else ()

    def restarting(self, ref: ObjectRef) -> None:
        """A restart is about to mend a service: what comes back after it is not tried again."""
        seen = self._seen.get(ref)
        if seen is not None:
            messages = (drift.message.removesuffix(_STAYED) for drift in seen.drifts)
            self._tried[ref] = frozenset(messages)  # with what an earlier restart did not mend

    def check(self) -> bool:
        """Look at every process that is due; whether anything changed."""
        states = {s.ref: s for s in self.states() if s.ready and s.pid is not None}
        news = False
        for ref in self._seen.keys() - states.keys():
            news |= bool(self._seen.pop(ref).drifts)
        for ref, state in states.items():
            assert state.pid is not None
            seen = self._seen.get(ref)
            if seen is not None and seen.pid == state.pid and seen.due > self.clock.monotonic():
                continue
            if self._worker.is_ending:
                return False
            pid, before = (seen.pid, seen.drifts) if seen else self._before.get(ref.label, (0, ()))
            before = before if pid == state.pid else ()
            drifts = self._dated(ref, differences(state.launch, state.pid, self.ask), before)
            self._seen[ref] = _DriftSeen(state.pid, self.clock.monotonic() + self.again_s, drifts)
            news |= drifts != before
        if news:
            write_drifts(self.file, {r.label: (s.pid, s.drifts) for r, s in self._seen.items()})
        return news

    def _dated(
        self, ref: ObjectRef, differing: Iterable[Difference], before: Iterable[Drift]
    ) -> tuple[Drift, ...]:
        """Date each difference by when it was first seen; one that a restart did not mend is only
        shown."""
        since = {(d.kind, d.message): d.since for d in before}
        tried = self._tried.get(ref, frozenset())
        drifts = []
        for kind, message in differing:
            if kind is DriftKind.RESTART and message in tried:
                kind, message = DriftKind.COSMETIC, f"{message}{_STAYED}"
            drifts.append(Drift(kind, message, since.get((kind, message), self.clock.time())))
        return tuple(drifts)

    def _round(self) -> None:
        if self.check():
            self.changed()
