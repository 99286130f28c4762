"""A workload with this machine's facts in it: the command that would be started here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.engines.capability import Asks, find_runtimes
from agent.engines.engine import EngineFound, find_engine
from agent.models.store import ModelStore
from agent.process.launch import Launch
from agent.process.ports import PortBook
from agent.state.apikey import KEY_FILE
from agent.state.directory import StateDir
from reconciler import __version__
from reconciler.api.digest import digest
from reconciler.api.errors import ApplyError
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.core.observation import RuntimeFound
from reconciler.fleet.command import Command, KeyPlace
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.model_file import model_file
from reconciler.fleet.workload import Workload
from reconciler.memory import ModelFacts
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts


@dataclass(frozen=True, slots=True)
class Rendered:
    """A workload with this machine's facts in it. `digest` also changes with engine and version."""

    command: Command
    port: int
    digest: str


@dataclass(slots=True)
class CommandRenderer:
    """Turns workloads into this machine's commands. Reads the store and the port book only."""

    state: StateDir
    store: ModelStore
    ports: PortBook
    threads: int
    programs: Mapping[str, str] = field(default_factory=dict)  # name -> path given by a user
    only: tuple[str, ...] | None = None  # the runtimes that a user allows; None: all
    version: Asks = lambda _, __: None

    def engine(self, runtime: str) -> EngineFound:
        """The program for a runtime. Raises EngineError with how to get one."""
        return find_engine(RUNTIMES[runtime], self.programs)

    def runtimes(self) -> tuple[RuntimeFound, ...]:
        """What can run here, with path and version."""
        return find_runtimes(self.programs, self.only, self.version)[0]

    def missing(self) -> dict[str, str]:
        """What cannot run here, with why."""
        return find_runtimes(self.programs, self.only, self.version)[1]

    def facts(self, fleet: Fleet, models: Sequence[Model]) -> dict[ObjectRef, ModelFacts]:
        """What the store knows of models that were downloaded."""
        stored = {m.ref: self.store.digest_of(model_file(m, fleet)) for m in models}
        facts_by_ref = {ref: self.store.facts(it) for ref, it in stored.items() if it is not None}
        return {ref: facts for ref, facts in facts_by_ref.items() if facts is not None}

    def render(
        self, workload: Workload, *, keep_port: bool, engine: EngineFound | None = None
    ) -> Rendered | None:
        """The command, or None while a model is not here; on `engine`, where that was looked up
        already. Raises EngineError, StateError, and ApplyError where the runtime cannot be told of
        this one, as of a file by its name."""
        stored = {model.name: self.store.lookup(model) for model in workload.model_files}
        paths = {name: str(file.path) for name, file in stored.items() if file is not None}
        if len(paths) < len(stored):
            return None
        engine = engine or self.engine(workload.runtime)
        port = self.ports.port_for(workload.ref, workload.port, keep=keep_port)
        facts = NodeFacts(
            binary=engine.argv_prefix,
            port=str(port),
            host=workload.listen.host,
            threads=str(self.threads),
            directory=str(self.state.workload_dir(workload.ref)),
            model_paths=paths,
        )
        row = RUNTIMES[workload.runtime]
        try:
            command = row.command(workload, facts)
        except ValueError as error:
            raise ApplyError(workload.ref, str(error)) from error
        if workload.listen.expose == "key" and row.key_variable is not None:
            place = KeyPlace(row.key_variable, f"{facts.directory}/{KEY_FILE}")
            command = replace(command, key=place)
        return Rendered(command, port, _fingerprint(command, engine))

    def fingerprint(self, runtime: str, command: Command) -> str:
        """What tells this command, on today's engine and by this version, from any other."""
        return _fingerprint(command, self.engine(runtime))


def hot_change(
    renderer: CommandRenderer, running: Launch, wanted: Launch
) -> tuple[Launch, frozenset[str]]:
    """What a process becomes that only reads its files again, and the models that it unloads then.

    Its argv and environment stay. Where these would be others now, because we or the engine were
    upgraded, its render stays one of before: still deferred.
    """
    many = RUNTIMES[wanted.runtime].many
    assert many is not None, "planned for a row that has it"
    before = replace(wanted.command, files=running.command.files)
    fresh = renderer.fingerprint(wanted.runtime, before) == running.render_digest
    launch = replace(
        wanted,
        command=replace(running.command, files=wanted.command.files),
        render_digest=wanted.render_digest if fresh else running.render_digest,
    )
    return launch, many.rewritten(running.command, launch.command)


def _fingerprint(command: Command, engine: EngineFound) -> str:
    return digest([command.digest, engine.identity, __version__])
