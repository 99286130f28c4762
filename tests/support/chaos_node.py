"""One agent's machine in the chaos test, and what the fleet says it should run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
from dataclasses import dataclass

import psutil

from agent.process.identity import marker_of
from tests.support.bent_machine import BentMachine
from tests.support.fleets import model, service
from tests.support.reconciler import Machine, Running
from tests.support.wait import wait_for


@dataclass(slots=True)
class Declared:
    """A service as the newest valid revision says it."""

    name: str
    node: str
    context: int
    model_path: str  # on the server of models

    @property
    def files(self) -> dict[str, str]:
        source = f"http://127.0.0.1:{{port}}{self.model_path}"
        return {
            f"models/{self.name}.yaml": model(f"m-{self.name}", source=source),
            f"services/{self.name}.yaml": service(
                self.name,
                f"m-{self.name}",
                contextSize=self.context,
                placement={"nodes": [self.node]},
                rollout={"drainTimeout": "1s"},
            ),
        }


@dataclass(slots=True)
class ChaosNode:
    """One agent's machine: started, killed and read."""

    name: str
    machine: Machine
    words: tuple[str, ...]
    bent: BentMachine
    running: Running | None = None

    def start(self) -> None:
        if self.running is None or self.running.process.poll() is not None:
            self.running = self.machine.daemon(
                *self.words, env=self.bent.variables | {"FLEET_DEBUG": "1"}
            )

    def end(self, number: signal.Signals) -> None:
        """End the agent, once it has begun: before that it knows no signal."""
        if self.running is None:
            return
        if number is not signal.SIGKILL:
            self.wait_begun()
        code = self.running.end(number)
        assert code == -number if number is signal.SIGKILL else code == 0, (code, self.running.err)
        self.running = None

    def wait_begun(self) -> None:
        running = self.running
        assert running is not None
        wait_for(lambda: self.has_begun or running.process.poll() is not None)

    @property
    def has_begun(self) -> bool:
        return self.running is not None and "fleet-agent begins" in self.running.err

    def wake(self) -> None:
        if self.has_begun and self.running is not None:
            with contextlib.suppress(ProcessLookupError):
                self.running.process.send_signal(signal.SIGHUP)

    def applied(self) -> str | None:
        try:
            history = json.loads((self.machine.state / "desired/history.json").read_bytes())
        except (OSError, ValueError):
            return None
        return (history.get("applied") or {}).get("revision")

    def marked(self) -> set[int]:
        """Every living process that was started as a service of this machine, but children."""
        found = set()
        for process in self.machine.processes():
            with contextlib.suppress(psutil.Error):
                if marker_of(process.pid) and not (marker_of(process.ppid())):
                    found.add(process.pid)
        return found

    def whole_store(self) -> str | None:
        """What is wrong with the files that the store calls verified."""
        for folder in (self.machine.state / "models/sha256").glob("[0-9a-f]*"):
            files = [file for file in folder.iterdir() if not file.name.startswith(".")]
            digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
            if digests != [folder.name]:
                return f"{folder}: holds {digests}"
        return None
