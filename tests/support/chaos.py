"""A small world to break: one remote, a server of models, two agents with several services each.

    with ChaosWorld.open(tmp_path, seed=1) as world:
        world.converge()                 # and holds every law that must hold after it
        ...break something, heal it...
        world.converge()

The node `real` serves with the embedded llama.cpp, `fake` with the tiny engine. What broke is in
tests.support.faults; what may never happen, whatever broke, is here.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.core.observation import Instance
from tests.support.bent_machine import BentMachine
from tests.support.chaos_node import ChaosNode, Declared
from tests.support.counting_engine import write_engine
from tests.support.fleets import node
from tests.support.gguf_models import tiny_llama
from tests.support.git_http import GitServer, git_server
from tests.support.http import FileServer
from tests.support.reconciler import Machine
from tests.support.repos import Repo
from tests.support.rounds import story, wait_converged
from tests.support.wait import PATIENCE_S

NAMES = {"real": ("amber", "basil", "cedar"), "fake": ("delta", "ember", "fjord", "grove")}
CONTEXTS = (256, 384, 512)
CONVERGE_S = 3 * PATIENCE_S
_PATIENCE_S = 3.0  # then a person ends the pause of a service that died several times
_BUG = re.compile(r"Traceback \(most recent|bug of ours|internal error|Exception in thread|bug in ")


@dataclass
class ChaosWorld:
    root: Path
    random: random.Random
    repo: Repo
    git: GitServer
    models: FileServer
    nodes: dict[str, ChaosNode]
    weights: bytes
    declared: dict[str, Declared] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)  # by hand
    touched: set[str] = field(default_factory=set)  # services, since the last `converge`
    news: set[str] = field(default_factory=set)  # of these, those whose inputs changed
    deaths: dict[str, int] = field(default_factory=dict)  # since a service changed last
    ports: dict[str, int] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)  # as it converged last
    history: list[str] = field(default_factory=list)
    remote_there: bool = True
    slowest_s: float = 0.0  # of all waits for convergence
    _models_made: int = 0

    @classmethod
    @contextlib.contextmanager
    def open(cls, root: Path, seed: int) -> Iterator[ChaosWorld]:
        """Two agents that follow a remote with two services each; not converged yet."""
        weights = tiny_llama(root / "tiny.gguf").read_bytes()
        repo = Repo.create(root / "git")
        with contextlib.ExitStack() as held:
            git = held.enter_context(git_server(repo.remote.parent))
            models = held.enter_context(FileServer(b""))
            world = cls(root, random.Random(seed), repo, git, models, {}, weights)
            for name in NAMES:
                world.nodes[name] = held.enter_context(world._node(name))
            spec = {"hardware": {"memory": "16Gi"}}
            for name in NAMES:
                repo.write(f"nodes/{name}.yaml", node(name, **spec))
                for own in NAMES[name][:2]:
                    world.declare(own)
            world.push("Begin")
            for here in world.nodes.values():
                here.start()
            yield world

    def note(self, text: str) -> None:
        self.history.append(text)

    def declare(self, name: str) -> None:
        """A service with a model of its own; written, not pushed."""
        home = next(home for home, names in NAMES.items() if name in names)
        self.declared[name] = Declared(name, home, self.random.choice(CONTEXTS), "")
        self.renew_model(name)

    def renew_model(self, name: str) -> str:
        """Other weights for a service; the path where they are served."""
        self._models_made += 1
        own = self.declared[name]
        data = self.weights[:-8] + self._models_made.to_bytes(8, "little")
        own.model_path = f"/files/{self._models_made}.gguf"
        self.models.files[own.model_path] = data
        return own.model_path

    def push(self, message: str) -> str:
        """Push what is declared, and wake those who listen; the full sha."""
        for folder in ("models", "services"):
            for file in (self.repo.work / folder).glob("*.yaml"):
                if file.stem not in self.declared:
                    file.unlink()
        for own in self.declared.values():
            for path, text in own.files.items():
                self.repo.write(path, text.replace("{port}", str(self.models.port)))
        head = self.repo.commit(message)
        self.wake()
        return head

    def wake(self) -> None:
        for here in self.nodes.values():
            here.wake()

    def touch(self, name: str) -> None:
        self.touched.add(name)

    def died(self, name: str) -> None:
        self.touch(name)
        self.deaths[name] = self.deaths.get(name, 0) + 1

    def changed(self, name: str) -> None:
        """Its inputs are others: what is remembered of it ends."""
        self.touch(name)
        self.news.add(name)
        self.deaths.pop(name, None)
        self.stopped.discard(name)

    def begin_round(self) -> None:
        """What the round before left stopped by hand is let go."""
        for name in sorted(self.stopped):
            self.note(f"  {name} is let go")
            self.touch(name)
            done = self.home(name).machine.agent("restart", name, "--timeout", "20s")
            assert done.code == 0, done.err
        self.stopped.clear()

    def end_round(self) -> None:
        for here in self.nodes.values():
            here.start()

    def home(self, name: str) -> ChaosNode:
        return self.nodes[next(home for home, names in NAMES.items() if name in names)]

    def converge(self) -> None:
        """Wait until everything is as declared, and hold all laws. AssertionError with why."""
        asked = time.monotonic()

        def end_pauses() -> None:
            nonlocal asked
            if time.monotonic() - asked > _PATIENCE_S:
                self._end_pauses()
                asked = time.monotonic()

        wait_converged(self, self._missing, CONVERGE_S, end_pauses)
        pids: dict[str, int] = {}
        for here in self.nodes.values():
            assert (wrong := here.whole_store()) is None, wrong
            pids |= self._hold_places(here)
        self.pids = pids
        self.touched.clear()
        self.news.clear()
        wrong = self.bugs_said()
        assert wrong is None, wrong

    def bugs_said(self) -> str | None:
        for here in self.nodes.values():
            said = here.machine.everything_said()
            if found := _BUG.search(said):
                return said[max(0, found.start() - 500) : found.end() + 3000]
        return None

    def told(self) -> str:
        """For a person who has to find out what went wrong."""
        files: list[Path] = []
        for here in self.nodes.values():
            logs = sorted(here.machine.root.glob("run-*.err"), key=lambda f: f.stat().st_mtime)
            files += [*logs[-3:], *sorted(here.machine.state.glob("logs/*/current.log"))]
        return story(self.history, *files)

    def _missing(self) -> str | None:
        """What is not as declared."""
        head = self.repo.head()
        for here in self.nodes.values():
            assert here.running is not None
            code = here.running.process.poll()
            assert code is None, f"the agent of {here.name} ended by itself: {code}"
            if "msg=plan" not in here.running.err:
                return f"the agent of {here.name} has not looked yet"
            if here.applied() != head:
                return f"{here.name} is at {here.applied()}, not {head}"
            found = here.machine.instances()
            wanted = {d.name for d in self.declared.values() if d.node == here.name}
            wanted -= self.stopped
            if found.keys() != wanted:
                return f"{here.name} has {sorted(found)} instead of {sorted(wanted)}"
            for name, instance in found.items():
                if (why := self._unlike(self.declared[name], instance)) is not None:
                    return f"{name} {why}: {instance}"
            pids = {instance.pid for instance in found.values()}
            if here.marked() != pids:
                return f"{here.name} runs {here.marked()} instead of {pids}"
        return None

    @staticmethod
    def _unlike(own: Declared, instance: Instance) -> str | None:
        if not instance.ready or instance.pid is None:
            return "is not ready"
        if instance.inputs["settings"]["contextSize"] != own.context:
            return f"has not the context {own.context}"
        if not instance.inputs["models"][0]["source"].endswith(own.model_path):
            return f"has not the model {own.model_path}"
        return None

    def _hold_places(self, here: ChaosNode) -> dict[str, int]:
        """Nobody moved, and who was not touched was left alone. Returns who runs."""
        pids: dict[str, int] = {}
        for name, instance in here.machine.instances().items():
            assert instance.pid is not None
            if name in self.pids and name not in self.touched:
                assert instance.pid == self.pids[name], f"{name}: another pid, and nobody asked"
            pids[name] = instance.pid
            assert self.ports.setdefault(name, instance.port or 0) == instance.port, f"{name} moved"
        return pids

    def _end_pauses(self) -> None:
        """Pauses double with every death: a person does not wait for minutes."""
        for here in self.nodes.values():
            found = here.machine.instances()
            waiting = [n for n, i in found.items() if i.pid is None and self.deaths.get(n, 0) > 2]
            if waiting:
                self.note(f"  a person restarts {', '.join(waiting)}")
                here.machine.agent("restart", *waiting, "--timeout", "20s")

    @contextlib.contextmanager
    def _node(self, name: str) -> Iterator[ChaosNode]:
        folder = self.root / name
        folder.mkdir()
        engine = ("--llama-server", write_engine(folder)) if name == "fake" else ()
        words = ("--fleet", self.git.url("fleet.git"), "--node", name, "--interval", "2s", *engine)
        with Machine(folder) as machine:
            yield ChaosNode(name, machine, words, BentMachine.create(folder))
