"""`reconcile open`: whose page, at which address, in which browser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.cli import main
from tests.support.fleets import document, model, node, service, write_fleet
from tests.support.served_node import ServedNode, request
from tests.support.wait import PATIENCE_S, wait_for

PROGRAM = Path(sys.executable).parent / "reconcile"
_FORWARDS = """#!/bin/sh
echo "$@" >> {folder}/asked
echo "Forwarding from 127.0.0.1:18080 -> 8080"
exec sleep 600
"""


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """`gpu` has an address, `old` states none, and `l4` is a pool of a cluster."""
    pool = {"kubernetes": {"cluster": "prod", "nodeSelector": {"gpu": "l4"}}}
    files = {
        "gpu.yaml": node("gpu", agent={"url": "https://gpu.test:9090", "certSha256": "0" * 64}),
        "old.yaml": node("old"),
        "l4.yaml": document("FleetNode", "l4", pool),
        "model.yaml": model("gemma"),
        "chat.yaml": service("chat", "gemma", placement={"nodes": ["gpu"]}),
    }
    return write_fleet(tmp_path / "fleet", files)


@pytest.mark.parametrize(
    ("words", "address", "said"),
    [
        (("gpu",), "https://gpu.test:9090/", "0" * 64),
        (("chat",), "https://gpu.test:9090/services/default/chat", ""),
        (("old",), None, "states no spec.agent.url"),
        (("chta",), None, 'did you mean "default/chat"?'),
        ((), None, "`fleet-agent run` does"),
        (("--cluster", "a", "--cluster", "b"), None, "of a, b"),
    ],
    ids=["node", "service", "no address", "nobody", "no agent here", "two clusters"],
)
def test_it_prints_the_address_that_it_opens(
    tmp_path: Path,
    fleet: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    address: str | None,
    said: str,
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)

    main(["open", "-C", str(fleet), "--state-dir", str(tmp_path / "state"), *words])

    printed = capsys.readouterr()
    assert printed.out == (f"{address}\n" if address else "")
    assert said in " ".join(printed.err.split())


def test_the_page_of_this_machine_is_opened_in_its_browser(tmp_path: Path) -> None:
    browser = program(tmp_path, "browser", f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    with ServedNode.open(tmp_path, {}) as here:
        url = here.url

        done = run("open", "--state-dir", str(here.state), BROWSER=str(browser))

        assert (tmp_path / "opened").read_text() == done == f"{url}/\n"
        assert request(url, "GET", "/").status == 200


def test_a_clusters_page_is_forwarded_until_it_is_ended(tmp_path: Path, fleet: Path) -> None:
    program(tmp_path, "kubectl", _FORWARDS.format(folder=tmp_path))
    for words, context in ((("--cluster", "prod=eu"), "eu"), (("l4",), "prod")):
        (tmp_path / "asked").unlink(missing_ok=True)
        opened = subprocess.Popen(
            [PROGRAM, "open", "-C", fleet, *words],
            env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | NO_DISPLAY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: (tmp_path / "asked").exists(), "kubectl")
        assert opened.stdout is not None
        assert opened.stdout.readline() == "http://127.0.0.1:18080/\n"
        opened.send_signal(signal.SIGINT)
        _, said = opened.communicate(timeout=PATIENCE_S)

        assert opened.returncode == 130, said
        asked = (tmp_path / "asked").read_text()
        assert f"--context {context} --namespace fleet-reconciler service/fleet-reconciler" in asked


NO_DISPLAY: Mapping[str, str] = dict.fromkeys(("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"), "")


def run(*words: str, **env: str) -> str:
    done = subprocess.run(
        [PROGRAM, *words],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return done.stdout
