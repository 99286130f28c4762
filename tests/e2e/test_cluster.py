"""A fleet's cluster by git: `--cluster` against a real API server, looked at with kubectl."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_fleet import PROD, ClusterFleet
from tests.support.fleets import document, model, service
from tests.support.gguf_models import tiny_llama
from tests.support.http import FileServer
from tests.support.reconciler import Finished, Machine
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]
OK, FAILED, CHANGES, BLOCKED, USAGE = 0, 1, 2, 3, 64
SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "plan.json").read_text())


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


@pytest.fixture
def home(tmp_path: Path, cluster: Cluster, machine: Machine) -> ClusterFleet:
    """The fleet with its kinds installed, and no service yet."""
    return ClusterFleet.create(tmp_path, cluster, machine)


def chat(**spec: Any) -> str:
    return service("chat", "phi", **spec)


def test_a_pushed_service_is_planned_applied_and_ready_and_then_nothing_is_to_do(
    home: ClusterFleet,
) -> None:
    sha = home.push(chat=chat(contextSize=4096))

    before = home.dry_run()
    done = home.once()
    after = home.dry_run()

    assert before.code == CHANGES
    assert f"InferenceService default/chat            chat.yaml:1   {sha[:7]}" in before.out
    assert "everything answers" in done.err
    assert (after.code, "nothing to do" in after.out) == (OK, True)
    home.cluster.wait("--for=condition=Ready", "isvc/chat")
    deployment = home.cluster.json("get", "deployment", "chat")
    assert deployment["spec"]["replicas"] == 1
    (port,) = home.cluster.json("get", "service", "chat")["spec"]["ports"]
    assert port["port"] == 8080


def test_a_plan_as_json_keeps_to_its_schema_and_names_every_object(home: ClusterFleet) -> None:
    home.push(chat=chat())

    plan = home.dry_run("-o", "json").json()

    jsonschema.Draft202012Validator(SCHEMA).validate(plan)
    of_chat = [c for c in plan["changes"] if c["ref"]["name"] == "chat"]
    assert {"Deployment", "Service", "InferenceService"} <= {c["object"]["kind"] for c in of_chat}
    assert {c["target"] for c in of_chat} == {f"cluster/{PROD}"}
    assert plan["summary"]["create"] == 4  # the service, its Model, the Fleet and the FleetNode


def test_a_hub_that_is_there_or_silent_changes_the_plans_figures_and_nothing_else(
    home: ClusterFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEET_OFFLINE")
    with FileServer(tiny_llama(tmp_path / "tiny.gguf").read_bytes()) as hub:
        home.push(chat=chat(), phi=model("phi", source=hub.url))

        unknown, known = home.changes("--offline"), home.changes()
        home.once()
        after = home.dry_run()
    (home.machine.root / "cache" / "fleet-reconciler" / "headers").rename(tmp_path / "headers")
    silent = home.dry_run()

    (blind, _), (seen, memory) = (_of_the_service(changes) for changes in (unknown, known))
    assert (blind, seen) == (None, len(hub.data))
    assert memory[0]["afterBytes"] > 200 << 20
    assert [c["object"] for c in unknown] == [c["object"] for c in known]
    assert (after.code, silent.code) == (OK, OK)
    assert "memory and size of default/phi are not known yet" in silent.err


def test_pods_that_no_node_could_hold_are_refused_also_while_the_hub_is_silent(
    home: ClusterFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLEET_OFFLINE")
    with FileServer(tiny_llama(tmp_path / "tiny.gguf").read_bytes()) as hub:
        home.push(chat=chat(contextSize=512), phi=model("phi", source=hub.url))
        home.once()
        small = home.cluster.json("get", "deployment", "chat")
        home.push(chat=chat(contextSize=99_999_999))
        before, applied, after = home.dry_run(), home.run("--once"), home.dry_run()
    (home.machine.root / "cache" / "fleet-reconciler" / "headers").rename(tmp_path / "headers")
    silent, again = home.dry_run(), home.run("--once")

    (engine,) = small["spec"]["template"]["spec"]["containers"]
    assert engine["resources"]["requests"]["memory"].endswith("Mi")
    assert "inference.llmkube.dev/needs" in small["metadata"]["annotations"]
    assert [run.code for run in (before, applied, after, silent, again)] == [BLOCKED] * 5
    assert "MemoryFits: needs" in before.out
    assert "this stands until the header of its model can be read again" in silent.out
    now = home.cluster.json("get", "deployment", "chat")
    assert now["spec"]["template"] == small["spec"]["template"]
    conditions = home.cluster.json("get", "isvc", "chat")["status"]["conditions"]
    (fits,) = (c for c in conditions if c["type"] == "MemoryFits")
    assert fits["status"] == "False"


def _of_the_service(changes: list[dict[str, Any]]) -> tuple[int | None, list[dict[str, Any]]]:
    """What it downloads, and its memory."""
    impacts = [c["impact"] for c in changes if c["object"]["kind"] == "InferenceService"]
    (impact,) = (impact for impact in impacts if impact["downloadBytes"] != 0)
    return impact["downloadBytes"], impact["memory"]


def test_an_edit_rolls_and_more_replicas_do_not(home: ClusterFleet) -> None:
    home.push(chat=chat(contextSize=4096))
    home.once()
    template = home.cluster.json("get", "deployment", "chat")["spec"]["template"]

    home.push(chat=chat(contextSize=4096, replicas=2))
    scaled = home.dry_run("-o", "json").json()
    home.once()
    same = home.cluster.json("get", "deployment", "chat")["spec"]
    home.push(chat=chat(contextSize=8192, replicas=2))
    rolled = home.dry_run("-o", "json").json()
    home.once()
    replaced = home.cluster.json("get", "deployment", "chat")["spec"]

    assert _restarts(scaled) == ("update", "none", ["replicas"])
    assert (same["replicas"], same["template"]) == (2, template)
    assert _restarts(rolled) == ("update", "roll", ["contextSize"])
    assert replaced["template"] != template


def _restarts(plan: dict[str, Any]) -> tuple[str, str, list[str]]:
    """What the service's own change says."""
    change = next(c for c in plan["changes"] if c["object"]["kind"] == "InferenceService")
    fields = [field["path"] for field in change["fields"]]
    return change["action"], change["impact"]["restart"], fields


def test_what_somebody_changed_is_shown_with_who_and_taken_back(home: ClusterFleet) -> None:
    home.push(chat=chat())
    home.once()
    home.cluster.kubectl("scale", "deployment", "chat", "--replicas=3")

    shown = home.dry_run()
    home.once()

    assert shown.code == CHANGES
    assert "spec.replicas 1 -> 3 by kubectl" in shown.out
    assert "back to 1" in shown.out
    assert home.cluster.json("get", "deployment", "chat")["spec"]["replicas"] == 1


def test_once_ends_when_all_drift_is_taken_back(home: ClusterFleet) -> None:
    home.push(chat=chat())
    home.once()
    home.cluster.kubectl("scale", "deployment/chat", "--replicas=3")
    home.cluster.kubectl("set", "env", "deployment/chat", "HTTP_PROXY=http://x")

    home.once()  # while the controllers write the Deployment's status

    assert home.dry_run().code == OK
    assert "HTTP_PROXY" not in json.dumps(home.cluster.json("get", "deployment", "chat")["spec"])


def test_an_object_that_lost_the_label_of_its_set_is_given_it_back(home: ClusterFleet) -> None:
    home.push(chat=chat())
    home.once()
    home.cluster.kubectl("label", "deployment", "chat", "applyset.kubernetes.io/part-of-")

    seen = home.dry_run()
    home.once()

    assert "applyset.kubernetes.io/part-of" in seen.out
    assert home.dry_run().code == OK


def test_rendered_files_that_another_program_applied_stay_its_own(
    home: ClusterFleet, tmp_path: Path
) -> None:
    home.push(chat=chat())
    assert home.run("render", "-o", str(tmp_path / "files")).code == OK
    applied = ("apply", "--server-side", "--field-manager=kustomize-controller")
    home.cluster.kubectl(*applied, "-R", "-f", str(tmp_path / "files"))
    before = home.cluster.json("get", "deployment", "chat", "--show-managed-fields")["metadata"]

    done = home.run("--once")

    assert done.code == BLOCKED
    assert "NotOurs: Deployment default/chat is there and was made by kustomize-" in done.out
    after = home.cluster.json("get", "deployment", "chat", "--show-managed-fields")["metadata"]
    assert (after["uid"], after["generation"]) == (before["uid"], before["generation"])
    assert "fleet-reconciler" not in [entry["manager"] for entry in after["managedFields"]]


def test_a_field_that_another_program_had_first_is_taken_where_the_service_says_so(
    home: ClusterFleet,
) -> None:
    home.push(chat=chat())
    home.once()
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"}}
    apply = ("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-")
    home.cluster.kubectl("annotate", "deployment", "chat", "inference.llmkube.dev/applied-")
    home.cluster.kubectl(*apply, text=json.dumps(other | {"spec": {"replicas": 2}}))
    refused = home.dry_run()
    fields = {"inference.llmkube.dev/force-fields": "spec.replicas"}
    home.push(chat=document("InferenceService", "chat", {"modelRef": "phi"}, annotations=fields))

    home.once()

    assert "FieldConflict: Deployment default/chat: spec.replicas is 2 by other" in refused.out
    assert home.cluster.json("get", "deployment", "chat")["spec"]["replicas"] == 1


def test_a_fleet_that_only_reports_drift_shows_it_and_leaves_it(home: ClusterFleet) -> None:
    home.push(chat=chat(), fleet=document("Fleet", "home", {"drift": "report"}))
    home.once()
    home.cluster.kubectl("scale", "deployment", "chat", "--replicas=2")

    shown = home.dry_run()
    home.run("--once")

    assert "spec.replicas 1 -> 2 by kubectl" in shown.out
    assert "back to" not in shown.out
    assert home.cluster.json("get", "deployment", "chat")["spec"]["replicas"] == 2


def test_a_removed_service_leaves_nothing_behind(home: ClusterFleet) -> None:
    home.push(chat=chat(), other=service("other", "phi"))
    home.once()

    sha = home.push(chat=None)
    shown = home.dry_run()
    home.once()
    pods = home.cluster.kubectl("get", "pods", "--no-headers")

    assert f"chat.yaml:1   {sha[:7]}" in shown.out
    left = home.cluster.json("get", "deployment,service,isvc,jobs,configmaps")["items"]
    names = {item["metadata"]["name"] for item in left}
    assert "chat" not in names
    assert "other" in names
    assert "chat" not in pods
    assert "other" in pods


def test_a_suspended_service_has_no_pod_and_comes_back(home: ClusterFleet) -> None:
    """One that is scaled from outside too: its autoscaler goes, and is given it back."""

    def pushed(**spec: Any) -> dict[str, int]:
        scaled = service("scaled", "phi", autoscaling={"minReplicas": 2, "maxReplicas": 3}, **spec)
        home.push(chat=chat(**spec), scaled=scaled)
        home.once()
        deployments = home.cluster.json("get", "deployments", "-n", "default")["items"]
        return {d["metadata"]["name"]: d["spec"]["replicas"] for d in deployments}

    def seen(kind: str) -> str:
        return home.cluster.kubectl("get", kind, "--no-headers", "-o", "name")

    scaler = "horizontalpodautoscaler.autoscaling/scaled\n"
    pushed()
    first = seen("hpa")
    suspended = pushed(suspend=True)
    left, pods = seen("hpa"), seen("pods")
    quiet = home.dry_run()
    back = pushed()

    assert (first, left, seen("hpa")) == (scaler, "", scaler)
    assert (suspended, pods, quiet.code) == ({"chat": 0, "scaled": 0}, "", OK)
    assert back["chat"] == 1
    wait_for(
        lambda: home.cluster.json("get", "deployment", "scaled")["spec"]["replicas"] == 2,
        "the autoscaler acts",
    )


def test_a_cluster_that_does_not_answer_is_unknown(home: ClusterFleet) -> None:
    home.push(chat=chat())

    shown = home.run_unanswered("--dry-run")
    allowed = home.run_unanswered("--dry-run", "--allow-unreachable")

    assert (shown.code, allowed.code) == (BLOCKED, OK)
    assert "?   InferenceService default/chat" in shown.out
    assert "create" not in shown.out.splitlines()[0]


def test_who_applies_already_is_named_and_nothing_is_applied(home: ClusterFleet) -> None:
    loop = home.loop()
    home.push(chat=chat())

    refused = home.run("--once", "--timeout", "30s")
    holder = home.holder()
    ended = loop.end(signal.SIGTERM)

    assert refused.code == BLOCKED
    assert f"{holder} applies the fleet to cluster {PROD}" in refused.err
    assert ended == OK
    wait_for(lambda: not home.holder(), "the Lease is given back")
    home.once()


def test_a_loop_applies_what_is_pushed_and_takes_back_what_is_edited(home: ClusterFleet) -> None:
    def is_there() -> bool:
        return "8080" in home.cluster.kubectl("get", "service", "chat", check=False)

    home.loop()
    home.push(chat=chat())
    wait_for(is_there, "the service that was pushed")
    home.cluster.kubectl("delete", "service", "chat")

    wait_for(is_there, "the service that was deleted")
    home.cluster.wait("--for=condition=Ready", "isvc/chat")


def test_an_object_of_somebody_else_stays_and_is_named(home: ClusterFleet) -> None:
    home.cluster.kubectl("create", "service", "clusterip", "chat", "--tcp=80:80")
    home.push(chat=chat(), other=service("other", "phi"))

    shown = home.dry_run()
    done = home.run("--once", "--timeout", "30s")

    assert shown.code == done.code == BLOCKED
    assert "NotOurs: Service default/chat" in shown.out
    assert home.cluster.json("get", "service", "chat")["spec"]["ports"][0]["port"] == 80
    assert home.cluster.json("get", "deployment", "other")["spec"]["replicas"] == 1


def test_status_shows_the_cluster_beside_the_nodes(home: ClusterFleet) -> None:
    nowhere = {"kubernetes": {"cluster": PROD, "nodeSelector": {"pool": "none"}}}
    far = {"nowhere": document("FleetNode", "nowhere", nowhere | {"hardware": {"memory": "8Gi"}})}
    there, nobody = {"nodes": ["edge"]}, {"nodes": ["nowhere"]}
    home.push(chat=chat(placement=there), far=service("far", "phi", placement=nobody), **far)

    runs: list[Finished] = []
    wait_for(
        lambda: runs.append(home.run("--once", "--timeout", "2s")) or _WAITS in runs[-1].err,
        "a word of the scheduler",
    )
    shown = home.run("status")
    told = home.run("status", "-o", "json").json()

    services = {s["ref"]["name"]: s for s in told["services"]}
    (placement,) = services["chat"]["placements"]
    condition = _ready(home, "far")
    assert "cluster prod  on " in shown.out
    assert (placement["node"], placement["target"]) == ("edge", "cluster/prod")
    assert (runs[-1].code, shown.code) == (BLOCKED, BLOCKED)
    assert services["far"]["reason"] == condition["reason"] == "Unschedulable"
    assert condition["message"] == f"nowhere: {services['far']['message']}"
    assert f"{_WAITS}: {services['far']['message']}" in runs[-1].err.splitlines()[-1]


_WAITS = "default/far Unschedulable"


def _ready(home: ClusterFleet, name: str) -> dict[str, str]:
    conditions = home.cluster.json("get", "isvc", name)["status"]["conditions"]
    (found,) = (c for c in conditions if c["type"] == "Ready")
    return dict(found)


def test_without_the_kinds_a_plan_says_what_installs_them(
    tmp_path: Path, bare_cluster: Cluster, machine: Machine
) -> None:
    bare = ClusterFleet.create(tmp_path, bare_cluster, machine)

    shown = bare.dry_run()

    assert f"`reconcile install --cluster {PROD}`" in shown.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--watch", "--cluster", "prod"), "--watch is about this machine alone"),
        (("--once", "--local", "--cluster", "prod"), "--local is about this machine alone"),
        (("--dry-run", "--cluster", "prod="), "write NAME, or NAME=CONTEXT"),
        (("--dry-run", "--cluster", "a", "--cluster", "a"), "given twice"),
    ],
)
def test_what_makes_no_sense_with_a_cluster_is_refused(
    machine: Machine, words: tuple[str, ...], says: str
) -> None:
    done = machine.reconcile(*words)

    assert done.code == USAGE
    assert says in done.err
