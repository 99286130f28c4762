"""Every way to start a process meets every reason not to, with a real agent and real processes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.byhand import requests
from agent.node.local import LocalAgent
from agent.node.settings import Intervals, Settings
from agent.node.view import recorded_instances
from agent.process.admission import ADMITS_ALL, first_obstacle, leave_out
from agent.process.launch import Launch, ProcessSnapshot
from agent.process.orphan import orphan_of
from agent.process.owner import Processes
from agent.process.records import Records
from agent.state.directory import StateDir
from agent.state.suspended import note_suspended
from reconciler.api.fleetnode import FleetNode
from reconciler.api.reasons import REASONS
from reconciler.core.observation import Obstacle, TargetState
from reconciler.fleet.command import Command, KeyPlace
from reconciler.fleet.model_file import ModelFile
from reconciler.fleet.workload import PoolNeed, Workload
from tests.support import servers
from tests.support.builders import NODE, workload
from tests.support.gguf_models import tiny_llama
from tests.support.owner import PROBE, QUICK, launch, state_of, wait_state
from tests.support.pids import alive
from tests.support.ports import own_port
from tests.support.wait import wait_for

GIB = 2**30


@dataclass
class Life:
    """One life of an agent on a folder, with a service for each reason not to start."""

    folder: Path
    files: dict[str, ModelFile]
    ports: dict[str, int]
    held: ExitStack
    agent: LocalAgent = field(init=False)

    def begin(self) -> None:
        settings = Settings(self.folder / "state", intervals=Intervals(probe_s=0.2))
        self.agent = LocalAgent("mac", settings, changed=lambda: None)

    def workload(self, name: str) -> Workload:
        return workload(name, models=(self.files[name],))

    def launch(self, name: str, **command: object) -> Launch:
        """A launch of the tiny server for the service `name`."""
        wanted, port = self.workload(name), self.ports[name]
        made = Command(servers.argv(port, alias=self.files[name].name), probe=PROBE)
        if name == "engine":
            made = replace(made, argv=(str(self.folder / "engine"), *made.argv[1:]))
        if name == "key":
            copy = self.agent.state.workload_dir(wanted.ref) / "api-key"
            made = replace(made, key=KeyPlace("TINY_KEY", str(copy)))
        needs = (PoolNeed("host", 2 * GIB, GIB),) if name == "memory" else ()
        made = replace(made, **command)  # type: ignore[arg-type]  # fields of a Command
        return Launch(
            ref=wanted.ref,
            command=made,
            inputs=wanted.inputs,
            inputs_digest=wanted.inputs_digest,
            render_digest=made.digest,
            runtime="llama-server",
            port=port,
            needs=needs,
            models=(self.files[name].name,),
            drain_timeout_s=0.0,
        )


def _other_bytes(life: Life, name: str) -> None:
    """The agent has read the file again, as each pass makes it do, and refuses it."""
    file = life.files[name]
    other = tiny_llama(life.folder / "other.gguf", seed=99)
    os.replace(other, file.source.removeprefix("file://"))
    wait_for(lambda: _refusal(life, file) == "ModelCorrupt")


def _refusal(life: Life, file: ModelFile) -> str:
    """As each pass does: the first request may come before the last download is over."""
    life.agent.store.ensure(file)
    download = life.agent.store.download_of(file)
    return download.reason if download else ""


def _is_here(life: Life, name: str) -> bool:
    life.agent.store.ensure(life.files[name])
    return life.agent.store.lookup(life.files[name]) is not None


def _written_with_its_time(life: Life, name: str) -> None:
    """No pass was made since: only the file's ctime tells."""
    path = Path(life.files[name].source.removeprefix("file://"))
    before = path.stat()
    other = tiny_llama(life.folder / "other.gguf", seed=99).read_bytes()
    assert len(other) == before.st_size
    with path.open("r+b") as file:
        file.write(other)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _removed(life: Life, name: str) -> None:
    Path(life.files[name].source.removeprefix("file://")).unlink()


def _replaced_in_store(life: Life, name: str) -> None:
    stored = life.agent.store.lookup(life.files[name])
    assert stored is not None
    data = bytearray(stored.path.read_bytes())
    data[-1] ^= 1
    stored.path.unlink()
    stored.path.write_bytes(data)


def _less_memory(life: Life, name: str) -> None:
    spec = {"hardware": {"memory": "2Gi"}}
    life.agent.stated(
        FleetNode.model_validate(
            {
                "apiVersion": "inference.llmkube.dev/v1alpha1",
                "kind": "FleetNode",
                "metadata": {"name": "mac"},
                "spec": spec,
            }
        )
    )


def _port_taken(life: Life, name: str) -> None:
    """Once its own process has left it: see `_kill`."""


def _stopped(life: Life, name: str) -> None:
    """The agent noted the request and was killed before it stopped the process."""
    requests.ask(life.agent.state, requests.STOP, [life.workload(name).ref])
    seen = TargetState(NODE, reachable=True)
    life.agent.by_hand.shown(seen, [life.workload(name)], [])


def _suspended(life: Life, name: str) -> None:
    ref = life.workload(name).ref
    life.agent.admission.suspend([ref])
    note_suspended(life.agent.state, [ref])


def _not_rendered(life: Life, name: str) -> None:
    wanted = life.workload(name)
    why = Obstacle("NotRendered", "the engine refuses its settings")
    life.agent.admission.follow([wanted], {wanted.ref: why})


def _key_damaged(life: Life, name: str) -> None:
    life.agent.state.api_key.write_text("two words")
    life.agent.state.api_key.chmod(0o600)


def _engine_removed(life: Life, name: str) -> None:
    (life.folder / "engine").unlink()


@dataclass(frozen=True)
class Reason:
    """How one service comes to be refused, and the word for it."""

    word: str
    harm: Callable[[Life, str], None]
    lies_elsewhere: bool = False


REFUSALS: Mapping[str, Reason] = {
    "corrupt": Reason("ModelCorrupt", _other_bytes, lies_elsewhere=True),
    "written": Reason("ModelGone", _written_with_its_time, lies_elsewhere=True),
    "missing": Reason("ModelGone", _removed, lies_elsewhere=True),
    "replaced": Reason("ModelGone", _replaced_in_store),
    "memory": Reason("MemoryFits", _less_memory),
    "port": Reason("PortInUse", _port_taken),
    "stopped": Reason("StoppedByHand", _stopped),
    "suspended": Reason("Suspended", _suspended),
    "settings": Reason("NotRendered", _not_rendered),
    "key": Reason("KeyUnusable", _key_damaged),
    "engine": Reason("EngineMissing", _engine_removed),
}


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """All services run, and then each comes to be refused."""
    files = {name: _model(tmp_path, name, row) for name, row in REFUSALS.items()}
    engine = tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    engine.chmod(0o755)
    with ExitStack() as held:
        life = Life(tmp_path, files, {name: own_port() for name in REFUSALS}, held)
        life.begin()
        for file in files.values():
            life.agent.store.ensure(file)
        wait_for(lambda: all(life.agent.store.lookup(file) for file in files.values()))
        life.agent.start()
        for name in REFUSALS:
            life.agent.processes.run(replace(life.launch(name), needs=()))
        for name in REFUSALS:
            wait_state(life.agent.processes, name, lambda s: s.pid is not None and _serves(s))
        for name in REFUSALS:
            life.agent.processes.update(life.launch(name))
        for name, row in REFUSALS.items():
            row.harm(life, name)
        yield life
        life.agent.close(stop_children=True)


def _serves(state: ProcessSnapshot) -> bool:
    return state.ready or state.reason == "KeyNotAsked"  # the tiny server asks nobody for a key


def _model(folder: Path, name: str, row: Reason) -> ModelFile:
    path = tiny_llama(folder / f"{name}.gguf", seed=_seed(name))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return ModelFile(name, path.as_uri(), "gguf", sha256, in_place=row.lies_elsewhere)


def _seed(name: str) -> int:
    """Each model has bytes of its own: the store keeps equal ones once."""
    return list(REFUSALS).index(name)


def _kill(life: Life) -> None:
    """All engines at once, in the thread that would start them again."""

    def kill() -> None:
        pids = [state.pid for state in life.agent.processes.snapshot() if state.pid]
        for pid in pids:
            os.kill(pid, 9)
        port = life.ports["port"]
        wait_for(lambda: _is_free(port))
        life.held.enter_context(socket.create_server(("127.0.0.1", port)))

    life.agent.processes.call(kill)


def _is_free(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) != 0


def _crash(life: Life) -> None:
    _kill(life)


def _wait_is_over(life: Life) -> None:
    """Its retry, whenever it is due."""
    _kill(life)
    _wait_refused(life)
    for state in life.agent.processes.snapshot():
        life.agent.processes.restart(state.ref)


def _plan(life: Life) -> None:
    """What a plan rendered while all was well, carried out when it is not any more."""
    _kill(life)
    _wait_refused(life)
    for name in REFUSALS:
        launch = life.launch(name, env={"PLANNED": "1"})
        life.agent.processes.run(launch)


def _successor(life: Life) -> None:
    """The process is told to go first: what takes its place is refused after its end."""
    port = own_port()
    life.held.enter_context(socket.create_server(("127.0.0.1", port)))
    life.ports["port"] = port
    for name in REFUSALS:
        life.agent.processes.run(life.launch(name, env={"PLANNED": "1"}))


def _reload(life: Life) -> None:
    """An engine that cannot reload is restarted."""
    port = own_port()
    life.held.enter_context(socket.create_server(("127.0.0.1", port)))
    life.ports["port"] = port
    for name in REFUSALS:
        life.agent.processes.reload(life.launch(name, files={"preset": "x"}), frozenset({name}))


def _records(life: Life) -> None:
    """Agent and engines are gone at once, as in a reboot."""
    life.agent.close(stop_children=False)
    for record in Records(life.agent.state).read_all():
        if record.child is not None:
            os.kill(record.child.identity.pid, 9)
            wait_for(lambda pid=record.child.identity.pid: not alive(pid))  # type: ignore[misc]
    port = life.ports["port"]
    life.held.enter_context(socket.create_server(("127.0.0.1", port)))
    life.begin()
    _not_rendered(life, "settings")  # known once the revision was read
    wait_for(lambda: _refusal(life, life.files["corrupt"]) == "ModelCorrupt")
    life.agent.start()


STARTERS = (_crash, _wait_is_over, _plan, _successor, _reload, _records)


@pytest.mark.e2e
@pytest.mark.parametrize("starter", STARTERS)
def test_no_way_to_start_a_process_goes_past_a_reason_not_to(
    life: Life, starter: Callable[[Life], None]
) -> None:
    running = {s.ref: s.pid for s in life.agent.processes.snapshot()}

    starter(life)

    _wait_refused(life)
    shown = {i.ref.name: i.reason for i in recorded_instances(life.agent.state, "mac")}
    for name, row in REFUSALS.items():
        state = state_of(life.agent.processes, name)
        assert state is not None
        assert (state.pid, state.reason, shown[name]) == (None, row.word, row.word)
        assert state.message
        assert orphan_of(life.agent.state, state.ref) is None
        assert row.word in REASONS
    assert len(running) == len(REFUSALS)


def _wait_refused(life: Life) -> None:
    for name, row in REFUSALS.items():
        wait_state(
            life.agent.processes, name, lambda s, w=row.word: s.pid is None and s.reason == w
        )  # type: ignore[misc]


@pytest.mark.e2e
def test_what_runs_goes_on_and_starts_again_once_its_bytes_are_verified(life: Life) -> None:
    """A chmod changes the ctime as well: the bytes are read once more, and nothing is refused."""
    before = {s.ref.name: s.pid for s in life.agent.processes.snapshot()}
    good = tiny_llama(life.folder / "good.gguf", seed=_seed("written"))
    shutil.copyfile(good, life.folder / "written.gguf")
    (life.folder / "written.gguf").chmod(0o444)
    names = ("written", "replaced")
    wait_for(lambda: all(_is_here(life, name) for name in names))

    after = {s.ref.name: s.pid for s in life.agent.processes.snapshot()}
    for name in names:
        pid = before[name]
        assert pid is not None
        os.kill(pid, 9)
        wait_state(life.agent.processes, name, lambda s, old=pid: s.ready and s.pid != old)  # type: ignore[misc]

    assert before == after
    assert list((life.agent.store.root / "corrupt").iterdir())


@pytest.mark.e2e
def test_a_process_whose_model_sleeps_is_ended_before_it_loads_refused_bytes(
    tmp_path: Path,
) -> None:
    refused: dict[str, Obstacle] = {}
    admission = replace(ADMITS_ALL, unverified=lambda _: dict(refused))
    asleep = ("--props", json.dumps({"is_sleeping": True}))
    inputs = {"settings": {"sleepIdle": 60.0}}
    processes = Processes(StateDir.open(tmp_path / "state"), admission, timing=QUICK)
    processes.start()
    try:
        processes.run(launch("chat", own_port(), *asleep, inputs=inputs, runtime="llama-server"))
        wait_state(
            processes, "chat", lambda s: s.ready and [m.state for m in s.served] == ["sleeping"]
        )

        refused["tiny"] = Obstacle("ModelCorrupt", "other bytes than declared")
        found = wait_state(processes, "chat", lambda s: s.reason == "ModelCorrupt")
    finally:
        processes.close(stop_children=True, deadline_s=5)

    assert (found.pid, found.message) == (None, "other bytes than declared")
    assert any("ended in its sleep: ModelCorrupt" in n.text for n in processes.notices())


OBSTACLES = st.builds(Obstacle, st.sampled_from(sorted(REASONS)), st.text(min_size=1))


@given(st.lists(st.none() | OBSTACLES))
def test_the_first_obstacle_counts_and_later_checks_are_not_made(
    found: list[Obstacle | None],
) -> None:
    made: list[int] = []

    def check(number: int) -> Callable[[], Obstacle | None]:
        return lambda: made.append(number) or found[number]  # type: ignore[func-returns-value]

    first = first_obstacle(check(number) for number in range(len(found)))

    expected = next((why for why in found if why is not None), None)
    assert first == expected
    assert made == list(range(found.index(expected) + 1 if expected else len(found)))


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, min_size=1)


@given(NAMES, st.dictionaries(st.sampled_from("abcdef"), OBSTACLES), st.booleans())
def test_an_unverified_model_is_never_started(
    models: list[str], unverified: dict[str, Obstacle], many: bool
) -> None:
    unverified = {name: why for name, why in unverified.items() if name in models}

    out = leave_out(unverified, models, serves_single_models=many)

    started = set() if out.obstacle else set(models) - out.models.keys()
    assert not started & unverified.keys()
    assert bool(started) == (not unverified or (many and len(unverified) < len(models)))
    assert out.obstacle is None or out.obstacle in unverified.values()
