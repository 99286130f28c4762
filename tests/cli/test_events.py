"""`reconcile events`: what agents tell, sorted and in words."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC
from pathlib import Path

import pytest

from reconciler.cli import main
from reconciler.report.agent_events import event_line
from tests.support.agents import FakeAgent, sends
from tests.support.fleets import node, write_fleet
from tests.support.served_node import ServedNode
from tests.support.wait import PATIENCE_S, wait_for


def event(kind: str, **data: object) -> bytes:
    return f"id: a-1\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def test_what_nodes_kept_is_printed_by_its_time_and_who_is_silent_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with FakeAgent("mac") as mac, FakeAgent("gpu-1") as gpu, FakeAgent("old") as old:
        late = event("notice", at=30.0, service="default/a", message="\x1b[2J ready")
        mac.behaves = sends(b": hello\n\ndata: no JSON\n\ndata: []\n\n" + late)
        gpu.behaves = sends(event("source", at=20.0, state="back") + event("source", at=40.0))
        old.behaves = sends(b"", 500)
        agents = {"mac": mac, "gpu-1": gpu, "old": old}
        files = {f"{name}.yaml": node(name, agent={"url": a.url}) for name, a in agents.items()}
        fixed = ("-C", str(write_fleet(tmp_path / "fleet", files)))

        codes = [main(["events", *fixed]), main(["events", *fixed, "-o", "json"])]

    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert codes == [3, 3]
    assert [line.split()[0] for line in lines[:3]] == ["gpu-1", "mac", "gpu-1"]
    assert lines[1].endswith(r"notice    default/a: \x1b[2J ready")
    assert json.loads(lines[3]) == {"node": "gpu-1", "event": "source", "at": 20.0, "state": "back"}
    assert "it answers 500" in err


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("outcome", {"action": "create", "service": "a/b", "result": "done", "reason": "New"},
         "outcome   a/b: create done (New)"),
        ("revision", {"state": "refused", "revision": "0123456789abcdef", "problems": ["x.yaml:1"]},
         "revision  refused 0123456789ab x.yaml:1"),
        ("plan", {"summary": "1 to create", "revision": None}, "plan      1 to create"),
        ("plan", {"summary": {"create": 2, "delete": 0, "unchanged": 1, "later": [None]},
                  "revision": "0123456789abcdef"},
         "plan      2 to create, 1 unchanged  0123456789ab"),
        ("plan", {"summary": {"create": 0}}, "plan      nothing to do"),
        ("plan", {}, "plan"),
        ("later", {"a": 1, "b": {"c": None}}, 'later     a 1, b {"c": null}'),
        ("notice", {"at": "soon"}, None),
        ("notice", {"at": 1e300}, None),
    ],
)  # fmt: skip
def test_an_event_is_a_line_whatever_an_agent_says(
    kind: str, data: dict[str, object], text: str | None
) -> None:
    dated = event_line(kind, {"at": 0.0, **data}, UTC)

    assert dated.startswith("01-01 00:00:00  " + text if text else "--------------  notice")


def test_a_followed_node_tells_what_was_and_what_comes_until_ctrl_c(tmp_path: Path) -> None:
    with ServedNode.open(tmp_path, {}) as served:
        wait_for(lambda: served.board.feed.last > 0, "the first event")
        fleet = tmp_path / "seen"
        write_fleet(fleet, {"mac.yaml": node("mac", agent={"url": served.url})})
        out = tmp_path / "out"
        program = Path(sys.executable).parent / "reconcile"
        with out.open("wb") as stdout:
            command = subprocess.Popen((program, "events", "-f", "-C", fleet), stdout=stdout)
        try:
            wait_for(lambda: "followed" in out.read_text(), "what was")
            served.board.feed.publish("notice", {"service": "default/x", "message": "comes"})
            wait_for(lambda: "default/x: comes" in out.read_text(), "what comes")
            command.send_signal(signal.SIGINT)
            code = command.wait(timeout=PATIENCE_S)
        finally:
            command.kill()

    assert code == 130
