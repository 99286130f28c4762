"""An exception of this program, planted at each step of a document's way, is a problem of that
document, and of no other."""

from __future__ import annotations

import functools
import json
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.api.meta import Resource
from reconciler.capacity.admission import Candidate
from reconciler.cli import main
from reconciler.core.observation import Observation, TargetState
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.workload import Workload
from reconciler.kube.render.placed import PlacedService
from reconciler.kube.render.rendering import ObjectRenderer
from reconciler.loop.desired import Desired, no_facts
from reconciler.runtimes import RUNTIMES
from reconciler.source.declared import DeclaredObjects
from reconciler.source.load import examine
from reconciler.source.ours import Document
from reconciler.source.slice import each_alone, own_slice
from tests.support.fleets import MemoryCheckout, service, write_fleet
from tests.support.slices import applied
from tests.support.wrong_documents import CLUSTER, MAC, POOL, VALID

CURSED = "services/cursed.yaml"
# Where the exception is planted, and True where the document itself is refused: elsewhere it is
# valid, and not placed.
STEPS = {
    "reconciler.source.files.made_of": True,
    "reconciler.source.files.check_one": True,
    "reconciler.source.load.with_templates": True,
    "reconciler.source.load.with_hub_sources": True,
    "reconciler.source.load.with_model_gpus": True,
    "reconciler.source.load.with_pools": True,
    "reconciler.source.load.check_all": True,
    "reconciler.source.load.with_draft_files": True,
    "reconciler.source.load.read_model_files": True,
    "reconciler.placement.assignment.misfit": False,
    "reconciler.placement.assignment.made_for": False,
    "reconciler.placement.assignment.admit": False,
    "reconciler.placement.assignment.notes": False,
}


def _plant(monkeypatch: pytest.MonkeyPatch, place: str, *, always: bool = False) -> None:
    """Have a function raise an exception where it is about the service that is cursed."""
    module, _, name = place.rpartition(".")
    holder: Any = pkgutil.resolve_name(module)
    work: Callable[..., Any] = getattr(holder, name)

    @functools.wraps(work)
    def faulty(*args: Any, **kwargs: Any) -> Any:
        if always or _is_about(args):
            raise ZeroDivisionError("planted")
        return work(*args, **kwargs)

    monkeypatch.setattr(holder, name, faulty)


def _is_about(value: object) -> bool:
    match value:
        case str():
            return value == "cursed"
        case Resource():
            return value.metadata.name == "cursed"
        case Document():
            return value.content["metadata"]["name"] == "cursed"
        case Workload():
            return value.ref.name == "cursed"
        case Fleet() | DeclaredObjects():
            return _is_about(value.objects)
        case Candidate() | PlacedService():
            return _is_about(value.service)
        case Mapping():
            return any(map(_is_about, value.values()))
        case list() | tuple():
            return any(map(_is_about, value))
    return False


def _files(node: str) -> dict[str, str]:
    return {**VALID, CURSED: "# the first line\n" + service("cursed", placement={"nodes": [node]})}


@pytest.mark.parametrize("node", [MAC, POOL])
@pytest.mark.parametrize("step", STEPS)
def test_an_exception_about_one_document_holds_that_one_alone(
    step: str, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = examine(MemoryCheckout(VALID), RUNTIMES)
    assert before.fleet is not None
    running = Desired.of(MemoryCheckout(VALID), before, before.fleet, no_facts)
    targets = {name: TargetState(name, True) for name in (f"node/{MAC}", f"cluster/{CLUSTER}")}
    _plant(monkeypatch, step)
    checkout = MemoryCheckout(_files(node))

    loaded = examine(checkout, RUNTIMES)

    errors = [(p.path, p.line, p.rule) for p in loaded.errors]
    assert errors == ([(CURSED, 2, "InternalError")] if STEPS[step] else [])
    everywhere, on_mac = each_alone(loaded, None), own_slice(loaded, MAC, applied(before))
    is_elsewhere = node == POOL and STEPS[step]  # of mac it is a warning
    for followed in (everywhere, on_mac):
        assert followed.fleet is not None
        desired = Desired.of(checkout, followed, followed.fleet, no_facts)
        plan = desired.plan(Observation(targets, running.instances()))
        assert not plan.changes
        held = [] if followed is on_mac and is_elsewhere else [("cursed", "InternalError")]
        assert [(b.ref.name, b.reason) for b in plan.blocked] == held
    assert bool(on_mac.errors) is (STEPS[step] and not is_elsewhere)


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "markdown"])
@pytest.mark.parametrize("step", [*STEPS, "reconciler.source.documents.select"])
def test_validate_names_the_document_with_which_this_program_fails(
    step: str,
    form: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _plant(monkeypatch, step)
    root = write_fleet(tmp_path, _files(MAC))

    assert main(["validate", "-C", str(root), "-o", form]) == 1

    told = capsys.readouterr()
    assert CURSED in told.out
    assert "ZeroDivisionError" in told.out
    assert "Traceback" not in told.err


@pytest.mark.parametrize("place", ["render", "runtime"])
def test_render_names_the_service_with_which_it_fails(
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    into = tmp_path / "manifests"
    root = write_fleet(tmp_path / "fleet", _files(POOL if place == "render" else MAC))
    assert main(["render", "-C", str(root), "--cluster", CLUSTER, "-o", str(into)]) == 0
    stood = (into / CLUSTER / "default/bare.yaml").read_text()
    faulty = "kube.render.files.render" if place == "render" else "cli.render._left_open"
    _plant(monkeypatch, f"reconciler.{faulty}")

    words = ("--cluster", CLUSTER, "-o", str(into)) if place == "render" else ()
    assert main(["render", "-C", str(root), *words]) == 1

    assert f"{CURSED}:2:1: a bug in this program" in capsys.readouterr().err
    assert (into / CLUSTER / "default/bare.yaml").read_text() == stood


def test_a_service_that_a_cluster_s_objects_cannot_be_made_of_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkout = MemoryCheckout(_files(POOL))
    loaded = examine(checkout, RUNTIMES)
    assert loaded.fleet is not None
    desired = Desired.of(checkout, loaded, loaded.fleet, no_facts)
    _plant(monkeypatch, "reconciler.kube.render.rendering.render")

    wanted = ObjectRenderer(CLUSTER).wanted(desired)

    assert [ref.name for ref in wanted.unrendered] == ["cursed"]
    assert {placed.workload.ref.name for placed in wanted.placed} == {"bare", "web"}
    assert not [oid for oid in wanted.services if oid.name == "cursed"]


def test_an_agent_leaves_a_service_that_it_cannot_render_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    _plant(monkeypatch, "agent.engines.render.CommandRenderer.render")
    root = write_fleet(tmp_path / "fleet", _files(MAC))
    state = ("--state-dir", str(tmp_path / "state"))

    code = main(["plan", "-C", str(root), f"--local={MAC}", *state, "--offline", "-o", "json"])

    plan = json.loads(capsys.readouterr().out)
    blocked = {item["ref"]["name"]: item["reason"] for item in plan["blocked"]}
    assert (code, blocked["cursed"]) == (3, "InternalError")
    assert "InternalError" not in {why for name, why in blocked.items() if name != "cursed"}


def test_an_exception_about_no_document_refuses_the_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _plant(monkeypatch, "reconciler.source.load._default_runtime", always=True)
    root = write_fleet(tmp_path, VALID)
    loaded = examine(MemoryCheckout(VALID), RUNTIMES)

    assert main(["validate", "-C", str(root), "-o", "json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["rule"], problem["path"]) == ("InternalError", ".")
    for followed in (loaded, each_alone(loaded, None), own_slice(loaded, MAC, None)):
        assert followed.fleet is None
        assert followed.errors


def test_a_traceback_is_printed_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from reconciler.api import isolated

    monkeypatch.setenv("FLEET_DEBUG", "1")
    monkeypatch.setattr(isolated, "show_traceback", None)
    _plant(monkeypatch, "reconciler.source.load.check_all")

    main(["validate", "-C", str(write_fleet(tmp_path, _files(MAC)))])

    assert capsys.readouterr().err.count("Traceback (most recent call last)") == 1
