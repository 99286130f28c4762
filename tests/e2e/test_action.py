"""action.yml, step by step as a runner carries it out, on pull requests to a forge's API."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
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
    values: dict[str, str] = field(default_factory=dict)  # of inputs, and of steps' outputs

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

    def run(self, inputs: Mapping[str, str]) -> int:
        """Every step but the first until one fails; its exit code."""
        self.values = {
            f"inputs.{name}": row.get("default", "") for name, row in ACTION["inputs"].items()
        }
        self.values |= {f"inputs.{name}": value for name, value in inputs.items()}
        names = [step["name"] for step in ACTION["runs"]["steps"] if step["name"] != "Install"]
        return next((code for name in names if (code := self.step(name))), 0)

    def step(self, name: str) -> int:
        (step,) = (step for step in ACTION["runs"]["steps"] if step["name"] == name)
        assert step["shell"] == "bash"
        stated = {key: _evaluated(text, self.values) for key, text in step.get("env", {}).items()}
        code = self.bash(step["run"], stated)
        lines = Path(self.variables["GITHUB_OUTPUT"]).read_text().splitlines()
        found = (line.partition("=") for line in lines if "id" in step)
        self.values |= {f"steps.{step['id']}.outputs.{k}": v for k, _, v in found}
        return code

    def bash(self, text: str, stated: Mapping[str, str], shell: Sequence[str] = SHELL) -> int:
        script = self.folder / "step.sh"
        script.write_text(text)
        kept = {name: value for name, value in git_env().items() if not _is_a_jobs(name)}
        done = subprocess.run(
            [*shell, str(script)],
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


SITE_PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
PLANTED = (
    "planted"  # each planted file that is run or read writes a file into the folder of this name
)
_LEAVES_A_MARK = """\
import os, sys
with open({path!r}, "a") as file:
    print(sys.argv, {{k: v for k, v in os.environ.items() if "TOKEN" in k}}, file=file)
"""
_MODULES = (
    "venv.py", "logging.py", "json.py", "argparse.py", "pip.py", "ensurepip.py",
    "sitecustomize.py", "usercustomize.py", "reconciler/__init__.py", "reconciler/__main__.py",
)  # fmt: skip


def plant(checkout: Path, marks: Path) -> dict[str, str]:
    """Write a file for each way to run code of a checkout. Return the variables of a job that makes
    each of them easier."""
    marks.mkdir()
    for path in (*_MODULES, *(f"{SITE_PACKAGES}/{name}" for name in _MODULES)):
        file = checkout / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_LEAVES_A_MARK.format(path=str(marks / path.replace("/", "-"))))
    for folder in (checkout, checkout / SITE_PACKAGES):
        mark = str(marks / f"{folder.name}.pth")
        (folder / "planted.pth").write_text(f"import pathlib; pathlib.Path({mark!r}).touch()\n")
    for name in ("pip.conf", "pip/pip.conf", "setup.cfg", "pydistutils.cfg"):
        file = checkout / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"[global]\nlog = {marks / name.replace('/', '-')}\nindex-url = {marks}\n")
    return {
        "PYTHONPATH": str(checkout),
        "PYTHONUSERBASE": str(checkout),
        "PYTHONSTARTUP": "sitecustomize.py",
        "PIP_CONFIG_FILE": "pip.conf",
        "PIP_TARGET": str(marks),
    }


def prepare(environment: Path) -> None:
    """Let an environment that is made in this folder have the packages of this test's own."""
    site = environment / SITE_PACKAGES
    site.mkdir(parents=True)
    (site / "here.pth").write_text(sysconfig.get_path("purelib") + "\n")
    options = "no-index = yes\nno-deps = yes\nno-build-isolation = no\n"  # "no" to isolation
    (environment / "pip.conf").write_text(f"[global]\n{options}")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that the first step installs, in a checkout full of planted files."""
    folder = tmp_path_factory.mktemp("action")
    made, checkout = folder / "fleet-reconciler", folder / "checkout"
    prepare(made)
    checkout.mkdir()
    variables = plant(checkout, folder / PLANTED)
    job = Job(folder, checkout, variables, values={"inputs.python": sys.executable})

    code = job.step("Install")

    assert code == 0, job.log
    assert list((folder / PLANTED).iterdir()) == []
    return made


@dataclass
class PullRequest:
    """One for the branch main of a fleet with two services that fit."""

    repo: Repo
    folder: Path
    installed: Path
    forge: ForgeApi
    pushes: int = 0

    def job(self, variables: Mapping[str, str]) -> Job:
        """Commit what was written, and the job of that commit."""
        self.repo.git("add", "--all")
        self.repo.git("commit", "-q", "--allow-empty", "-m", "Change it")
        self.pushes += 1
        folder = self.folder / f"push-{self.pushes}"
        folder.mkdir()
        (folder / "fleet-reconciler").symlink_to(self.installed)
        return Job(folder, self.repo.work, dict(variables))

    def push(self, variables: Mapping[str, str] | None = None, **inputs: str) -> tuple[int, Job]:
        """The action, on what was written; `variables` of the workflow's own."""
        job = self.job(
            {
                **(variables or {}),
                "GITHUB_SERVER_URL": self.forge.host,
                "GITHUB_API_URL": self.forge.api,
                "GITHUB_REPOSITORY": "me/fleet",
                "GITHUB_REF": "refs/pull/7/merge",
                "GITHUB_BASE_REF": "main",
                **({"FORGEJO_ACTIONS": "true"} if self.forge.kind == "forgejo" else {}),
            }
        )
        return job.run({"token": TOKEN, **inputs}), job


FLEET = {
    "box.yaml": node("box", hardware={"memory": "8Gi"}, memory={"budget": "700Mi"}),
    "tiny.yaml": model("tiny", source="tiny.gguf"),
    "chat.yaml": service("chat", "tiny", contextSize=2048, endpoint={"port": 8088},
                         placement={"nodes": ["box"]}),
    "draft.yaml": service("draft", "tiny", contextSize=2048, endpoint={"port": 8089},
                          placement={"nodes": ["box"]}),
    "spare.yaml": model("spare", source="tiny.gguf"),
}  # fmt: skip


@pytest.fixture
def forge(request: pytest.FixtureRequest) -> Iterator[ForgeApi]:
    with ForgeApi(getattr(request, "param", "github"), me=None) as forge:
        yield forge


@pytest.fixture
def pull(installed: Path, tmp_path: Path, forge: ForgeApi) -> PullRequest:
    repo = Repo.create(tmp_path)
    tiny_llama(repo.work / "tiny.gguf")
    repo.publish(FLEET)
    repo.git("push", "-q", "origin", "HEAD:main")
    repo.git("fetch", "-q")
    repo.git("checkout", "-q", "-b", "change")
    return PullRequest(repo, tmp_path, installed, forge)


@dataclass(frozen=True)
class Row:
    """What a pull request writes into a file, and what is said of it: `rule` on its line, `said` in
    the comment."""

    file: str
    text: str
    said: tuple[str, ...]
    rule: str = ""


def _new(name: str, of: str = "tiny", **spec: Any) -> str:
    return service(name, of, placement={"nodes": ["box"]}, **spec)


def _edited(file: str, before: str, after: str) -> str:
    assert before in FLEET[file]
    return FLEET[file].replace(before, after)


# By pull request: what is wrong with files hides what would not fit, and one run tells all of them.
ROWS: dict[str, tuple[Row, ...]] = {
    "what is not valid": (
        Row("misspelt.yaml", _new("misspelt", contextSise=1), ("contextSize",), "Schema"),
        Row("broken.yaml", _new("broken").replace("spec:", "spec: ["), (), "YamlSyntax"),
        Row("gone.yaml", _new("gone", "tinny"), ('did you mean "tiny"',), "DanglingReference"),
        # The document of a model becomes another, and somebody needs it.
        Row("spare.yaml", _edited("spare.yaml", "kind: Model", "kind: FleetNode"), (), "Schema"),
        Row("orphan.yaml", _new("orphan", "spare"), ("no Model named",), "DanglingReference"),
        Row("own.yaml", _new("own", extraArgs=["--rpc=a:1"]), ("not valid: ",), "ForbiddenFlag"),
    ),
    "what does not fit": (
        Row("huge.yaml", _new("huge", contextSize=4000000),
            ("- `default/huge`", "MemoryFits: ", "700"), "MemoryFits"),
        Row("chat.yaml", _edited("chat.yaml", "8088", "8089"), ("PortConflict: ",), "PortConflict"),
        Row("vllm.yaml", _new("vllm", runtime="vllm"), ("#### Blocked",), "FormatMismatch"),
    ),
    "what changes": (
        Row("chat.yaml", _edited("chat.yaml", "2048", "4096"),
            ("#### What restarts", "`contextSize` 2048 -&gt; 4096", "1 to replace")),
        Row("draft.yaml", _edited("draft.yaml", "spec:", "spec:\n  suspend: true"),
            ("#### What stops\n\n- `default/draft`",)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_pull_request_is_told_what_it_would_do(name: str, pull: PullRequest) -> None:
    rows = ROWS[name]
    for row in rows:
        pull.repo.write(row.file, row.text)

    code, job = pull.push()

    assert code == (1 if rows[0].rule else 0), job.log
    (comment,) = pull.forge.bodies
    assert comment == f"{marker('fleet')}\n{job.summary}"
    annotated = re.findall(r"^::error file=([^,]+),line=\d+,col=\d+,title=(\w+)::", job.log, re.M)
    assert {(row.file, row.rule) for row in rows if row.rule} <= set(annotated)
    assert bool(annotated) == bool(rows[0].rule)
    for row in rows:
        assert all(said in comment for said in row.said), row
        if f"`{row.file}:" in comment:
            address = rf"\({pull.forge.host}/me/fleet/blob/\w+/{row.file}#L\d+\)"
            assert re.search(address, comment), row
    assert TOKEN not in job.log + comment


def test_no_file_of_a_pull_request_is_run_and_none_gets_the_token(
    pull: PullRequest, tmp_path: Path
) -> None:
    variables = plant(pull.repo.work, tmp_path / PLANTED)

    code, job = pull.push(variables)

    assert code == 0, job.log
    assert list((tmp_path / PLANTED).iterdir()) == []
    assert pull.forge.bodies == [f"{marker('fleet')}\n{job.summary}"]


_REFUSALS = {
    "a fork's token": Answer(403, message="Resource not accessible by integration"),
    "500": Answer(500),
    "a rate limit": Answer(429, {"Retry-After": "3600"}),
    "a redirect": Answer(302, {"Location": "https://elsewhere.test/"}),
}


def test_where_no_comment_can_be_written_the_summary_has_it_and_the_code_stays(
    pull: PullRequest,
) -> None:
    first, *others = _REFUSALS.values()
    pull.forge.instead["POST"] = [first]
    pull.repo.write("chat.yaml", FLEET["chat.yaml"].replace("8088", "8089"))

    code, job = pull.push()

    assert code == 1
    assert "PortConflict" in job.summary
    logs = [job.log]
    for answer in others:
        pull.forge.instead["POST"] = [answer]
        job.log = ""
        assert job.step("Comment") == 0
        logs.append(job.log)
    for answer, log in zip(_REFUSALS.values(), logs, strict=True):
        assert "::notice title=Fleet plan::No comment was written" in log
        assert f"answers {answer.status}" in log
    assert pull.forge.comments == []
    assert TOKEN not in "".join(logs) + job.summary


@pytest.mark.parametrize("forge", ["forgejo"], indirect=True)
def test_a_folder_has_a_comment_of_its_own_that_each_push_writes_anew(pull: PullRequest) -> None:
    pull.forge.add("ada", "What does it cost?")
    for name, text in FLEET.items():
        pull.repo.write(f"home/{name}", text.replace("tiny.gguf", "home/tiny.gguf"))
    tiny_llama(pull.repo.work / "home/tiny.gguf")
    pull.repo.commit(push=False)
    pull.repo.git("push", "-q", "origin", "HEAD:main")
    for size in ("4096", "8192"):
        pull.repo.write("home/chat.yaml", FLEET["chat.yaml"].replace("2048", size))

        code, job = pull.push(path="home", name="home")

        assert code == 0, job.log
    question, comment = pull.forge.bodies
    assert question == "What does it cost?"
    assert comment.startswith(marker("home"))
    assert "**1 to replace, 1 unchanged.**" in comment
    assert "2048 -&gt; 8192" in comment
    assert f"{pull.forge.host}/me/fleet/src/commit/" in comment


def test_a_base_that_was_not_fetched_is_said_in_the_summary_alone_without_a_token(
    pull: PullRequest,
) -> None:
    code, job = pull.push(base="origin/nowhere", token="")

    assert code == 1
    assert "origin/nowhere" in job.log
    assert "the log of the job says why" in job.summary
    assert pull.forge.requests == []


PAGE = (REPOSITORY / "docs/pull-requests.md").read_text()
BEFORE_A_SCRIPT = "set -eo pipefail\n"  # as GitLab's runner begins one


def _block(heading: str) -> str:
    """What is to be copied from a chapter of the page."""
    chapter = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```\w*\n(.*?)```", chapter, re.S)[0]


@pytest.mark.parametrize("forge", ["gitlab"], indirect=True)
def test_gitlabs_recipe_writes_the_plan_into_a_note_and_runs_no_file_of_the_checkout(
    pull: PullRequest, tmp_path: Path
) -> None:
    (recipe,) = yaml.safe_load(_block("GitLab")).values()
    programs, prepared, marks = (tmp_path / name for name in ("programs", "prepared", PLANTED))
    programs.mkdir()
    prepare(prepared)
    (programs / "python3").write_text(
        f'#!/bin/sh\ncp -R "{prepared}/." .\nexec "{sys.executable}" "$@"\n'
    )
    (programs / "python3").chmod(0o755)
    pull.repo.write("chat.yaml", FLEET["chat.yaml"].replace("2048", "4096"))
    job = pull.job(
        {
            "CI_MERGE_REQUEST_PROJECT_URL": f"{pull.forge.host}/me/fleet",
            "CI_API_V4_URL": pull.forge.api,
            "CI_MERGE_REQUEST_IID": "7",
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
            "GITLAB_TOKEN": TOKEN,
            "FLEET_RECONCILER": str(REPOSITORY),
            "CI_PROJECT_DIR": str(pull.repo.work),
            "PATH": f"{programs}:{os.environ['PATH']}",
            **plant(pull.repo.work, marks),
            **recipe["variables"],
        }
    )

    code = job.bash(BEFORE_A_SCRIPT + "\n".join(recipe["script"]), {}, ("bash",))

    assert code == 0, job.log
    assert list(marks.iterdir()) == []
    (note,) = pull.forge.bodies
    assert note.startswith(marker("fleet"))
    assert f"{pull.forge.host}/me/fleet/-/blob/" in note
    assert "valid: " in job.log
    assert TOKEN not in job.log + note


@pytest.mark.parametrize("forge", ["forgejo"], indirect=True)
def test_what_the_page_types_into_a_shell_writes_the_comment(pull: PullRequest) -> None:
    pull.repo.write("chat.yaml", FLEET["chat.yaml"].replace("2048", "4096"))
    lines = _block("A plain shell").replace("https://codeberg.org/me/fleet", pull.forge.page)
    job = pull.job(
        {
            "PATH": f"{pull.installed / 'bin'}:{os.environ['PATH']}",
            "FLEET": str(pull.repo.work),
        }
    )
    job.checkout = job.folder
    (job.folder / "token").write_text(TOKEN)

    code = job.bash(lines.replace("--number 12", "--number 7"), {}, ("bash",))

    assert code == 0, job.log
    (comment,) = pull.forge.bodies
    assert "`contextSize` 2048 -&gt; 4096" in comment
