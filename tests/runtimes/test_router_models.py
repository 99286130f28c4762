"""What a router's row says of its single models: what a change concerns, and why a load failed."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.api.digest import digest
from reconciler.fleet.command import Command
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.many import FailedLoad, ManyModels
from tests.support.engines import render, service, workload


def _many() -> ManyModels:
    many = RUNTIMES["llamacpp-router"].many
    assert many is not None
    return many


MANY = _many()


def inputs(*models: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return workload(service(runtime="llamacpp-router", models=list(models), **spec)).inputs


def command(*models: dict[str, Any], **spec: Any) -> Command:
    return render(service(runtime="llamacpp-router", models=list(models), **spec))


A, B = {"name": "a"}, {"name": "b"}


@pytest.mark.parametrize(
    ("after", "concerned"),
    [
        ((A, B), ""),
        ((A, {**B, "contextSize": 1024}), "b"),
        (({**A, "extraArgs": ["--temp", "0.5"]}, B), "a"),
        ((A,), "b"),
        ((A, B, {"name": "c"}), "c"),
        ((B, A), "ab"),  # the first one is preloaded
    ],
    ids=["nothing", "setting", "arguments", "removed", "added", "order"],
)
def test_a_change_of_models_concerns_these_models_only(
    after: tuple[dict[str, Any], ...], concerned: str
) -> None:
    assert MANY.changed(inputs(A, B), inputs(*after)) == frozenset(concerned)
    assert MANY.rewritten(command(A, B), command(*after)) == frozenset(concerned)


@pytest.mark.parametrize(
    "spec",
    [
        {"router": {"resident": 2}},
        {"endpoint": {"port": 9000}},
        {"flashAttention": False},
        {"env": [{"name": "TZ", "value": "UTC"}]},
        {"rollout": {"drainTimeout": "5s"}},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_a_change_of_what_all_models_share_needs_a_restart(spec: dict[str, Any]) -> None:
    assert MANY.changed(inputs(A, B), inputs(A, B, **spec)) is None


def test_a_default_of_the_service_concerns_the_models_that_follow_it() -> None:
    own = {**B, "contextSize": 512}

    assert MANY.changed(inputs(A, own), inputs(A, own, contextSize=1024)) == frozenset("a")


def test_other_bytes_concern_their_model() -> None:
    before, after = inputs(A, B), inputs(A, B)
    after["models"] = [{**after["models"][0], "sha256": "ab" * 32}, after["models"][1]]

    assert MANY.changed(before, after) == frozenset("a")


def test_a_model_that_is_left_out_leaves_the_rest_of_the_preset_as_it_is() -> None:
    whole = command(A, B, {"name": "c"})

    left = MANY.without(whole, frozenset({"b"}))

    assert left.argv == whole.argv
    assert left.files == command(A, {"name": "c"}).files
    assert MANY.without(whole, frozenset("abc")).files == {"preset.ini": "version = 1\n\n"}
    assert digest(dict(MANY.without(whole, frozenset()).files)) == digest(dict(whole.files))


LOG = """\
0.00.010.907 I srv          load: spawning server instance with name=a on port 4001
[4001] 0.00.005.626 I srv    load_model: loading model '/m/a.gguf'
[4001] 0.00.015.599 I srv  llama_server: model loaded
0.00.124.865 I srv          load: spawning server instance with name=bad on port 4002
[4002] 0.00.006.034 E llama_model_load: error loading model: invalid magic
0.00.139.736 I srv           run: instance name=bad exited with status 1
0.00.141.329 I srv          load: spawning server instance with name=bad on port 4003
[4003] 0.00.006.034 E llama_model_load: error loading model: invalid magic
[4003] 0.00.006.034 I srv           run: instance name=a exited with status 1
0.00.154.947 I srv           run: instance name=bad exited with status 1
"""


def test_the_log_says_which_models_failed_how_often_and_why() -> None:
    last = (
        "0.00.006.034 E llama_model_load: error loading model: invalid magic\n"
        "0.00.006.034 I srv           run: instance name=a exited with status 1"
    )

    assert MANY.failed_loads(LOG) == {"bad": FailedLoad(2, 1, last)}


def test_a_load_that_succeeds_forgives_the_failures_before_it() -> None:
    again = LOG.replace("error loading model: invalid magic", "", 1).replace(
        "[4003] 0.00.006.034 E llama_model_load: error loading model: invalid magic",
        "[4003] 0.00.015.599 I srv  llama_server: model loaded",
    )

    found = MANY.failed_loads(again)

    assert found["bad"].times == 0  # it died after it had been loaded
    assert MANY.failed_loads(LOG + again) == found


def test_a_model_that_was_told_to_go_did_not_fail() -> None:
    gone = LOG + "0.00.200.000 I srv           run: instance name=a exited with status 0\n"

    assert "a" not in MANY.failed_loads(gone)


@pytest.mark.parametrize("log", ["", "[1] x", "instance name= exited", "\0[4001]", "[9] spawning"])
def test_a_log_of_anything_else_says_nothing(log: str) -> None:
    assert MANY.failed_loads(log) == {}


def test_the_children_of_loaded_models_are_asked_on_their_own_ports() -> None:
    def entry(name: str, value: str, *args: object) -> dict[str, Any]:
        return {"id": name, "status": {"value": value, "args": ["llama-server", *args]}}

    document = {
        "data": [
            entry("a", "loaded", "--port", "4001", "--slots"),
            entry("asleep", "sleeping", "--port", "4002"),
            entry("off", "unloaded", "--port", "0"),
            entry("odd", "loaded", "--port"),
            entry("odder", "loaded", "--port", "x"),
            {"id": "oddest", "status": "loaded"},
        ]
    }

    assert MANY.ports(document) == {"a": 4001}
    assert MANY.ports([]) == {}


def test_what_is_to_be_up_is_what_is_preloaded() -> None:
    found = MANY.preloads(inputs(A, {**B, "preload": True}, router={"resident": 2}))

    assert found == (("b",), 2)
