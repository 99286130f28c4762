"""What a machine refuses by itself: an address, a port, a program, and the files that it keeps."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.scenarios.life import killed
from tests.e2e.scenarios.world import Scenario, Step, World, here, running, serve
from tests.support.small_disk import read_only, small_disk

_AWAY = {"agent": {"expose": "open", "hostIP": "192.0.2.1"}}
_BY_KEY = {"agent": {"expose": "key", "hostIP": "127.0.0.1"}}
_STATE_BYTES = 4 << 20
_ENGINE = f'#!/bin/sh\nexec {sys.executable} -P -m agent.embedded "$@"\n'


def _option(name: str, value: str) -> Step:
    """A word of every command from now on; `{}`: a file outside the state directory."""

    def step(world: World) -> None:
        world.options += [name, value.format(world.machine.root / "given")]

    return step


def _given(text: str | None, mode: int) -> Step:
    """The file of an option; None: it is gone."""

    def step(world: World) -> None:
        file = world.machine.root / "given"
        if text is None:
            file.unlink()
            return
        file.write_text(text)
        file.chmod(mode)

    return step


def _one_port(world: World) -> None:
    world.options += ["--service-ports", f"{world.ports[0]}-{world.ports[0]}"]


def _file_at(*path: str) -> Step:
    """A file of the state directory, or a file in the place of one of its folders."""

    def step(world: World) -> None:
        file = world.machine.state.joinpath(*path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{")

    return step


def _folder_at(*path: str) -> Step:
    """A folder in the place of a file that cannot be read: root reads all others."""

    def step(world: World) -> None:
        file = world.machine.state.joinpath(*path)
        file.unlink()
        file.mkdir()

    return step


def _damaged_notes(world: World) -> None:
    """All that an agent writes beside the records of what runs."""
    notes = [*world.machine.state.glob("*.json"), *world.machine.state.glob("desired/*.json")]
    assert {"ports.json", "history.json", "models.json"} <= {note.name for note in notes}
    for note in notes:
        note.write_text("{")


def _read_only(folder: str) -> Step:
    def step(world: World) -> None:
        path = world.machine.state / folder
        path.mkdir(parents=True, exist_ok=True)
        world.ends.enter_context(read_only(path))

    return step


def _small_state(world: World) -> None:
    world.ends.enter_context(small_disk(world.machine.state, _STATE_BYTES))


def _full(world: World) -> None:
    """Somebody else takes the rest of the disk of the state directory."""
    filling = ["dd", "if=/dev/zero", f"of={world.machine.state / 'other'}", "bs=4096"]
    assert subprocess.run(filling, capture_output=True, check=False).returncode


ADDRESSES = (
    Scenario(
        "a node's address is another machine's",
        after=(here(**_AWAY), serve("a")),
        codes="3 3 3",
        counts="1 HostIPNotLocal",
        words=("192.0.2.1 is not an address of this machine now; correct its FleetNode's hostIP",),
    ),
    Scenario(
        "what runs gets an address that is another machine's",
        before=running("a"),
        after=(here(**_AWAY),),
        codes="3 3 3",
        counts="1 HostIPNotLocal",
        words=("left as it is",),
    ),
    Scenario(
        "an engine was killed whose node gets an address that is another machine's",
        before=running("a"),
        after=(killed, here(**_AWAY)),
        codes="3 3 3",
        counts="1 HostIPNotLocal",
    ),
    Scenario(
        "an address for this machine alone is not one",
        after=(here(agent={"expose": "open"}), _option("--host-ip", "0.0.0.0"), serve("a")),
        codes="3 3 3",
        counts="1 HostIPNotLocal",
        words=("set one as its FleetNode's hostIP, or as --host-ip",),
    ),
    Scenario(
        "more services than ports to choose from",
        before=(_one_port,),
        after=(serve("a", "b"), serve("c", suspend=True)),
        codes="3 3 3",
        counts="1 create, 1 NoPortLeft",
        words=("set one as spec.endpoint.port, or allow more with --service-ports",),
    ),
)

PROGRAMS = (
    Scenario(
        "a program that is no program",
        before=(_given("Not Found", 0o755), _option("--llama-server", "{}")),
        after=(serve("a"),),
        codes="3 3 3",
        counts="1 EngineMissing",
        words=("cannot be run: it is neither a program nor a script",),
    ),
    Scenario(
        "the program of what runs is none any more, and its service is edited",
        before=(_given(_ENGINE, 0o755), _option("--llama-server", "{}"), *running("a")),
        after=(_given("#!/no/such/sh\n", 0o755), serve("a", contextSize=256)),
        codes="3 3 3",
        counts="1 EngineMissing",
        words=("names the interpreter /no/such/sh, which is not there", "left as it is"),
    ),
    Scenario(
        "an engine was killed whose program is gone",
        before=(_given(_ENGINE, 0o755), _option("--llama-server", "{}"), *running("a")),
        after=(killed, _given(None, 0)),
        codes="3 3 3",
        counts="1 EngineMissing",
    ),
)

KEYS = (
    Scenario(
        "a key that everybody may read, and what runs with it is edited",
        before=(
            *(_given("secret", 0o600), _option("--api-key-file", "{}")),
            *(here(**_BY_KEY), *running("a")),
        ),
        after=(_given("secret", 0o644), serve("a", contextSize=256)),
        codes="3 3 3",
        counts="1 KeyUnusable",
        words=("everybody on this machine may read it; chmod 600 it; left as it is",),
    ),
    Scenario(
        "a key file in a folder that is not there",
        before=(_option("--api-key-file", "{}/key"), here(**_BY_KEY)),
        after=(serve("a"),),
        codes="3 3 3",
        counts="1 KeyUnusable",
        words=("name another file with --api-key-file",),
    ),
)

STATE = (
    Scenario(
        "a file is in the place of the state directory",
        after=(_file_at(), serve("a")),
        codes="1 1 1",
        counts="no plan",
        words=("this is not a folder", "choose another with --state-dir"),
    ),
    Scenario(
        "nothing can be written to the state directory",
        before=running("a"),
        after=(_read_only("."), serve("b")),
        codes="1 1 1",
        counts="no plan",
        words=("Read-only file system",),
    ),
    Scenario(
        "what was applied before cannot be read",
        before=running("a"),
        after=(_folder_at("desired", "history.json"), serve("b")),
        codes="1 1 1",
        counts="no plan",
        words=("history.json: cannot be read",),
    ),
    Scenario(
        "what an agent notes beside its records is damaged",
        before=running("a"),
        after=(_damaged_notes, serve("b")),
        codes="2 0 0",
        counts="1 create, 1 unchanged",
    ),
    Scenario(
        "the record of what runs is damaged",
        before=running("a"),
        after=(_file_at("records", "default_a.json"),),
        codes="2 0 0",
        counts="1 create",
    ),
    Scenario(
        "a file is in the place of a service's logs",
        after=(_file_at("logs", "default_a"), serve("a")),
        codes="3 3 3",
        counts="1 StateUnwritable",
        words=("default_a: Not a directory",),
    ),
    Scenario(
        "the disk of the state directory was full before anything ran",
        before=(_small_state, _full),
        after=(serve("a"),),
        codes="3 3 3",
        counts="1 StateUnwritable",
        words=("No space left on device; free 256 KiB on the disk of ",),
    ),
    Scenario(
        "the disk of the state directory is full, and a service is edited",
        before=(_small_state, *running("a")),
        after=(_full, serve("a", contextSize=256)),
        codes="3 3 3",
        counts="1 StateUnwritable",
        words=("left as it is",),
    ),
    Scenario(
        "the disk of the state directory is full, and an engine was killed",
        before=(_small_state, *running("a")),
        after=(_full, killed),
        codes="3 3 3",
        counts="1 StateUnwritable",
    ),
    Scenario(
        "the disk of the state directory is full, and all is as declared",
        before=(_small_state, *running("a")),
        after=(_full,),
        codes="0 0 0",
        counts="1 unchanged",
    ),
)

STORE = (
    Scenario(
        "nothing can be written to the model store, and a model is missing",
        before=(_read_only("models"),),
        after=(serve("a"),),
        codes="3 3 3",
        counts="1 StoreUnwritable",
    ),
    Scenario(
        "nothing can be written to the model store, and the model is there",
        before=running("a"),
        after=(_read_only("models"), serve("b")),
        codes="2 0 0",
        counts="1 create, 1 unchanged",
    ),
)

ROWS = (*ADDRESSES, *PROGRAMS, *KEYS, *STATE, *STORE)
