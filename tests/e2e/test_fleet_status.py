"""What the Fleet says in a cluster while something is wrong that no service shows."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster_fleet import PROD, ClusterFleet
from tests.support.cluster_wipe import SYSTEM
from tests.support.fleets import document, model, service
from tests.support.git_http import git_server
from tests.support.reconciler import Machine
from tests.support.repos import Repo
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.cluster]

SOON = ("--interval", "1s", "--lease-duration", "4s")


@pytest.fixture
def home(tmp_path: Path, installed_cluster: Cluster, machine: Machine) -> ClusterFleet:
    made = ClusterFleet.create(tmp_path, installed_cluster, machine)
    made.push(chat=service("chat", "phi"))
    return made


def fleets(home: ClusterFleet) -> str:
    return home.cluster.kubectl("get", "fleets", "-o", "json")


def status(home: ClusterFleet) -> dict[str, Any]:
    found: dict[str, Any] = home.cluster.json("get", "fleet", "home").get("status") or {}
    return found


def condition(home: ClusterFleet, kind: str) -> tuple[str, str, str]:
    conditions = {c["type"]: c for c in status(home).get("conditions") or ()}
    found = conditions.get(kind) or {"status": "", "reason": "", "message": ""}
    return found["status"], found["reason"], found["message"]


def wait_ready(home: ClusterFleet, revision: str) -> None:
    wait_for(lambda: f'"appliedRevision": "{revision}"' in fleets(home), f"{revision} applied")
    home.cluster.wait("fleet/home", "--for=condition=Ready")


def events(home: ClusterFleet, about: str = "") -> dict[str, int]:
    """Reason -> objects: each has a count of its own, however often it happened. Those of other
    tests' fleets of this name are there too: `about` is in the message."""
    named = home.cluster.json("get", "events", "--field-selector=involvedObject.kind=Fleet")
    reasons = [event["reason"] for event in named["items"] if about in event["message"]]
    return {reason: reasons.count(reason) for reason in reasons}


def test_a_refused_a_held_and_a_lost_head_are_conditions_and_events_of_the_fleet(
    home: ClusterFleet,
) -> None:
    home.loop(*SOON)
    good = home.repo.head()
    wait_ready(home, good)

    bad = home.push(chat=service("chat", "phi", contextSize="eight"))
    home.cluster.wait("fleet/home", "--for=condition=Stalled")
    assert condition(home, "Ready")[:2] == ("False", "RevisionRefused")
    said = status(home)
    assert (said["head"], said["observedRevision"], said["appliedRevision"]) == (bad, good, good)
    assert said["refused"]["revision"] == bad
    assert "chat.yaml:" in said["refused"]["problem"]
    assert "contextSize" in condition(home, "Current")[2]
    assert "RevisionRefused" in home.cluster.kubectl("get", "fleet")
    wait_for(lambda: bool(events(home, bad[:12])), "its event, which comes after the status")
    assert events(home, bad[:12]) == {"RevisionRefused": 1}

    newest = home.push(chat=service("chat", "phi"))
    wait_ready(home, newest)
    assert "refused" not in status(home)

    home.repo.git("push", "-q", "--force", "origin", f"{good}:main")
    home.cluster.wait("fleet/home", "--for=condition=Stalled")
    assert condition(home, "Ready")[:2] == ("False", "RevisionHeld")
    assert status(home)["held"]["revision"] == good
    _, command = condition(home, "Current")[2].split("accept it: kubectl ")
    home.cluster.kubectl(*command.partition(";")[0].split())
    wait_ready(home, good)
    wait_for(lambda: "accept" not in fleets(home), "let in once")

    home.repo.push()
    wait_ready(home, newest)
    away = home.repo.remote.rename(home.repo.remote.with_name("away"))
    home.cluster.wait("fleet/home", "--for=condition=SourceReady=false")
    assert condition(home, "Ready")[:2] == ("Unknown", "SourceLost")
    away.rename(home.repo.remote)
    home.cluster.wait("fleet/home", "--for=condition=Ready")
    wait_for(lambda: "SourceBack" in events(home), "the event that ends it")
    assert {"RevisionHeld", "SourceLost", "RevisionApplied"} <= events(home).keys()


def test_what_somebody_else_writes_into_the_status_is_put_back_or_left_alone(
    home: ClusterFleet,
) -> None:
    home.loop(*SOON)
    good = home.repo.head()
    wait_ready(home, good)
    theirs = [
        {
            "type": kind,
            "status": "True",
            "reason": "Mine",
            "message": "mine",
            "lastTransitionTime": at,
        }
        for kind, at in (("Stalled", "2026-01-01T00:00:00Z"), ("Theirs", "2026-01-01T00:00:00Z"))
    ]
    patch = {"status": {"appliedRevision": "0" * 40, "head": "x", "conditions": theirs}}
    words = ("patch", "fleet", "home", "--subresource=status", "--type=merge", "-p")
    home.cluster.kubectl(*words, json.dumps(patch))

    wait_ready(home, good)
    assert status(home)["head"] == good
    assert condition(home, "Stalled")[0] == "False"


def test_a_service_whose_namespace_is_absent_is_named_by_the_fleet(home: ClusterFleet) -> None:
    there = {"namespace": "absent"}
    home.push(
        weights=document("Model", "phi", {"source": "https://m.test/phi.gguf"}, **there),
        other=document("InferenceService", "other", {"modelRef": "phi"}, **there),
    )
    home.loop(*SOON)

    wait_for(lambda: home.repo.head() in fleets(home), "the Fleet")
    wait_for(lambda: condition(home, "Applied")[1] == "ApplyFailed", "the reason")
    said = condition(home, "Ready")[2]
    assert "absent/phi: " in said
    assert "; also absent/other" in said
    assert said in home.run("status").out
    wait_for(lambda: "ApplyFailed" in events(home), "its event")

    home.cluster.namespace("absent")
    home.cluster.wait("fleet/home", "--for=condition=Ready")


def test_what_the_api_server_refuses_holds_only_its_own_service(home: ClusterFleet) -> None:
    home.loop(*SOON)
    before = home.repo.head()
    wait_ready(home, before)
    home.cluster.namespace("quota")
    none = {"hard": {"count/deployments.apps": "0"}}
    metadata = {"name": "none", "namespace": "quota"}
    home.cluster.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": none}
    )
    home.cluster.wait("quota/none", "-n", "quota", "--for=jsonpath={.status.hard}")
    there = {"namespace": "quota"}

    head = home.push(
        chat=service("chat", "phi", contextSize=2048),
        weights=document("Model", "phi", {"source": "https://m.test/phi.gguf"}, **there),
        refused=document("InferenceService", "refused", {"modelRef": "phi"}, **there),
        search=service("search", "phi"),
    )

    for name in ("chat", "search"):
        told = f"--for=jsonpath={{.status.observedRevision}}={head}"
        home.cluster.wait(f"isvc/{name}", "--for=create")
        home.cluster.wait(f"isvc/{name}", told)
        home.cluster.wait(f"isvc/{name}", "--for=condition=Ready")
    why = "--for=jsonpath={.status.conditions[?(@.type=='Ready')].reason}=ApplyFailed"
    for what in ("--for=create", why):
        home.cluster.wait("isvc/refused", "-n", "quota", what)
    wait_for(lambda: status(home)["observedRevision"] == head, "the Fleet's own status")
    refused = home.cluster.json("get", "isvc", "refused", "-n", "quota")["status"]
    conditions = {c["type"]: c for c in refused["conditions"]}
    for kind, truth in (("Ready", "False"), ("Reconciling", "True")):
        assert (conditions[kind]["status"], conditions[kind]["reason"]) == (truth, "ApplyFailed")
    assert "exceeded quota: none" in conditions["Ready"]["message"]
    assert (refused["observedRevision"], refused.get("endpoint")) == (head, None)
    assert (status(home)["observedRevision"], status(home)["appliedRevision"]) == (head, before)
    assert condition(home, "Applied")[2].startswith("quota/refused: ")


def test_two_fleets_in_one_cluster_leave_each_other_alone(
    home: ClusterFleet, tmp_path: Path
) -> None:
    """Each with a service `chat`: who came first has it."""
    away = ClusterFleet(Repo.create(tmp_path / "away"), home.cluster, home.machine)
    pool = {"kubernetes": {"cluster": PROD, "nodeSelector": {"pool": "edge"}}}
    away.push(
        fleet=document("Fleet", "away", {}),
        node=document("FleetNode", "far", pool | {"hardware": {"memory": "64Gi"}}),
        model=model("gemma", sha256="cd" * 32),
        chat=service("chat", "gemma"),
        solo=service("solo", "gemma"),
    )
    home.loop(*SOON)
    wait_ready(home, home.repo.head())
    had = home.cluster.json("get", "deployment", "chat")["metadata"]["uid"]

    home.machine.start(*away.words, *SOON)

    home.cluster.wait("fleet/away", "--for=create")
    home.cluster.wait("fleet/away", "--for=condition=Stalled")
    home.cluster.wait("isvc/solo", "--for=condition=Ready")
    assert "Service default/chat is there and belongs to the fleet home" in fleets(home)
    assert home.cluster.json("get", "deployment", "chat")["metadata"]["uid"] == had
    assert condition(home, "Ready")[0] == "True"
    leases = home.cluster.kubectl("get", "lease", "-n", SYSTEM, "-o", "name").split()
    assert {f"lease.coordination.k8s.io/fleet-{name}" for name in ("away", "home")} <= {*leases}

    home.push(chat=None)

    home.cluster.wait("fleet/away", "--for=condition=Ready")
    assert home.cluster.json("get", "deployment", "chat")["metadata"]["uid"] != had


def new_pod(tmp_path: Path) -> dict[str, str]:
    """The environment of a reconciler whose folder is empty."""
    folder = tmp_path / "new-pod"
    folder.mkdir()
    return {"XDG_CACHE_HOME": str(folder)}


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("a commit with an error", "RevisionRefused"),
        ("a file without its documents", "RevisionRefused"),
        ("one in whose history the applied commit is not", "RevisionRefused"),
        ("a head that is older", "RevisionHeld"),
    ],
)
def test_a_reconciler_without_a_memory_goes_on_from_the_commit_that_was_followed(
    trouble: str, reason: str, home: ClusterFleet, tmp_path: Path
) -> None:
    home.push(other=service("other", "phi"))
    first = home.loop(*SOON)
    good = home.repo.head()
    wait_ready(home, good)
    first.end(signal.SIGKILL)
    if "not" in trouble:
        home.repo.git("reset", "-q", "--hard", "HEAD~2")
    if "older" in trouble:
        home.repo.git("push", "-q", "--force", "origin", "HEAD~1:main")
    else:
        is_lost = "without" in trouble
        bad = "<html>\n" if is_lost else service("chat", "phi", contextSize="eight")
        (home.repo.work / "chat.yaml").write_text(bad)
        home.repo.commit("bad", force=True)
    home.cluster.kubectl("scale", "deployment", "other", "--replicas=2")

    home.machine.start(*home.words, *SOON, env=new_pod(tmp_path))

    home.cluster.wait("fleet/home", "--for=condition=Stalled")
    assert condition(home, "Ready")[:2] == ("False", reason)
    assert status(home)["observedRevision"] == good
    home.cluster.wait("deployment/other", "--for=jsonpath={.spec.replicas}=1")


def test_where_nothing_can_be_followed_nothing_is_said_to_be_as_it_was(
    home: ClusterFleet, tmp_path: Path
) -> None:
    with git_server(home.repo.remote.parent) as server:
        words = ("-C", server.url("fleet.git"), *home.words[2:], *SOON)
        first = home.machine.start(*words)
        wait_ready(home, home.repo.head())
        home.cluster.wait("isvc/chat", "--for=condition=Ready")
        first.end()
        server.stop()

        home.machine.start(*words, env=new_pod(tmp_path))

        home.cluster.wait("isvc/chat", "--for=condition=Ready=unknown")
        home.cluster.wait("fleet/home", "--for=condition=Applied=unknown")
        assert condition(home, "SourceReady")[:2] == ("False", "SourceLost")
        assert home.cluster.json("get", "isvc", "chat")["status"]["endpoint"]
        server.start()
        home.cluster.wait("isvc/chat", "--for=condition=Ready")
        home.cluster.wait("fleet/home", "--for=condition=Ready")
