"""`reconcile logs`: one command, wherever a service runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from agent.state.directory import StateDir
from reconciler.api.meta import service_ref
from reconciler.cli import main
from reconciler.console import logview
from reconciler.console.logview import LogSource
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.objects import SERVICE_LABEL
from reconciler.kube.render.labels import BENCHMARK, COMPONENT_LABEL
from reconciler.kube.running.pod_log import EngineLogs
from tests.support.agents import FakeAgent, answers, sends
from tests.support.few_objects import FewObjects
from tests.support.fleets import document, model, node, service, write_fleet


def test_a_log_comes_from_where_the_service_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    state = StateDir.open(tmp_path / "state")
    log = state.log_file(service_ref("here"))
    log.parent.mkdir()
    log.write_text("mine\n\x1b[2J\n")
    asked: list[str] = []

    def hands_out(agent: FakeAgent, request: BaseHTTPRequestHandler) -> None:
        if not request.path.startswith("/v1/logs"):
            return answers(agent, request)
        asked.append(request.path)
        if "away" in request.path:
            return sends(b"", 500)(agent, request)
        return sends(b"one\ntwo\n")(agent, request)

    with FakeAgent("gpu") as agent:
        agent.behaves = hands_out
        files = {
            "mac.yaml": node("mac"),
            "gpu.yaml": node("gpu", agent={"url": agent.url}),
            "m.yaml": model(),
            "here.yaml": service("here", placement={"nodes": ["mac"]}),
            "there.yaml": service("there", placement={"nodes": ["gpu"]}),
            "away.yaml": service("away", placement={"nodes": ["gpu"]}),
        }
        fixed = ("-C", str(write_fleet(tmp_path / "fleet", files)), "--state-dir", str(state.root))

        codes = [
            main(["logs", "here", "--local=mac", *fixed]),
            main(["logs", "there", "-n", "5", "--previous", *fixed]),
            main(["logs", "her", *fixed]),
            main(["logs", "there", "--since", "5m", *fixed]),
            main(["logs", "away", *fixed]),
            main(["logs", "away", "-f", "--allow-unreachable", *fixed]),
            main(["logs", "here", "--local=mac", "--cluster", "prod", *fixed]),
        ]

    out, err = capsys.readouterr()
    assert codes == [0, 0, 64, 64, 3, 0, 64]
    assert out == "mine\n\\x1b[2J\none\ntwo\n"
    assert asked[:1] == ["/v1/logs?service=default%2Fthere&lines=5&previous=true"]
    assert 'no such service (did you mean "default/here"?)' in err
    assert "--since: default/there runs on node gpu" in err
    assert "it answers 500" in err
    assert "--local is about this machine alone" in err


def pod(name: str, container: str | None = None, **labels: str) -> dict[str, object]:
    """A pod of the service, whose engine's container may have begun."""
    engine = {"name": "engine"} | ({"containerID": container} if container else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {SERVICE_LABEL: "chat", **labels}},
        "status": {"containerStatuses": [{"name": "agent", "containerID": "x"}, engine]},
    }


def test_of_pods_the_api_server_hands_on_the_engines_log_and_why_there_is_none() -> None:
    pods = [pod("chat-a"), pod("chat-b"), pod("chat-m", **{COMPONENT_LABEL: BENCHMARK})]
    with FewObjects(pods) as server:
        path = "/api/v1/namespaces/default/pods/chat-a/log?container=engine&tailLines=5"
        server.texts[path] = b"one\ntwo"

        logs = EngineLogs(server.api, service_ref("chat"), {"tailLines": "5"}).logs()
        server.status = 400
        server.body = {"kind": "Status", "message": "container engine is waiting to start"}

        ended = threading.Event()
        lines = [line for part in logs["chat-a"].parts(ended) for line in part]
        with pytest.raises(ClusterError, match="waiting to start"):
            list(logs["chat-b"].parts(ended))

    assert (list(logs), lines) == (["chat-a", "chat-b"], [b"one", b"two"])


def test_who_follows_pods_follows_those_that_begin_later_from_their_first_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logview, "_LATER_S", 0.01)
    of = "/api/v1/namespaces/default/pods"
    with FewObjects([pod("chat-a", "1"), pod("chat-b")]) as server:
        server.texts = {
            f"{of}/chat-a/log?container=engine&tailLines=5": b"old",
            f"{of}/chat-a/log?container=engine": b"restarted",
            f"{of}/chat-b/log?container=engine": b"new",
        }
        pods = EngineLogs(server.api, service_ref("chat"), {"tailLines": "5"})
        lines: list[str] = []
        silent = iter((503,))  # once, and asked again

        def later() -> Mapping[str, LogSource]:
            lines.extend(capsys.readouterr().out.splitlines())
            if lines:
                server.status = next(silent, 200)
                server.objects = [pod("chat-a", "2"), pod("chat-b", "3")]
            if len(lines) == 3:
                signal.raise_signal(signal.SIGINT)
            return pods.begun()

        code = logview.show(pods.begun(), later=later)

    assert code == 130
    assert (lines[0], sorted(lines[1:])) == ("old", ["chat-a  restarted", "chat-b  new"])


@pytest.mark.parametrize("command", ["logs chat", "ask chat hi"])
def test_a_cluster_that_no_node_is_of_is_an_error_that_names_those_there_are(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "fleet.yaml": document("Fleet", "home", None),
        "pool.yaml": document("FleetNode", "pool", {"kubernetes": {"cluster": "prod"}}),
        "m.yaml": model(),
        "chat.yaml": service("chat"),
    }
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{clusters: [{name: t, cluster: {server: 'http://127.0.0.1:9'}}], current-context: t,"
        " contexts: [{name: t, context: {cluster: t, user: t}}], users: [{name: t}]}"
    )
    fixed = ("-C", str(write_fleet(tmp_path / "fleet", files)), "--kubeconfig", str(config))

    code = main([*command.split(), "--cluster", "prodd=t", *fixed])

    assert code == 64
    assert "--cluster prodd: no FleetNode is of that cluster; there is prod" in (
        capsys.readouterr().err
    )
