"""`reconcile logs`: one command, wherever a service runs."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from agent.state.directory import StateDir
from reconciler.api.meta import service_ref
from reconciler.cli import main
from reconciler.kube.client.errors import ClusterError
from reconciler.kube.objects import SERVICE_LABEL
from reconciler.kube.render.labels import BENCHMARK, COMPONENT_LABEL
from reconciler.kube.running.pod_log import pod_logs
from tests.support.agents import FakeAgent, answers, sends
from tests.support.few_objects import FewObjects
from tests.support.fleets import model, node, service, write_fleet


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
        return sends(b"one\ntwo\n")(agent, request)

    with FakeAgent("gpu") as agent:
        agent.behaves = hands_out
        files = {
            "mac.yaml": node("mac"),
            "gpu.yaml": node("gpu", agent={"url": agent.url}),
            "m.yaml": model(),
            "here.yaml": service("here", placement={"nodes": ["mac"]}),
            "there.yaml": service("there", placement={"nodes": ["gpu"]}),
        }
        fixed = ("-C", str(write_fleet(tmp_path / "fleet", files)), "--state-dir", str(state.root))

        codes = [
            main(["logs", "here", "--local=mac", *fixed]),
            main(["logs", "there", "-n", "5", "--previous", *fixed]),
            main(["logs", "her", *fixed]),
            main(["logs", "there", "--since", "5m", *fixed]),
        ]

    out, err = capsys.readouterr()
    assert codes == [0, 0, 64, 64]
    assert out == "mine\n\\x1b[2J\none\ntwo\n"
    assert asked == ["/v1/logs?service=default%2Fthere&lines=5&previous=true"]
    assert 'no such service (did you mean "default/here"?)' in err
    assert "--since: default/there runs on node gpu" in err


def test_of_pods_the_api_server_hands_on_the_engines_log_and_why_there_is_none() -> None:
    labels = {SERVICE_LABEL: "chat"}
    names = {"chat-a": labels, "chat-b": labels, "chat-m": labels | {COMPONENT_LABEL: BENCHMARK}}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}}
        for name, labels in names.items()
    ]
    with FewObjects(pods) as server:
        path = "/api/v1/namespaces/default/pods/chat-a/log?container=engine&tailLines=5"
        server.texts[path] = b"one\ntwo"

        a, b = pod_logs(server.api, service_ref("chat"), {"tailLines": "5"})
        server.status = 400
        server.body = {"kind": "Status", "message": "container engine is waiting to start"}

        lines = [line for part in a[1].parts(threading.Event()) for line in part]
        with pytest.raises(ClusterError, match="waiting to start"):
            list(b[1].parts(threading.Event()))

    assert (a[0], b[0], lines) == ("chat-a", "chat-b", [b"one", b"two"])
