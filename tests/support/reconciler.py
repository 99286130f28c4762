"""A machine of its own for a test: the real commands, with their own state, cache and home.

    with Machine(tmp_path) as machine:
        fleet = Fleet.create(tmp_path)                 # a real repository with a remote
        running = machine.start("-C", str(fleet.repo.remote), "--local")
        machine.wait_ready("chat")

Whatever was started is ended with the `with` block, models included.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from agent.process.identity import MARKER_VARIABLE
from agent.server import served
from agent.server.here import instances_here
from agent.state.directory import StateDir
from reconciler.core.observation import Instance
from tests.support import forked
from tests.support.fleets import model, node, service
from tests.support.pids import alive
from tests.support.ports import own_row
from tests.support.repos import Repo, git_env
from tests.support.served_node import request
from tests.support.wait import PATIENCE_S, wait_for

_PROGRAMS = Path(sys.executable).parent
_PASSED_ON = ("FLEET_OFFLINE", "PATH", "LANG", "TMPDIR", "PYTHONPATH", "PYTHONWARNINGS")
# Words that only a bug in this program prints.
_BUG = re.compile(
    r"Traceback \(most recent|a bug (?:of ours|in (?:fleet-agent|this program))|Exception in thread"
)


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(slots=True)
class Running:
    """A command that still runs, or ran; what it prints lies in files."""

    process: subprocess.Popen[bytes] | forked.Forked
    out_file: Path
    err_file: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        return self.out_file.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self.err_file.read_text(errors="replace")

    def wait_said(self, text: str, *, count: int = 1) -> None:
        """Wait until stderr holds the text so often."""
        self._wait(lambda: self.err.count(text) >= count, f"on stderr: {text!r}")

    def wait_planned(self, text: str, *, count: int = 1) -> None:
        """Wait until stdout holds the text so often."""
        self._wait(lambda: self.out.count(text) >= count, f"on stdout: {text!r}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE_S)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_for(lambda: condition() or self.process.poll() is not None)
            assert condition(), f"ended with {self.process.returncode}"
        except AssertionError as error:
            raise AssertionError(
                f"{error}; never {what}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
            ) from None


@dataclass
class Machine:
    """Folders that belong to one machine, and the commands that run on it."""

    root: Path
    state: Path = field(init=False)
    expects_bugs: bool = False  # faults are planted
    _started: list[Running] = field(default_factory=list)
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _service_ports: str = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.root / "state"

    def __enter__(self) -> Self:
        row = self._held.enter_context(own_row())
        self._service_ports = f"{row[0]}-{row[-1]}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for running in self._started:
            if running.process.poll() is None:
                running.process.kill()
            running.process.wait()
        self._kill_leftovers()
        self._held.close()
        if kind is not None:
            return
        for running in self._started:
            assert self.expects_bugs or not _BUG.search(running.err), running.err

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the developer's but PATH; git as somebody who configured nothing."""
        kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        git = {k: v for k, v in git_env().items() if k.startswith(("GIT_", "LC_"))}
        home = self.root / "home"
        home.mkdir(parents=True, exist_ok=True)
        return {
            **kept,
            **git,
            "HOME": str(home),
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "XDG_STATE_HOME": str(self.root / "xdg-state"),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "FLEET_STATE_DIR": str(self.state),
            "FLEET_SERVICE_PORTS": self._service_ports,
            "FLEET_POLL_INTERVAL": "1s",
            "PYTHONUNBUFFERED": "1",
        }

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, is_forked: bool = True
    ) -> Running:
        """Start `reconcile` and return at once."""
        return self._start("reconcile", words, env, is_forked)

    def daemon(
        self, *words: str, env: Mapping[str, str] | None = None, is_forked: bool = True
    ) -> Running:
        """Start `fleet-agent run` and return at once; its state is served on a free port.

        What a test says of its memory is true of a process that was not forked.
        """
        env = {"FLEET_PORT": "0", **(env or {})}
        return self._start("fleet-agent", ("run", *words), env, is_forked)

    def labeler(self, *words: str, is_forked: bool = True) -> Running:
        """Start `fleet-agent label` and return at once."""
        return self._start("fleet-agent", ("label", *words), None, is_forked)

    def _start(
        self,
        program: str,
        words: tuple[str, ...],
        env: Mapping[str, str] | None,
        is_forked: bool = True,
    ) -> Running:
        number = len(self._started)
        out, err = self.root / f"run-{number}.out", self.root / f"run-{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            argv = [str(_PROGRAMS / program), *words]
            environment = self.environment | dict(env or {})
            process: subprocess.Popen[bytes] | forked.Forked
            if is_forked and forked.can_run(argv, env or ()):
                process = forked.start(argv, env=environment, cwd=self.root, out=stdout, err=stderr)
            else:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env=environment,
                    cwd=self.root,
                )
        running = Running(process, out, err)
        self._started.append(running)
        return running

    def reconcile(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        timeout_s: float = 2 * PATIENCE_S,
    ) -> Finished:
        """Run `reconcile` to its end."""
        return self._run([*prefix, str(_PROGRAMS / "reconcile"), *words], env or {}, timeout_s)

    def agent(self, *words: str, env: Mapping[str, str] | None = None) -> Finished:
        """Run `fleet-agent` on this machine's state directory."""
        return self._run([str(_PROGRAMS / "fleet-agent"), *words], env or {}, 2 * PATIENCE_S)

    def node_state(self) -> dict[str, Any]:
        """What the agent of this machine says of itself; empty while it serves nothing."""
        found = served(self.state)
        if found is None or found.url is None:
            return {}
        return dict(request(found.url, "GET", "/v1/state").json())

    def instances(self) -> dict[str, Instance]:
        """What is to run, by name, as the agent says; else checked against the processes now."""
        found = instances_here(StateDir(self.state), "here")
        return {instance.ref.name: instance for instance in found}

    def instance(self, name: str) -> Instance | None:
        return self.instances().get(name)

    def wait_ready(self, name: str, *, not_pid: int | None = None) -> Instance:
        """Wait until the service answers, with another pid than `not_pid`."""
        return self.wait_instance(name, lambda i: i.ready and i.pid != not_pid)

    def wait_instance(self, name: str, condition: Callable[[Instance], bool]) -> Instance:
        """Wait until a service fulfils a condition, and return it as it was then."""
        found: list[Instance] = []

        def check() -> bool:
            now = self.instance(name)
            found[:] = [now] if now is not None and condition(now) else []
            return bool(found)

        self._wait(check, f"{name} as expected, but {self.instance(name)}")
        return found[0]

    def wait_gone(self, name: str, pid: int | None = None) -> None:
        """Wait until a service is forgotten, and its process `pid` has ended."""
        self._wait(
            lambda: self.instance(name) is None and (pid is None or not alive(pid)),
            f"{name} gone",
        )

    def running(self) -> list[Running]:
        """The programs that were started and have not ended."""
        return [running for running in self._started if running.process.poll() is None]

    def processes(self) -> list[psutil.Process]:
        """Every model server of this machine."""
        own = {running.pid for running in self.running()}  # a pid of an ended one is used again
        return [p for p in psutil.process_iter() if p.pid not in own and self._is_child(p)]

    def everything_said(self) -> str:
        """All that was printed so far, for what must never be printed."""
        return "".join(running.out + running.err for running in self._started)

    def _is_child(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            ours = MARKER_VARIABLE in process.environ()  # not one that is asked its version
            return ours and self._is_inside(process)
        return False

    def _is_inside(self, process: psutil.Process) -> bool:
        """By its folder, or by its words: a folder on a disk that was taken away has no path."""
        with contextlib.suppress(psutil.Error):
            inside = Path(process.cwd()).is_relative_to(self.root)
            inside |= any(word.startswith(f"{self.root}/") for word in process.cmdline())
            return inside and process.status() != psutil.STATUS_ZOMBIE
        return False

    def _kill_leftovers(self) -> None:
        """Also a child of a killed agent that is not yet the engine that it will be."""
        found = [p for p in psutil.process_iter() if p.pid != os.getpid() and self._is_inside(p)]
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        # Not psutil.wait_procs: it waits for whoever inherited them to reap them.
        wait_for(lambda: not any(alive(process.pid) for process in found))

    def _run(self, argv: list[str], env: Mapping[str, str], timeout_s: float) -> Finished:
        environment = self.environment | dict(env)
        if forked.can_run(argv, env):
            done = forked.run(argv, env=environment, cwd=self.root, timeout_s=timeout_s)
        else:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=environment,
                cwd=self.root,
                timeout=timeout_s,
            )
        assert self.expects_bugs or not _BUG.search(done.stderr), done.stderr
        return Finished(done.returncode, done.stdout, done.stderr)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Give up early when the program that should bring it about has ended by itself."""
        last = self._started[-1].process if self._started else None
        ended_before = last is None or last.poll() is not None

        is_so = False

        def over() -> bool:
            nonlocal is_so
            is_so = condition()  # once: what became so may pass
            return is_so or (not ended_before and last is not None and _ended(last))

        try:
            wait_for(over)
            assert is_so or condition(), f"ended with {last and last.returncode}"
        except AssertionError as error:
            said = "\n".join(
                f"--- stdout\n{r.out}\n--- stderr\n{r.err}" for r in self._started[-2:]
            )
            raise AssertionError(f"{error}; never {what}\n{said}\n{self._logs()}") from None

    def _logs(self) -> str:
        logs = sorted(self.state.glob("logs/*/current.log"))
        return "\n".join(f"--- {p}\n{p.read_text(errors='replace')[-2000:]}" for p in logs)


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet in a real repository: one node named `here`, one tiny model, services on demand."""

    repo: Repo

    @classmethod
    def create(cls, folder: Path, gguf: Path, *services: str, **node_spec: Any) -> Self:
        """Push the node, the model `tiny` (a file in the repository) and these services."""
        fleet = cls(Repo.create(folder))
        spec: dict[str, Any] = {"hardware": {"memory": "16Gi"}, **node_spec}
        fleet.repo.publish(
            {
                "nodes/here.yaml": node("here", **spec),
                "models/tiny.yaml": model("tiny", source="models/tiny.gguf"),
                "models/tiny.gguf": gguf.read_bytes(),
                **{f"services/{name}.yaml": service(name, "tiny") for name in services},
            },
            "Begin",
        )
        return fleet

    @property
    def url(self) -> str:
        return str(self.repo.remote)

    def push_service(self, name: str = "chat", model: str = "tiny", **spec: Any) -> str:
        """Write, commit and push one service; the full sha."""
        text = service(name, model, **spec)
        return self.repo.publish({f"services/{name}.yaml": text}, f"Set {name}")

    def push_removal(self, *names: str) -> str:
        for name in names:
            (self.repo.work / f"services/{name}.yaml").unlink()
        return self.repo.commit(f"Remove {', '.join(names)}")


def _ended(process: subprocess.Popen[bytes] | forked.Forked) -> bool:
    return process.poll() is not None
