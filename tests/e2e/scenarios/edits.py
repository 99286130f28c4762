"""What people write: services, models, the Fleet, the files that they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.e2e.scenarios.world import (
    Files,
    Scenario,
    World,
    applied,
    gone,
    on_port,
    running,
    serve,
)
from tests.support.fleets import document, model, service

_ROUTER: Mapping[str, Any] = {"runtime": "llamacpp-router", "models": [{"name": "tiny"}]}
_FOUR = ("a", "b", "c", "d")


def _other_weights(world: World) -> Files:
    return {"other.gguf": world.tiny + bytes(64)}


def _same_weights(world: World) -> Files:
    return {"same.gguf": world.tiny}


def _in_a_team(world: World) -> Files:
    """With its model: a service's models are in its namespace."""
    return {
        "team.yaml": document("Model", "tiny", {"source": "tiny.gguf"}, namespace="team"),
        "a.yaml": document("InferenceService", "a", {"modelRef": "tiny"}, namespace="team"),
    }


def _model_of_its_own(world: World) -> Files:
    return {"mine.yaml": model("mine", source="tiny.gguf")}


def _by_a_link(world: World) -> None:
    link = world.folder.with_name("link")
    link.symlink_to(world.folder)
    world.fleet = str(link)


def _moved_below(world: World) -> None:
    (world.folder / "services").mkdir()
    (world.folder / "a.yaml").rename(world.folder / "services/a.yaml")


SERVICES = (
    Scenario(
        "a service is renamed",
        before=running("a"),
        after=(gone("a"), serve("b")),
        codes="2 0 0",
        counts="1 create, 1 delete",
    ),
    Scenario(
        "a service is renamed on its stated port",
        before=(on_port("a", 0), applied),
        after=(gone("a"), on_port("b", 0)),
        codes="2 0 0",
        counts="1 create, 1 delete",
    ),
    Scenario(
        "a service moves to another namespace",
        before=running("a"),
        after=(gone("a"), _in_a_team),
        codes="2 0 0",
        counts="1 create, 1 delete",
    ),
    Scenario(
        "all services are suspended",
        before=running("a", "b"),
        after=(serve("a", "b", suspend=True),),
        codes="2 0 0",
        counts="2 stop",
    ),
    Scenario(
        "a service is suspended",
        before=running("a", "b"),
        after=(serve("a", suspend=True),),
        codes="2 0 0",
        counts="1 stop, 1 unchanged",
    ),
    Scenario(
        "a service is resumed",
        before=(serve("a", suspend=True), *running("b")),
        after=(serve("a"),),
        codes="2 0 0",
        counts="1 create, 1 unchanged",
    ),
    Scenario(
        "no replicas are as good as suspended",
        before=running("a"),
        after=(serve("a", replicas=0),),
        codes="2 0 0",
        counts="1 stop",
    ),
    Scenario(
        "two replicas on one node",
        before=running("a"),
        after=(serve("a", replicas=2),),
        codes="3 3 3",
        counts="1 unchanged, 1 PlacementNotStated",
    ),
    Scenario(
        "context, slots and prompt cache of three services",
        before=running("a", "b", "c"),
        after=(
            serve("a", contextSize=256),
            serve("b", parallelSlots=2),
            serve("c", promptCache="16Mi"),
        ),
        codes="2 0 0",
        counts="3 replace",
    ),
    Scenario(
        "one of four is removed",
        before=running(*_FOUR),
        after=(gone("b"),),
        codes="2 0 0",
        counts="1 delete, 3 unchanged",
    ),
    Scenario(
        "four of four are removed",
        before=running(*_FOUR),
        after=(gone(*_FOUR),),
        codes="3 3 3",
        counts="1 NeedsConfirmation",
    ),
    Scenario(
        "two of two are removed",
        before=running("a", "b"),
        after=(gone("a", "b"),),
        codes="3 3 3",
        counts="1 NeedsConfirmation",
        words=("all 2 services of node here would stop. If that is meant, commit",),
    ),
    Scenario(
        "two of two are renamed",
        before=running("a", "b"),
        after=(gone("a", "b"), serve("c"), serve("d")),
        codes="3 3 3",
        counts="2 create, 1 NeedsConfirmation",
    ),
    Scenario(
        "the only one is removed",
        before=running("a"),
        after=(gone("a"),),
        codes="2 0 0",
        counts="1 delete",
    ),
    Scenario(
        "an engine that is not there",
        before=running("a"),
        after=(
            {"b.yaml": service("b", None, runtime="llamacpp-router", models=[{"name": "tiny"}])},
        ),
        codes="3 3 3",
        counts="1 unchanged, 1 EngineMissing",
    ),
)

MODELS = (
    Scenario(
        "a model is renamed",
        before=running("a"),
        after=({"tiny.yaml": model("other", source="tiny.gguf"), "a.yaml": service("a", "other")},),
        codes="2 0 0",
        counts="1 replace",
    ),
    Scenario(
        "a model of two services gets other bytes",
        before=running("a", "b"),
        after=(lambda world: {"tiny.gguf": world.tiny + bytes(64)},),
        codes="2 0 0",
        counts="2 replace",
    ),
    Scenario(
        "one of two services gets a model of its own",
        before=running("a", "b"),
        after=(_model_of_its_own, {"b.yaml": service("b", "mine")}),
        codes="2 0 0",
        counts="1 replace, 1 unchanged",
    ),
    Scenario(
        "a source with the same bytes restarts nothing",
        before=running("a"),
        after=(_same_weights, {"tiny.yaml": model("tiny", source="same.gguf")}),
        codes="2 0 0",
        counts="1 update",
    ),
    Scenario(
        "a source is another file",
        before=running("a"),
        after=(_other_weights, {"tiny.yaml": model("tiny", source="other.gguf")}),
        codes="2 0 0",
        counts="1 replace",
    ),
    Scenario(
        "the file of a model is gone",
        before=running("a"),
        after=({"tiny.gguf": None},),
        codes="3 3 3",
        counts="1 unchanged, 1 ModelUnreadable",
    ),
    Scenario(
        "the file of a model is damaged",
        before=running("a"),
        after=({"tiny.gguf": b"no model"},),
        codes="3 3 3",
        counts="1 unchanged, 1 ModelUnreadable",
    ),
    Scenario(
        "the file of a model is not the stated one",
        before=running("a"),
        after=({"tiny.yaml": model("tiny", source="tiny.gguf", sha256="0" * 64)},),
        codes="3 3 3",
        counts="1 unchanged, 1 ModelUnreadable",
    ),
)

FILES = (
    Scenario(
        "a file is renamed",
        before=running("a"),
        after=({"a.yaml": None, "renamed.yaml": service("a", "tiny")},),
        codes="0 0 0",
        counts="1 unchanged",
        words=("default/a  already running at http://",),
    ),
    Scenario(
        "files move into a folder",
        before=running("a"),
        after=(_moved_below,),
        codes="0 0 0",
        counts="1 unchanged",
    ),
    Scenario(
        "the folder is named by a link",
        before=running("a"),
        after=(_by_a_link,),
        codes="0 0 0",
        counts="1 unchanged",
    ),
    Scenario(
        "a Fleet is added",
        before=running("a"),
        after=({"fleet.yaml": document("Fleet", "fleet", {"drift": "report"})},),
        codes="0 0 0",
        counts="1 unchanged",
    ),
    Scenario(
        ".fleetignore hides one of four",
        before=running(*_FOUR),
        after=({".fleetignore": "b.yaml\n"},),
        codes="2 0 0",
        counts="1 delete, 3 unchanged",
    ),
    Scenario(
        "the Fleet is wrong",
        before=running("a"),
        after=({"fleet.yaml": document("Fleet", "fleet", {"drift": "sometimes"})},),
        codes="1 1 1",
        counts="no plan",
    ),
    Scenario(
        "a reference to nothing beside a good edit",
        before=running("a"),
        after=(serve("a", contextSize=256), {"b.yaml": service("b", "nothing")}),
        codes="1 1 1",
        counts="no plan",
    ),
    Scenario(
        "an object is declared twice",
        before=running("a"),
        after=({"copy.yaml": service("a", "tiny")},),
        codes="1 1 1",
        counts="no plan",
    ),
    Scenario(
        "a field that does not exist",
        before=running("a"),
        after=(serve("a", contextsize=256),),
        codes="1 1 1",
        counts="no plan",
    ),
    Scenario(
        "the node's document is gone",
        before=running("a"),
        after=({"node.yaml": None},),
        codes="3 3 3",
        counts="no plan",
    ),
)

ROWS = (*SERVICES, *MODELS, *FILES)
