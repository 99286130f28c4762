"""What a real agent says of real engines, over HTTP."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

from agent.server import served
from tests.support.client import complete, get
from tests.support.fleets import model, service
from tests.support.llama_server import llama_server
from tests.support.reconciler import Fleet, Machine
from tests.support.served_node import events, request
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e


def url_of(machine: Machine) -> str:
    """Where the machine's agent listens."""
    wait_for(lambda: served(machine.state) is not None, "the server")
    found = served(machine.state)
    assert found is not None
    assert found.url is not None, found
    return found.url


def metrics(url: str) -> dict[str, float]:
    return request(url, "GET", "/metrics").metrics()


def states_of(url: str) -> dict[str, str]:
    [instance] = request(url, "GET", "/v1/state").json()["instances"]
    return {model["name"]: model.get("state", "") for model in instance["models"]}


def test_tokens_of_a_router_are_counted_by_model_and_a_scrape_loads_none(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.repo.publish(
        {
            "models/two.yaml": model("two", source="models/tiny.gguf"),
            "services/hub.yaml": service(
                "hub",
                None,
                runtime="llamacpp-router",
                models=[{"name": "tiny"}, {"name": "two"}],
                contextSize=512,
            ),
        }
    )
    words = ("--fleet", fleet.url, "--node", "here", "--sample-interval", "500ms")
    machine.daemon(*words, "--llama-server", str(llama_server()))
    endpoint = machine.wait_ready("hub").endpoint
    url = url_of(machine)
    assert endpoint is not None

    def rate(name: str) -> float | None:
        labels = f'backend="llamacpp-router",model="{name}",node="here"'
        return metrics(url).get(f"flexinfer_tokens_per_second{{{labels}}}")

    wait_for(lambda: rate("tiny") == 0, "a rate of the model that is loaded")
    complete(endpoint, "tiny", tokens=16)

    wait_for(lambda: (rate("tiny") or 0) > 0, "tokens of the model")
    assert rate("two") is None
    loaded = {m["id"]: m["status"]["value"] for m in get(endpoint, "/v1/models")["data"]}
    assert loaded == {"tiny": "loaded", "two": "unloaded"}
    assert states_of(url) == loaded


def test_a_hung_engine_keeps_nobody_from_asking(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    words = ("--fleet", fleet.url, "--node", "here", "--probe-interval", "500ms")
    running = machine.daemon(*words)
    pid = machine.wait_ready("chat").pid
    url = url_of(machine)
    assert pid is not None
    wait_for(lambda: request(url, "GET", "/readyz").status == 200)

    psutil.Process(pid).suspend()
    try:
        wait_for(lambda: "NotResponding" in request(url, "GET", "/readyz").text)
        said = request(url, "GET", "/readyz").json()["notReady"][0]["message"]
        running.wait_said("NotResponding")  # its log is written by the loop, in its next pass
        views = (
            machine.agent("status").out,
            machine.reconcile("-C", fleet.url, "status", "--local").out,
            request(url, "GET", "/v1/state").text,
            running.err,
        )
        began = time.monotonic()
        paths = ("/v1/state", "/metrics", "/healthz") * 30
        answers = [request(url, "GET", path).status for path in paths]
        took_s = time.monotonic() - began
    finally:
        psutil.Process(pid).resume()

    assert "it computes nothing" in said
    assert all("NotResponding" in view and said in view for view in views), views
    assert "fleet-agent restart default/chat" in views[0]
    assert answers == [200] * 90
    assert took_s < 60  # one that waits for the engine takes 2 s
    wait_for(lambda: request(url, "GET", "/readyz").status == 200)


def test_a_wake_after_a_push_is_acted_on_although_the_next_poll_is_far(
    machine: Machine, fleet: Fleet
) -> None:
    fleet.push_service("chat")
    machine.daemon("--fleet", fleet.url, "--node", "here", "--interval", "1h")
    machine.wait_ready("chat")
    url = url_of(machine)
    wait_for(lambda: request(url, "GET", "/readyz").status == 200)
    commit = fleet.push_service("more")

    request(url, "POST", "/v1/wake")

    wait_for(lambda: len(request(url, "GET", "/v1/state").json()["instances"]) == 2)
    state = request(url, "GET", "/v1/state").json()
    assert state["revision"]["fetched"] == commit


def test_an_agent_ends_although_somebody_listens(machine: Machine, fleet: Fleet) -> None:
    fleet.push_service("chat")
    running = machine.daemon("--fleet", fleet.url, "--node", "here")
    before = machine.wait_ready("chat").pid
    url = url_of(machine)

    with events(url):
        code = running.end(signal.SIGTERM)

    assert code == 0
    assert served(machine.state) is None
    after = machine.instance("chat")
    assert after is not None
    assert after.pid == before


def test_a_state_directory_behind_a_link_has_nothing_pending(
    machine: Machine, fleet: Fleet
) -> None:
    link = machine.root / "link"
    link.symlink_to(machine.state)
    machine.state.mkdir(mode=0o700)
    words = ("-C", fleet.url, "--local")

    applied = machine.reconcile("apply", *words, "--state-dir", str(link))
    plan = machine.reconcile("plan", *words, "--state-dir", str(machine.state))

    assert applied.code == 0, applied.err
    assert (plan.code, "nothing to do" in plan.out) == (0, True), plan.out
