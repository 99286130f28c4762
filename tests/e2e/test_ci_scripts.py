"""The scripts that CI's jobs run, as far as a machine without a kubelet and without macOS can."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.runtimes.runtime import NodeFacts
from tests.support.cache import cache_folder
from tests.support.cluster import Cluster
from tests.support.engines import Server, render, service
from tests.support.gguf_models import tiny_llama
from tests.support.llama_server import llama_server
from tests.support.pods import get, running, wait_readyz
from tests.support.ports import own_port
from tests.support.wait import PATIENCE_S

pytestmark = pytest.mark.e2e

REPOSITORY = Path(__file__).parent.parent.parent
SCRIPTS = REPOSITORY / "tests/ci"
KIND = (SCRIPTS / "kind.sh").read_text()
needs_actionlint = pytest.mark.skipif(
    not (shutil.which("go") or [*cache_folder().glob("actionlint-*/actionlint")]),
    reason="actionlint is built with Go, which this machine lacks",
)


def run(script: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """To its end, with this very environment of Python."""
    return subprocess.run(
        (SCRIPTS / script, *words),
        cwd=REPOSITORY,
        env={**os.environ, "VENV": sys.prefix, "WORKERS": "1", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.cluster
def test_the_fleet_of_the_kind_job_comes_changes_and_goes_again(
    tmp_path: Path, cluster: Cluster
) -> None:
    cluster.remove_system()

    done = run(
        *("kind.sh", "--without-kubelet"), KUBECONFIG=str(cluster.kubeconfig), LOGS=str(tmp_path)
    )

    assert done.returncode == 0, done.stdout
    for what in ("our image, built, loaded and run", "probes, preStop", "requests through"):
        assert re.search(rf"^not here: .*{what}", done.stdout, re.MULTILINE)
    assert "everything that it can show here holds" in done.stdout
    left = cluster.kubectl("get", "nodes,persistentvolumes,crds", "-A", "-o", "name")
    assert left == ""


@pytest.mark.cluster
def test_a_step_of_the_kind_job_that_fails_is_named_with_what_was_there(
    tmp_path: Path, cluster: Cluster
) -> None:
    cluster.remove_system()
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "fleet-reconciler"},
        }
    )  # somebody else's: the installation leaves it alone

    try:
        done = run(
            *("kind.sh", "--without-kubelet"),
            KUBECONFIG=str(cluster.kubeconfig),
            LOGS=str(tmp_path),
        )
    finally:
        cluster.kubectl("delete", "clusterrole/fleet-reconciler", "persistentvolume/ci-volume")

    assert done.returncode == 1, done.stdout
    assert "kind.sh: failed: install" in done.stdout
    assert "ci-node" in (tmp_path / "cluster-at-the-end.txt").read_text()


def test_the_macos_job_says_what_another_machine_cannot_show_and_runs_the_rest(
    tmp_path: Path,
) -> None:
    done = run("macos.sh", "tests/agent/test_pressure.py", LOGS=str(tmp_path))

    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE)
    if sys.platform != "darwin":
        assert re.search(r"^not here: launchd, kqueue, .*needs macOS", done.stdout, re.MULTILINE)
    assert (tmp_path / "macos.log").read_text() == done.stdout


def test_a_test_of_the_macos_job_that_fails_fails_it_and_leaves_its_files(tmp_path: Path) -> None:
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text("def test_it(tmp_path):\n (tmp_path / 'kept').write_text('x'); assert 0\n")

    done = run("macos.sh", str(wrong), "-c", str(REPOSITORY / "pyproject.toml"),
               LOGS=str(tmp_path / "logs"))  # fmt: skip

    assert done.returncode == 1, done.stdout
    assert "macos.sh: failed: tests" in done.stdout
    (kept,) = (tmp_path / "logs").glob("*.tgz")
    listed = subprocess.run(("tar", "-tzf", kept), capture_output=True, text=True, check=True)
    assert re.search(r"/kept$", listed.stdout, re.MULTILINE)
    assert re.search(r"/failures/1\.txt$", listed.stdout, re.MULTILINE)


def test_the_soak_plays_its_rounds_and_refuses_to_take_the_same_examples_in_each(
    tmp_path: Path,
) -> None:
    variables = {"LOGS": str(tmp_path), "ROUNDS": "2", "T": "tests/agent/test_pressure.py"}

    played = run("soak.sh", CI="", **variables)
    refused = run("soak.sh", CI="true", **variables)

    assert played.returncode == 0, played.stdout
    seeds = set(re.findall(r"^ +[12] .* seed (\d+) +passed$", played.stdout, re.MULTILINE))
    assert len(seeds) == 2
    assert refused.returncode == 1
    assert "every round would take the same examples" in refused.stdout


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Server]:
    """A real llama-server with a small model, as a pod has it."""
    facts = NodeFacts(
        binary=(str(llama_server()),),
        port=str(own_port()),
        threads="1",
        directory=str(tmp_path / "engine"),
        model_paths={"tiny": str(tiny_llama(tmp_path / "tiny.gguf"))},
    )
    made = Server(
        render(service(contextSize=8192, parallelSlots=1), facts),
        int(facts.port),
        tmp_path / "engine",
    )
    with made:
        yield made.wait_ready()


def ask(engine: Server, *words: str) -> subprocess.Popen[str]:
    """The client of the kind job, as its pod has it."""
    return subprocess.Popen(
        (sys.executable, "-I", SCRIPTS / "ask.py", f"http://127.0.0.1:{engine.port}", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_begun(client: subprocess.Popen[str]) -> None:
    """Until it prints the line that kind.sh waits for."""
    (text,) = re.findall(r"kubectl logs long \| grep -q '(.+)'", KIND)
    assert client.stdout
    assert any(text in line for line in iter(client.stdout.readline, "")), "it never began"


def test_the_client_of_the_kind_job_gets_its_short_answer(engine: Server) -> None:
    with ask(engine, "tiny") as client:
        said, _ = client.communicate(timeout=PATIENCE_S)

    assert (client.returncode, "16 of 16 tokens" in said) == (0, True), said


def test_the_long_answer_of_the_kind_job_is_one_that_a_drain_waits_for(
    tmp_path: Path, engine: Server
) -> None:
    own, log = own_port(), tmp_path / "companion.log"
    words = ("--runtime", "llama-server", "--port", str(engine.port), "--name", "tiny")
    looked_for = re.findall(r"grep -q '(.+)' \"\$LOGS/companion", KIND)

    with running(log, "companion", *words, "--listen", f"127.0.0.1:{own}", "--settle", "0.2"):
        wait_readyz(own, 200)
        with ask(engine, "tiny", "--seconds", "2", "--most", "3000") as client:
            wait_begun(client)
            drain = threading.Thread(target=get, args=(own, "/drain"))
            drain.start()
            said, _ = client.communicate(timeout=PATIENCE_S)
        drain.join(PATIENCE_S)

    assert client.returncode == 0, said
    assert "ended by length" in said
    assert len(looked_for) == 3
    assert [text for text in looked_for if not re.search(text, log.read_text(), re.MULTILINE)] == []


def test_an_answer_that_is_cut_is_a_failure_of_the_client(engine: Server) -> None:
    with ask(engine, "tiny", "--seconds", "30", "--most", "7000") as client:
        wait_begun(client)
        engine.process.kill()
        said, _ = client.communicate(timeout=PATIENCE_S)

    assert client.returncode == 1, said
    assert "ended by None" in said


@needs_actionlint
def test_nothing_is_wrong_with_our_workflows() -> None:
    done = run("workflows.sh")

    assert done.returncode == 0, done.stdout


@needs_actionlint
def test_nothing_is_wrong_with_the_workflow_that_users_are_given(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/github-actions.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "fleet.yml").write_text(text)

    done = run("workflows.sh", str(tmp_path / "fleet.yml"))

    assert done.returncode == 0, done.stdout


@needs_actionlint
@pytest.mark.parametrize(
    ("correct", "wrong", "found"),
    [
        (r"(actions/checkout)@\S+", r"\1@v7", "unpinned-uses"),
        (r"with:\n +persist-credentials: false", "", "artipacked"),
        (r"runs-on: ubuntu-latest", "runs-on: ubuntu-latst", "ubuntu-latst"),
        (r"- run: \.ci/run", "- run: cat $UNQUOTED", "SC2086"),
    ],
)
def test_what_is_wrong_with_a_workflow_is_found(
    tmp_path: Path, correct: str, wrong: str, found: str
) -> None:
    text = (REPOSITORY / ".github/workflows/ci.yml").read_text()
    (tmp_path / "ci.yml").write_text(re.sub(correct, wrong, text))

    done = run("workflows.sh", str(tmp_path / "ci.yml"))

    assert done.returncode != 0
    assert found in done.stdout
