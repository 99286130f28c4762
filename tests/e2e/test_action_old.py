"""action.yml, step by step as a runner carries it out, on pull requests to a forge's API."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.forges.comments import marker
from tests.support.fleets import model, node, service
from tests.support.forge_api import TOKEN, Answer, ForgeApi
from tests.support.gguf_models import tiny_llama
from tests.support.repos import Repo, git_env
from tests.support.wait import PATIENCE_S

pytestmark = [pytest.mark.e2e, pytest.mark.together]

REPOSITORY = Path(__file__).parents[2]
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text())
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")  # what `shell: bash` means


@dataclass
class Job:
    """A job with a checkout, in an environment of its own. `variables` are what the runner sets."""

    folder: Path
    checkout: Path
    variables: dict[str, str] = field(default_factory=dict)
    log: str = ""

    def __post_init__(self) -> None:
        for name in ("OUTPUT", "STEP_SUMMARY"):
            file = self.folder / name.lower()
            file.touch()
            self.variables[f"GITHUB_{name}"] = str(file)
        self.variables |= {
            "GITHUB_ACTION_PATH": str(REPOSITORY),
            "GITHUB_ACTIONS": "true",
            "RUNNER_TEMP": str(self.folder),
            "HOME": str(self.folder),
        }

    def run(self, inputs: Mapping[str, str], *, without: str = "") -> int:
        """Every step until one fails; its exit code."""
        values = {
            f"inputs.{name}": row.get("default", "") for name, row in ACTION["inputs"].items()
        }
        values |= {f"inputs.{name}": value for name, value in inputs.items()}
        for step in ACTION["runs"]["steps"]:
            if step["name"] == without:
                continue
            if code := self._step(step, values):
                return code
            if "id" in step:
                lines = Path(self.variables["GITHUB_OUTPUT"]).read_text().splitlines()
                found = (line.partition("=") for line in lines)
                values |= {f"steps.{step['id']}.outputs.{k}": v for k, _, v in found}
        return 0

    def _step(self, step: Mapping[str, Any], values: Mapping[str, str]) -> int:
        assert step["shell"] == "bash"
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        stated = {name: _evaluated(text, values) for name, text in step.get("env", {}).items()}
        kept = {name: text for name, text in git_env().items() if not _is_a_jobs(name)}
        done = subprocess.run(
            [*SHELL, str(script)],
            cwd=self.checkout,
            env={**kept, **self.variables, **stated},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        self.log += done.stdout
        return done.returncode

    @property
    def summary(self) -> str:
        return Path(self.variables["GITHUB_STEP_SUMMARY"]).read_text()


def _is_a_jobs(name: str) -> bool:
    return name.startswith(("GITHUB_", "RUNNER_", "CI_", "FLEET_", "PYTHON"))


def _evaluated(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda m: values.get(m[1], ""), text)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first step installs. What it depends on is here already."""
    folder = tmp_path_factory.mktemp("action")
    here = {
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # "no" to isolation
        "PIP_NO_INDEX": "1",
    }
    job = Job(folder, folder, here)
    only = [step for step in ACTION["runs"]["steps"] if step["name"] == "Install"]

    code = job._step(only[0], {"inputs.python": sys.executable})

    assert code == 0, job.log
    return folder / "fleet-reconciler"


@dataclass
class PullRequest:
    """One for the branch main of a fleet with two services that fit."""

    repo: Repo
    folder: Path
    installed: Path
    forge: ForgeApi
    pushes: int = 0

    def push(self, **inputs: str) -> tuple[int, Job]:
        """Commit what was written, and run the action on it."""
        self.repo.git("add", "--all")
        self.repo.git("commit", "-q", "--allow-empty", "-m", "Change it")
        self.pushes += 1
        folder = self.folder / f"push-{self.pushes}"
        folder.mkdir()
        job = Job(
            folder,
            self.repo.work,
            {
                "GITHUB_SERVER_URL": self.forge.host,
                "GITHUB_API_URL": self.forge.api,
                "GITHUB_REPOSITORY": "me/fleet",
                "GITHUB_REF": "refs/pull/7/merge",
                "GITHUB_BASE_REF": "main",
                "PYTHONPATH": sysconfig.get_path("purelib"),
            },
        )
        (folder / "fleet-reconciler").symlink_to(self.installed)
        return job.run({"token": TOKEN, **inputs}, without="Install"), job


FLEET = {
    "box.yaml": node("box", hardware={"memory": "8Gi"}, memory={"budget": "700Mi"}),
    "tiny.yaml": model("tiny", source="tiny.gguf"),
    "chat.yaml": service("chat", "tiny", contextSize=2048, endpoint={"port": 8088},
                         placement={"nodes": ["box"]}),
    "draft.yaml": service("draft", "tiny", contextSize=2048, endpoint={"port": 8089},
                          placement={"nodes": ["box"]}),
}  # fmt: skip


@pytest.fixture
def pull(installed: Path, tmp_path: Path) -> Iterator[PullRequest]:
    repo = Repo.create(tmp_path)
    tiny_llama(repo.work / "tiny.gguf")
    repo.publish(FLEET)
    repo.git("push", "-q", "origin", "HEAD:main")
    repo.git("fetch", "-q")
    repo.git("checkout", "-q", "-b", "change")
    with ForgeApi("github", me=None) as forge:
        yield PullRequest(repo, tmp_path, installed, forge)


@dataclass(frozen=True)
class Row:
    """What a pull request changes in a file, and what is said of it: `rule` on its line, `said` in
    the comment."""

    file: str
    before: str
    after: str
    said: tuple[str, ...]
    rule: str = ""


ROWS = {
    "a misspelt field": Row("chat.yaml", "contextSize", "contextSise", ("contextSize",), "Schema"),
    "no YAML": Row("chat.yaml", "spec:", "spec: [", ("not valid: 1 error",), "YamlSyntax"),
    "a name that is not there": Row(
        "chat.yaml", '"tiny"', '"tinny"', ('did you mean "tiny"',), "DanglingReference"
    ),
    "a model that is deleted": Row(
        "tiny.yaml", "kind: Model", "kind: FleetNode", ("no Model named",), "Schema"
    ),
    "it does not fit": Row(
        "chat.yaml", "2048", "4000000", ("- `default/chat`", "MemoryFits: ", "700"), "MemoryFits"
    ),
    "two services, one port": Row("chat.yaml", "8088", "8089", ("PortConflict: ",), "PortConflict"),
    "a node that cannot do it": Row(
        "chat.yaml", "contextSize: 2048", 'runtime: "vllm"', ("#### Blocked",), "FormatMismatch"
    ),
    "an argument that is ours": Row(
        "chat.yaml", "contextSize: 2048", 'extraArgs: ["--port=1"]', ("not valid",), "ForbiddenFlag"
    ),
    "a change": Row(
        "chat.yaml",
        "2048",
        "4096",
        ("**1 to replace, 1 unchanged.**", "#### What restarts", "`contextSize` 2048 -&gt; 4096"),
    ),
    "a removal": Row(
        "draft.yaml", "spec:", "spec:\n  suspend: true", ("#### What stops\n\n- `default/draft`",)
    ),
    "nothing": Row("README.md", "", "A fleet.", ("nothing to do, 2 unchanged",)),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_pull_request_is_told_what_it_would_do(name: str, pull: PullRequest) -> None:
    row = ROWS[name]
    text = FLEET.get(row.file, "")
    assert row.before in text
    pull.repo.write(row.file, text.replace(row.before, row.after) or row.after)

    code, job = pull.push()

    assert code == (1 if row.rule else 0), job.log
    (comment,) = pull.forge.bodies
    assert comment == f"{marker('fleet')}\n{job.summary}"
    for said in row.said:
        assert said in comment
    annotated = re.findall(r"^::error file=([^,]+),line=\d+,col=\d+,title=(\w+)::", job.log, re.M)
    assert ((row.file, row.rule) in annotated) if row.rule else not annotated
    if f"`{row.file}:" in comment:
        assert re.search(rf"\({pull.forge.host}/me/fleet/blob/\w+/{row.file}#L\d+\)", comment)
    assert TOKEN not in job.log + comment


def test_each_push_writes_the_same_comment_anew(pull: PullRequest) -> None:
    pull.forge.add("ada", "What does it cost?")
    for size in ("4096", "8192"):
        pull.repo.write("chat.yaml", FLEET["chat.yaml"].replace("2048", size))
        pull.push()

    question, comment = pull.forge.bodies
    assert question == "What does it cost?"
    assert "2048 -&gt; 8192" in comment


@pytest.mark.parametrize(
    "answer",
    [
        Answer(403, message="Resource not accessible by integration"),
        Answer(500),
        Answer(429, {"Retry-After": "3600"}),
        Answer(302, {"Location": "https://elsewhere.test/"}),
    ],
    ids=["a fork's token", "500", "a rate limit", "a redirect"],
)
def test_where_no_comment_can_be_written_the_summary_has_it_and_the_code_stays(
    answer: Answer, pull: PullRequest
) -> None:
    pull.forge.instead["POST"] = [answer]
    pull.repo.write("chat.yaml", FLEET["chat.yaml"].replace("8088", "8089"))

    code, job = pull.push()

    assert code == 1
    assert "PortConflict" in job.summary
    assert pull.forge.comments == []
    assert "::notice title=Fleet plan::No comment was written" in job.log
    assert f"answers {answer.status}" in job.log
    assert TOKEN not in job.log + job.summary


def test_a_folder_of_a_repository_has_a_comment_of_its_own(pull: PullRequest) -> None:
    for name, text in FLEET.items():
        pull.repo.write(f"home/{name}", text.replace("tiny.gguf", "home/tiny.gguf"))
    tiny_llama(pull.repo.work / "home/tiny.gguf")
    pull.repo.commit(push=False)
    pull.repo.git("push", "-q", "origin", "HEAD:main")
    pull.repo.write("home/chat.yaml", FLEET["chat.yaml"].replace("2048", "4096"))

    code, job = pull.push(path="home", name="home")

    assert code == 0, job.log
    (comment,) = pull.forge.bodies
    assert comment.startswith(marker("home"))
    assert "**1 to replace, 1 unchanged.**" in comment


def test_a_base_that_was_not_fetched_is_said(pull: PullRequest) -> None:
    code, job = pull.push(base="origin/nowhere")

    assert code == 1
    assert "origin/nowhere" in job.log
    assert "the log of the job says why" in job.summary


def test_without_a_token_only_the_summary_has_it(pull: PullRequest) -> None:
    code, job = pull.push(token="")

    assert code == 0, job.log
    assert "nothing to do" in job.summary
    assert pull.forge.requests == []
