"""What the disk of the models has room for: a small file system, and downloads of 230 KB."""

from __future__ import annotations

import hashlib
import os

from tests.e2e.scenarios.world import Files, Scenario, Step, World, gone
from tests.support.fleets import model, service
from tests.support.http import FileServer
from tests.support.small_disk import small_disk

_DISK_BYTES = 440 << 10  # 5 % stay free: room for one model, and not for two
_HALF_BYTES = 128 << 10


def _small_disk(world: World) -> None:
    """Models lie on a disk of their own, and come from a server that is asked for their sizes."""
    if (offline := os.environ.pop("FLEET_OFFLINE", None)) is not None:
        world.ends.callback(os.environ.update, FLEET_OFFLINE=offline)
    disk = small_disk(world.machine.state / "models", _DISK_BYTES)
    server = world.ends.enter_context(FileServer(world.tiny))
    # Each model is another
    server.files = {f"/files/{name}.gguf": world.tiny + name.encode() for name in "ab"}
    world.kept |= {"disk": world.ends.enter_context(disk), "server": server}


def _fetched(*names: str, **models: str) -> Step:
    """Services of the model of their name, or of that of another."""

    def step(world: World) -> Files:
        server = world.kept["server"]
        used = {name: name for name in names} | models
        found: dict[str, str] = {name: service(name, f"m{m}") for name, m in used.items()}
        for m in used.values():
            path = f"/files/{m}.gguf"
            digest = hashlib.sha256(server.files[path]).hexdigest()
            source = f"http://127.0.0.1:{server.port}{path}"
            found[f"m{m}"] = model(f"m{m}", source=source, sha256=digest)
        return {f"{name}.yaml": text for name, text in found.items()}

    return step


def _half_fetched(name: str) -> tuple[Step, ...]:
    """Half of a model arrives, and its service goes."""

    def step(world: World) -> None:
        server = world.kept["server"]
        world.run("--dry-run")  # reads its header, once for all as its digest is stated
        server.stop_paths = {f"/files/{name}.gguf": _HALF_BYTES}
        server.go_on.clear()
        world.run("--once", "--timeout", "3s")
        server.go_on.set()
        server.stop_paths = {}

    return (_fetched(name), step, gone(name))


def _tried(world: World) -> None:
    assert world.run("--once", "--timeout", "20s").code == 3


def _other_file(kib: int) -> Step:
    """Somebody else takes so much of the disk; 0: nobody does."""

    def step(world: World) -> None:
        (world.kept["disk"] / "other").write_bytes(bytes(kib << 10))

    return step


ROWS = (
    Scenario(
        "disk for one of two models, and both are missing",
        before=(_small_disk,),
        after=(_fetched("a", "b"),),
        codes="3 3 3",
        counts="1 create, 1 DiskFull",
        words=("needs 22", "of that are reserved for default/a, "),
    ),
    Scenario(
        "disk for one model, which two services share",
        before=(_small_disk,),
        after=(_fetched(a="a", b="a"),),
        codes="2 0 0",
        counts="2 create",
    ),
    Scenario(
        "no disk for a model",
        before=(_small_disk, _other_file(300)),
        after=(_fetched("a"),),
        codes="3 3 3",
        counts="1 DiskFull",
        words=("there",),
    ),
    Scenario(
        "the disk has room again",
        before=(_small_disk, _other_file(300), _fetched("a"), _tried),
        after=(_other_file(0),),
        codes="2 0 0",
        counts="1 create",
    ),
    Scenario(
        "half of a model is there, and the disk has room for the other half",
        before=(_small_disk, *_half_fetched("a"), _other_file(180)),
        after=(_fetched("a"),),
        codes="2 0 0",
        counts="1 create",
    ),
    Scenario(
        "half of two models is there, and the disk has room for one of them",
        before=(_small_disk, *_half_fetched("a"), *_half_fetched("b"), _other_file(100)),
        after=(_fetched("a", "b"),),
        codes="3 3 3",
        counts="1 create, 1 DiskFull",
        words=("of models and unfinished downloads that make room",),
    ),
    Scenario(
        "half of a model is there, and one that comes before it has not begun",
        before=(_small_disk, *_half_fetched("b")),
        after=(_fetched("a", "b"),),
        codes="3 3 3",
        counts="1 create, 1 DiskFull",
        words=("are reserved for default/b",),
    ),
    Scenario(
        "half of a model is there that is not declared any more, and another needs its room",
        before=(_small_disk, *_half_fetched("b"), _other_file(150)),
        after=(_fetched("a"),),
        codes="2 0 0",
        counts="1 create",
    ),
)
