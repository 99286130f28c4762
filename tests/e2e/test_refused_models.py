"""A model that is served where it lies is replaced: every program gives the same answer."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.server import served
from reconciler.core.observation import Instance
from tests.support.fleets import model, node, service
from tests.support.gguf_models import tiny_llama
from tests.support.pids import alive
from tests.support.reconciler import Machine, Running
from tests.support.repos import Repo
from tests.support.served_node import request
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e
REFUSED = "ModelCorrupt"


@dataclass
class Served:
    """A machine with a service of a pinned model that is served where it lies."""

    machine: Machine
    url: str
    path: Path

    def start(self) -> Running:
        return self.machine.daemon("--fleet", self.url, "--node", "here")

    def wait_refused(self) -> Instance:
        return self.machine.wait_instance(
            "chat", lambda i: i.pending is not None and i.pending.reason == REFUSED
        )

    def kill_engine(self) -> None:
        found = self.machine.instance("chat")
        assert found is not None
        if found.pid is not None:
            os.kill(found.pid, signal.SIGKILL)
            pid = found.pid
            wait_for(lambda: not alive(pid))

    def answers(self) -> dict[str, int]:
        """The exit code of each program that says whether the service is as declared."""
        commands = {
            "local plan": ("plan", "-C", self.url, "--local"),
            "central plan": ("plan", "-C", self.url),
            "apply": ("apply", "-C", self.url, "--timeout", "2s"),
        }
        codes = {}
        for name, words in commands.items():
            done = self.machine.reconcile(*words)
            assert REFUSED in done.out + done.err, (name, done)
            codes[name] = done.code
        status = self.machine.agent("status")
        assert REFUSED in status.out, status
        return codes | {"status": status.code}

    def readyz(self) -> Any:
        found = served(self.machine.state)
        assert found is not None
        assert found.url is not None
        return request(found.url, "GET", "/readyz").json()


@pytest.fixture
def here(machine: Machine, tmp_path: Path) -> Served:
    path = tiny_llama(tmp_path / "lies.gguf", seed=1)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    repo = Repo.create(tmp_path / "git")
    repo.publish(
        {
            "node.yaml": node("here", hardware={"memory": "16Gi"}),
            "model.yaml": model("lies", source=path.as_uri(), sha256=sha256, inPlace=True),
            "service.yaml": service("chat", "lies", rollout={"drainTimeout": "1s"}),
        },
        "Begin",
    )
    return Served(machine, str(repo.remote), path)


def _parameters(found: Instance) -> int:
    with urllib.request.urlopen(f"{found.endpoint}/v1/models") as answer:
        return int(json.load(answer)["data"][0]["meta"]["n_params"])


def test_refused_bytes_are_reported_alike_and_never_started_again(here: Served) -> None:
    good, other = here.path.read_bytes(), tiny_llama(here.path.with_name("other"), layers=3)
    agent = here.start()
    first = here.machine.wait_ready("chat")
    count = _parameters(first)

    os.replace(other, here.path)
    running = here.wait_refused()
    assert (running.pid, running.ready) == (first.pid, True)
    all_blocked = dict.fromkeys(("local plan", "central plan", "apply", "status"), 3)
    assert here.answers() == all_blocked
    ready = here.readyz()
    assert (ready["ready"], ready["blocked"][0]["reason"]) == (True, REFUSED)

    done = here.machine.agent("restart", "chat", "--timeout", "1s")
    assert (done.code, REFUSED in done.err) == (3, True), done.err
    left = here.machine.instance("chat")
    assert left is not None
    assert (left.pid, left.ready) == (first.pid, True)

    here.kill_engine()
    here.machine.wait_instance("chat", lambda i: i.pid is None and i.reason == REFUSED)
    assert here.answers() == all_blocked
    assert here.readyz()["notReady"][0]["reason"] == REFUSED

    agent.end(signal.SIGKILL)
    done = here.machine.agent("restart", "chat", "--timeout", "1s")
    assert done.code == 3, done.err
    done = here.machine.reconcile("apply", "-C", here.url, "--local", "--timeout", "2s")
    assert (done.code, REFUSED in done.out) == (3, True), done
    here.start()
    here.wait_refused()
    assert here.machine.processes() == []

    here.path.write_bytes(good)
    again = here.machine.wait_ready("chat")
    assert _parameters(again) == count
    assert here.machine.reconcile("plan", "-C", here.url).code == 0


def test_bytes_written_in_place_are_noticed_whatever_their_time(here: Served) -> None:
    agent = here.start()
    first = here.machine.wait_ready("chat")
    before = here.path.stat()
    agent.end()
    other = tiny_llama(here.path.with_name("other"), seed=9).read_bytes()
    assert len(other) == before.st_size
    with here.path.open("r+b") as file:
        file.write(other)
    os.utime(here.path, ns=(before.st_atime_ns, before.st_mtime_ns))

    done = here.machine.agent("restart", "chat", "--timeout", "1s")
    assert (done.code, "not restarted yet" in done.err) == (3, True), done.err
    here.start()
    refused = here.wait_refused()

    assert (refused.pid, refused.ready) == (first.pid, True)


def test_a_chmod_costs_one_read_and_no_restart(here: Served) -> None:
    here.start()
    first = here.machine.wait_ready("chat")
    here.path.chmod(0o440)
    shutil.copy2(here.path, here.path.with_name("copy"))

    here.kill_engine()
    again = here.machine.wait_ready("chat", not_pid=first.pid)

    assert here.machine.reconcile("plan", "-C", here.url, "--local").code == 0
    assert again.pending is None
