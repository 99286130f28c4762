"""What a scenario is, and the machine that it happens to. How to add one: `__init__.py`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.fleets import model, node, service
from tests.support.ports import own_ports
from tests.support.reconciler import Finished, Machine
from tests.support.repos import run_git

Files = Mapping[str, str | bytes | None]
"""By path below the fleet's folder; None: the file is removed."""

Step = Files | Callable[["World"], Files | None]
"""One thing that happens: files that are written, or a function that does it, or that returns files
because they need to know something of the machine."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table; see `__init__.py`."""

    name: str
    after: tuple[Step, ...]
    codes: str
    counts: str
    before: tuple[Step, ...] = ()
    words: tuple[str, ...] = ()
    timeout: str = "20s"
    differs: str = ""


@dataclass
class World:
    """A machine with a fleet in a folder. Steps may turn the folder into a repository, and change
    how the fleet is asked for."""

    machine: Machine
    folder: Path
    tiny: bytes  # a model of 230 KB
    fleet: str = ""  # in the place of the folder, for -C
    local: str = "--local"
    env: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)  # further words of every command
    ports: list[int] = field(default_factory=lambda: own_ports(3))
    ends: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    kept: dict[str, Any] = field(default_factory=dict)  # what one step tells a later one

    def do(self, steps: Iterable[Step]) -> None:
        for step in steps:
            files = step(self) if callable(step) else step
            self.write(files or {})

    def write(self, files: Files) -> None:
        for path, content in files.items():
            file = self.folder / path
            if content is None:
                file.unlink()
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)

    def git(self, *words: str) -> str:
        return run_git(self.folder, *words)

    def run(self, *words: str) -> Finished:
        where = ("-C", self.fleet or str(self.folder), self.local)
        return self.machine.reconcile(*where, *words, *self.options, env=self.env)

    def hold_port(self, number: int = 0) -> None:
        """Another program takes one of our ports."""
        program = (
            "import socket,sys,time\n"
            "s = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
            "print(flush=True); time.sleep(3600)"
        )
        argv = (sys.executable, "-c", program, str(self.ports[number]))
        other = subprocess.Popen(argv, stdout=subprocess.PIPE)
        self.ends.enter_context(other)
        self.ends.callback(other.kill)
        assert other.stdout
        other.stdout.readline()

    def pids(self) -> dict[str, int]:
        """Of the services that have a process."""
        return {name: i.pid for name, i in self.machine.instances().items() if i.pid is not None}


# -- steps that many rows begin with --


def here(**spec: Any) -> Files:
    """The machine's own document, and a model that is in the folder. It states little memory:
    the rest is for others, of whom a busy machine has many."""
    stated = {"hardware": {"memory": "4Gi"}, **spec}
    return {"node.yaml": node("here", **stated), "tiny.yaml": model("tiny", source="tiny.gguf")}


def serve(*names: str, **spec: Any) -> Files:
    """Services of the model, a file each."""
    return {f"{name}.yaml": service(name, "tiny", **spec) for name in names}


def on_port(name: str, number: int, **spec: Any) -> Step:
    """A service on one of the machine's own ports."""
    return lambda world: serve(name, endpoint={"port": world.ports[number]}, **spec)


def gone(*names: str) -> Files:
    return {f"{name}.yaml": None for name in names}


def weights(world: World) -> Files:
    return {"tiny.gguf": world.tiny}


def applied(world: World) -> None:
    """Everything so far runs."""
    done = world.run("--once", "--timeout", "60s")
    assert done.code == 0, done.out + done.err


def confirmed(world: World) -> None:
    """What the plan asks to be confirmed is, from now on."""
    blocked = world.run("--dry-run", "-o", "json").json()["blocked"]
    world.options += ["--confirm", *(item["confirm"] for item in blocked if item["confirm"])]


def committed(world: World) -> None:
    """What is in the folder is a commit; the first makes the folder a repository."""
    if not (world.folder / ".git").exists():
        world.git("init", "-q", "--initial-branch=main")
    world.git("add", "--all", ".")
    world.git("commit", "-q", "-m", "change")


def running(*names: str, **spec: Any) -> tuple[Step, ...]:
    """These services of the model run."""
    return (serve(*names, **spec), applied)


# -- playing a row --


class Played(NamedTuple):
    """What came of it: a dry run, the pass, and a dry run after it."""

    said: Finished
    done: Finished
    again: Finished
    restarted: tuple[str, ...]  # of those that the plan does not name

    @property
    def codes(self) -> str:
        return f"{self.said.code} {self.done.code} {self.again.code}"


def play(scenario: Scenario, world: World) -> Played:
    world.do((here(), weights, *scenario.before))
    world.do(scenario.after)
    said = world.run("--dry-run", "-o", "json")
    before = world.pids()
    done = world.run("--once", "-o", "json", "--timeout", scenario.timeout)
    after = world.pids()
    changed = {c["ref"]["name"] for c in done.json()["changes"]} if done.out else set()
    restarted = tuple(n for n, p in before.items() if n not in changed and after.get(n) != p)
    return Played(said, done, world.run("--dry-run", "-o", "json"), restarted)


def counts(ended: Finished) -> str:
    """What a plan comes to, as rows write it: "1 create, 1 replace, 2 unchanged, 1 PortInUse"."""
    if not ended.out.strip():
        return "no plan"
    plan = ended.json()
    actions = Counter(change["action"] for change in plan["changes"])
    reasons = Counter(item["reason"] for item in plan["blocked"])
    unchanged = {"unchanged": plan["summary"]["unchanged"]}
    found = [*sorted(actions.items()), *unchanged.items(), *sorted(reasons.items())]
    return ", ".join(f"{count} {what}" for what, count in found if count) or "nothing"
