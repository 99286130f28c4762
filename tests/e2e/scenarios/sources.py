"""Where models come from, and what their hosts answer."""

from __future__ import annotations

import os

from tests.e2e.scenarios.world import Files, Scenario, Step, World, running, serve
from tests.support.fleets import model
from tests.support.http import FileServer


def _far(world: World) -> Files:
    """The model is a file of a web server."""
    server = world.ends.enter_context(FileServer(world.tiny + bytes(64)))
    world.kept["server"] = server
    world.env["FLEET_OFFLINE"] = "0"
    return {"tiny.yaml": model("tiny", source=server.url)}


def _not_there(world: World) -> None:
    world.kept["server"].status = 404


def _a_page(world: World) -> None:
    world.kept["server"].data = b"<html>Please log in.</html>"


def _file(path: str) -> Step:
    def step(world: World) -> Files:
        return {"tiny.yaml": model("tiny", source=f"file://{world.folder}/{path}")}

    return step


def _in_place(world: World) -> Files:
    """The model is a file beside the fleet, and no copy of it is made."""
    own = world.folder / "own.gguf"
    own.write_bytes(world.tiny)
    return {"tiny.yaml": model("tiny", source=f"file://{own}", inPlace=True)}


def _touched(world: World) -> None:
    os.utime(world.folder / "own.gguf", (1, 1))


def _written_anew(world: World) -> None:
    new = world.folder / "new.gguf"
    new.write_bytes(world.tiny + bytes(64))
    new.replace(world.folder / "own.gguf")


def _removed(world: World) -> None:
    (world.folder / "own.gguf").unlink()


def _away(world: World) -> Files:
    world.env["FLEET_OFFLINE"] = "0"
    return {"tiny.yaml": model("tiny", source=f"http://127.0.0.1:{world.ports[0]}/tiny.gguf")}


ROWS = (
    Scenario(
        "a model is fetched",
        before=(_far,),
        after=(serve("a", "b"),),
        codes="2 0 0",
        counts="2 create",
    ),
    Scenario(
        "a model is not at its address",
        before=(_far,),
        after=(_not_there, serve("a")),
        codes="3 3 3",
        counts="1 ModelUnavailable",
        words=("HTTP 404: check the source",),
    ),
    Scenario(
        "what runs gets a model that is not at its address",
        before=running("a"),
        after=(_far, _not_there),
        codes="3 3 3",
        counts="1 unchanged, 1 ModelUnavailable",
    ),
    Scenario(
        "a model that was fetched is not at its address any more",
        before=(_far, *running("a")),
        after=(_not_there, serve("b")),
        codes="2 0 0",
        counts="1 create, 1 unchanged",
    ),
    Scenario(
        "what comes from the address of a model is a web page",
        before=running("a"),
        after=(_far, _a_page),
        codes="3 3 3",
        counts="1 unchanged, 1 ModelUnavailable",
        words=("it is a web page",),
    ),
    Scenario(
        "a model is a file of the machine",
        before=(_file("tiny.gguf"),),
        after=(serve("a"),),
        codes="2 0 0",
        counts="1 create",
    ),
    Scenario(
        "a model is a file of the machine that is not there",
        before=(_file("nothing.gguf"),),
        after=(serve("a"),),
        codes="3 3 3",
        counts="1 ModelUnavailable",
        words=("nothing.gguf: No such file or directory",),
    ),
    Scenario(
        "a model is served where it lies",
        before=(_in_place,),
        after=(serve("a"),),
        codes="2 0 0",
        counts="1 create",
    ),
    Scenario(
        "a model that is served where it lies has another time",
        before=(_in_place, *running("a")),
        after=(_touched,),
        codes="2 0 0",
        counts="1 update",
    ),
    Scenario(
        "a model that is served where it lies is replaced by another",
        before=(_in_place, *running("a")),
        after=(_written_anew,),
        codes="2 3 3",
        counts="1 update",
        words=("but this node first got",),
        differs="a dry run reads no gigabytes to tell the same bytes from others",
    ),
    Scenario(
        "a model that is served where it lies is removed",
        before=(_in_place, *running("a")),
        after=(_removed,),
        codes="2 3 2",
        counts="1 update",
        words=("own.gguf: No such file or directory",),
        timeout="1s",
        differs="what runs needs it no more, and it may be back: it is looked for again",
    ),
    Scenario(
        "the host of a model does not answer",
        after=(_away, serve("a")),
        codes="2 3 2",
        counts="1 create",
        words=("memory and size of default/tiny are not known yet",),
        timeout="1s",
        differs="a host that is away may be back: it is asked again until the time is over",
    ),
)
