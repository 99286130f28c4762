"""What is known of a model before any pod has it: it refuses and sizes pods, and restarts none."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.cli import main
from reconciler.core.plan import Change, Plan, Restart
from reconciler.fleet.fleet import Fleet
from reconciler.gguf.header import read_path
from reconciler.kube.extender.demand import service_facts
from reconciler.kube.objects import NEEDS_ANNOTATION, Manifest, ObjectId
from reconciler.kube.status.status import service_status
from reconciler.loop.desired import CachedFacts
from reconciler.memory import ModelFacts
from reconciler.models.header_cache import HeaderCache
from reconciler.models.header_reader import HeaderReader
from reconciler.models.headers import Headers
from tests.support.cluster_views import CLUSTER, desired, live_service, pool, view
from tests.support.fleets import document, model, service, write_fleet
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.pure_cluster import PureCluster
from tests.support.wait import PATIENCE_S

HUGE = 99_999_999  # tokens of context


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def known(tiny: Path) -> CachedFacts:
    """A hub that is there; `no_facts` is one that is silent."""
    header = read_path(tiny)

    def facts(fleet: Fleet, models: Sequence[Model]) -> Mapping[ObjectRef, ModelFacts]:
        return {model.ref: header for model in models}

    return facts


def in_pods(home: str | None = None, **spec: Any) -> dict[str, str]:
    only = None if "models" in spec else "gemma"
    return {
        "l4.yaml": home or pool(hardware={"memory": "8Gi"}),
        "model.yaml": model("gemma"),
        "chat.yaml": service("chat", only, placement={"nodes": ["l4"]}, **spec),
    }


# Where a header would show: requests, start-up time, strategy, the volume and the Job that fetches
SHAPES: dict[str, dict[str, str]] = {
    "ephemeral": in_pods(),
    "a cache of the pool": in_pods(
        pool(hardware={"memory": "8Gi"}, kubernetes={"cluster": CLUSTER, "cache": "pvc:100Gi"})
    ),
    "more than half of a node": in_pods(pool(hardware={"memory": "600Mi"}), contextSize=512),
    "more than a node, by memory.mode": in_pods(contextSize=HUGE, memory={"mode": "warn"}),
    "a device": in_pods(pool()),
    "limits": in_pods(resources={"limits": {"memory": "300Mi"}}),
    "suspended": in_pods(suspend=True),
    "many models": in_pods(runtime="llamacpp-router", models=[{"name": "gemma"}]),
}


def parts(plan: Plan) -> list[Change]:
    return [change for change in plan.changes if not change.is_shown_only]


def unsized(made: Manifest) -> Manifest:
    """Without what only a header says of its memory."""
    found = copy.deepcopy(dict(made))
    found["metadata"].get("annotations", {}).pop(NEEDS_ANNOTATION, None)
    if found["kind"] == "Deployment":
        (engine,) = found["spec"]["template"]["spec"]["containers"]
        resources = engine.get("resources", {})
        resources.get("requests", {}).pop("memory", None)
        parts = {name: values for name, values in resources.items() if values}
        engine |= {"resources": parts} if parts else {}
        if not parts:
            engine.pop("resources", None)
    return found


def template_of(live: Mapping[ObjectId, Manifest]) -> Manifest:
    (deployment,) = (o for o in live.values() if o["kind"] == "Deployment")
    return deployment["spec"]["template"]  # type: ignore[no-any-return]  # plain JSON


def needs_of(live: Mapping[ObjectId, Manifest]) -> str | None:
    (deployment,) = (o for o in live.values() if o["kind"] == "Deployment")
    found = deployment["metadata"]["annotations"].get(NEEDS_ANNOTATION)
    return found if found is None else str(found)


def of_the_service(plan: Plan) -> Change:
    (found,) = (change for change in plan.changes if change.object is None)
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_only_the_memory_differs_between_a_hub_that_answers_and_a_silent_one(
    shape: str, known: CachedFacts
) -> None:
    files = SHAPES[shape]

    there, silent = PureCluster(known).wanted(files), PureCluster().wanted(files)

    assert there != silent
    assert {oid: unsized(made) for oid, made in there.items()} == silent


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_restarts_when_a_hub_falls_silent_or_is_back(
    shape: str, known: CachedFacts
) -> None:
    files = SHAPES[shape]
    answering, silent = PureCluster(known), PureCluster()
    answering.bring_to(files)
    silent.live, silent.stood = dict(answering.live), answering.stood

    assert parts(answering.plan(files)) == []
    assert parts(silent.plan(files)) == []
    assert silent.plan(files).blocked == ()


@pytest.mark.parametrize("shape", SHAPES)
def test_memory_that_becomes_known_is_noted_beside_pods_that_stay(
    shape: str, known: CachedFacts
) -> None:
    files = SHAPES[shape]
    silent, answering = PureCluster(), PureCluster(known)
    silent.bring_to(files)
    answering.live, answering.stood = dict(silent.live), silent.stood

    (noted,) = parts(answering.bring_to(files))

    assert (noted.reason, noted.impact.restart) == ("MemoryKnown", Restart.NONE)
    assert needs_of(answering.live) is not None
    assert template_of(answering.live) == template_of(silent.live)
    assert parts(answering.plan(files)) == []


def test_a_change_of_inputs_beside_a_silent_hub_keeps_no_memory_of_other_inputs(
    known: CachedFacts,
) -> None:
    answering, silent = PureCluster(known), PureCluster()
    answering.bring_to(in_pods(contextSize=8192))
    silent.live, silent.stood = answering.live, answering.stood

    silent.bring_to(in_pods(contextSize=512))

    assert needs_of(silent.live) is None
    assert "resources" not in template_of(silent.live)["spec"]["containers"][0]


def test_another_drain_time_beside_a_silent_hub_restarts_nothing(known: CachedFacts) -> None:
    answering, silent = PureCluster(known), PureCluster()
    answering.bring_to(in_pods())
    silent.live, silent.stood = answering.live, answering.stood

    plan = silent.plan(in_pods(replicas=2))

    assert {change.impact.restart for change in parts(plan)} == {Restart.NONE}


def test_a_new_model_for_pods_has_its_memory_and_its_download_in_the_plan(
    known: CachedFacts, tiny: Path
) -> None:
    unknown = of_the_service(PureCluster().plan(in_pods())).impact

    impact = of_the_service(PureCluster(known).plan(in_pods())).impact

    assert unknown.download_bytes is None
    assert unknown.memory == ()
    assert impact.download_bytes == tiny.stat().st_size
    (memory,) = impact.memory
    assert (memory.before_bytes, memory.budget_bytes) == (0, int((8 << 30) * 0.67))
    assert memory.after_bytes is not None
    assert memory.after_bytes > 200 << 20


def test_pods_that_no_node_of_their_pool_could_hold_are_refused_by_the_header(
    known: CachedFacts,
) -> None:
    plan = PureCluster(known).plan(in_pods(contextSize=HUGE))

    (blocked,) = plan.blocked
    assert blocked.reason == "MemoryFits"
    assert (
        "of host memory, 5.4 GiB are free (8.0 GiB x 0.67 = 5.4 GiB budget); with contextSize: "
        in blocked.message
    )
    assert [o for c in plan.changes if (o := c.object) and o.kind == "Deployment"] == []


def test_pods_that_run_stay_when_their_next_setting_is_refused(known: CachedFacts) -> None:
    cluster = PureCluster(known)
    cluster.bring_to(in_pods())
    before = template_of(cluster.live)

    plan = cluster.bring_to(in_pods(contextSize=HUGE))

    assert [blocked.reason for blocked in plan.blocked] == ["MemoryFits"]
    assert template_of(cluster.live) == before


def test_what_was_refused_stays_so_while_the_hub_is_silent(known: CachedFacts) -> None:
    """Else a reconciler that has just started would start it after all."""
    files = in_pods(contextSize=HUGE)
    answering, silent = PureCluster(known), PureCluster()
    answering.bring_to(files)
    answering.report(files)
    silent.live, silent.stood = answering.live, answering.stood

    (first,) = silent.bring_to(files).blocked
    silent.report(files)
    (again,) = silent.plan(files).blocked

    stands = "this stands until the header of its model can be read again"
    assert first.reason == "MemoryFits"
    assert first.message.endswith(f"with contextSize: 8192 it fits (293 MiB in all); {stands}")
    assert again == first
    assert silent.plan(in_pods(contextSize=512)).blocked == ()
    assert silent.plan(in_pods(contextSize=HUGE, suspend=True)).blocked == ()


def test_what_runs_has_its_memory_in_the_next_plan(known: CachedFacts) -> None:
    cluster = PureCluster(known)
    cluster.bring_to(in_pods(contextSize=512))

    plan = cluster.plan(in_pods(contextSize=8192))

    (memory,) = of_the_service(plan).impact.memory
    assert memory.before_bytes is not None
    assert memory.after_bytes is not None
    assert memory.after_bytes > memory.before_bytes > 200 << 20


def test_the_extender_filters_by_the_memory_of_a_remote_model(known: CachedFacts) -> None:
    cluster = PureCluster(known)
    cluster.bring_to(SHAPES["a device"])
    (deployment,) = (o for o in cluster.live.values() if o["kind"] == "Deployment")

    wanted = service_facts(deployment).gpu_bytes

    (memory,) = (
        need
        for w in desired(SHAPES["a device"], known).assignment.workloads
        for need in w.needs
        if need.pool == "device0"
    )
    assert wanted == memory.bytes


def test_a_request_for_memory_that_was_let_through_is_one_that_a_node_can_grant(
    known: CachedFacts,
) -> None:
    cluster = PureCluster(known)

    cluster.bring_to(SHAPES["more than a node, by memory.mode"])

    (engine,) = template_of(cluster.live)["spec"]["containers"]
    assert engine["resources"]["requests"]["memory"] == "5489Mi"


def test_a_change_of_pods_says_how_they_are_changed_and_not_how_a_header_would_have_it(
    known: CachedFacts,
) -> None:
    """By its header two would not fit side by side; the Deployment does not know that."""
    cluster = PureCluster(known)
    cluster.bring_to(SHAPES["more than half of a node"])

    plan = cluster.plan(in_pods(pool(hardware={"memory": "600Mi"}), contextSize=256))

    (deployment,) = (o for o in cluster.live.values() if o["kind"] == "Deployment")
    assert deployment["spec"]["strategy"]["type"] == "RollingUpdate"
    assert of_the_service(plan).impact.downtime_seconds == 0


def test_a_condition_says_what_the_header_says(known: CachedFacts) -> None:
    said = {}
    for name, files in (("fits", in_pods()), ("over", in_pods(contextSize=HUGE))):
        want = desired(files, known)
        seen = view(want, plan=PureCluster(known).plan(files))
        status = service_status(seen, live_service(), "now")
        (said[name],) = (c for c in status["conditions"] if c["type"] == "MemoryFits")

    assert (said["fits"]["status"], said["fits"]["reason"]) == ("True", "Fits")
    assert (said["over"]["status"], said["over"]["reason"]) == ("False", "MemoryFits")


@pytest.fixture
def server(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.delenv("FLEET_OFFLINE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with FileServer(tiny.read_bytes() + bytes(8 << 20)) as server:
        yield server


def test_an_author_of_objects_in_a_cluster_has_no_private_address_asked(server: FileServer) -> None:
    """The reconciler stands where they do not."""
    files = in_pods() | {"model.yaml": model("gemma", source=server.url)}
    listed = files | {"fleet.yaml": document("Fleet", "home", {"allowedHosts": ["127.0.0.1"]})}

    headers = Headers(HeaderReader(HeaderCache(None)), 30.0, only_listed=True)
    facts = [desired(each, headers.facts).facts for each in (files, listed)]

    assert [len(each) for each in facts] == [0, 1]
    assert server.ranges == ["bytes=0-262143"]


def test_a_loop_stands_still_once_for_a_silent_hub_and_hears_of_its_answer(
    server: FileServer,
) -> None:
    server.go_on.clear()
    changed, waited_for = Event(), list[int]()
    files = in_pods() | {"model.yaml": model("gemma", source=server.url)}
    headers = Headers(
        HeaderReader(HeaderCache(None), changed=changed.set),
        0.01,
        gives_up=False,
        progress=lambda _, total: waited_for.append(total),
    )
    first = desired(files, headers.facts)
    waited_once, waited_for[:] = set(waited_for), []
    again = first.refreshed(headers.facts)

    server.go_on.set()

    assert changed.wait(PATIENCE_S)
    assert (waited_once, set(waited_for)) == ({1}, {0})
    assert (first.facts, again.facts) == ({}, {})
    assert len(first.refreshed(headers.facts).facts) == 1


def test_an_explanation_reads_the_header_of_a_model_for_pods(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    files = in_pods() | {"model.yaml": model("gemma", source=server.url)}
    folder = write_fleet(tmp_path / "fleet", files)

    code = main(["explain", "chat", "-C", str(folder), "-o", "json"])

    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["memory"]["totalBytes"] > 200 << 20
    assert server.ranges == ["bytes=0-262143"]


def test_deploy_writes_no_service_whose_pods_would_not_fit(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_fleet(tmp_path / "fleet", {"l4.yaml": pool(hardware={"memory": "64Mi"})})

    code = main(
        ["deploy", "-C", str(folder), "tiny", "--source", server.url, "--context-size", "1048576"]
    )

    err = capsys.readouterr().err
    assert code == 3
    assert "Error: insufficient memory for tiny on node l4" in err
    assert "Suggestion: with contextSize: " in err
    assert not (folder / "services").exists()
