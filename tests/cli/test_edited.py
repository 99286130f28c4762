"""`reconcile suspend`, `resume` and `rm`: the fleet's own files, changed in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.api.meta import API_VERSION
from reconciler.cli import main
from tests.support.fleets import document, load_folder, model, node, service, write_fleet
from tests.support.repos import Repo, git_env

TOGETHER = f"# of both\n\n{model()}---\n# a talker\n{service('chat')}"


@dataclass(frozen=True)
class Desk:
    """A folder of a fleet, and what commands print about it."""

    root: Path
    output: pytest.CaptureFixture[str]

    def type(self, *words: str) -> tuple[int, str, str]:
        code = main([*words, "-C", str(self.root), "--allow-unreachable"])
        return (code, *self.output.readouterr())

    def files(self) -> dict[str, str]:
        found = sorted(self.root.rglob("*.yaml"))
        return {str(file.relative_to(self.root)): file.read_text() for file in found}


@pytest.fixture
def desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Desk:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = write_fleet(
        tmp_path / "fleet",
        {
            "node.yaml": node("mac"),
            "both.yaml": TOGETHER,
            "other.yaml": service("other", placement={"nodes": ["mac"]}),
        },
    )
    return Desk(root, capsys)


def test_a_suspended_service_stops_by_the_plan_that_follows_and_resumes_as_it_was(
    desk: Desk,
) -> None:
    (desk.root / "both.yaml").chmod(0o640)
    before = desk.files()

    code, out, err = desk.type("suspend", "chat")

    assert code == 0, err
    assert desk.files() == before | {
        "both.yaml": TOGETHER.replace("spec:\n  modelRef", "spec:\n  suspend: true\n  modelRef")
    }
    assert (desk.root / "both.yaml").stat().st_mode & 0o777 == 0o640
    assert out.startswith(f"{desk.root}/both.yaml\n")
    assert f"written, not applied: run `reconcile apply -C {desk.root}`" in err
    assert "suspended already" in desk.type("suspend", "chat")[2]
    assert desk.type("resume", "chat")[0] == 0
    assert desk.files() == before


DEPLOYMENT = document(
    "ModelDeployment", "theirs", {"backend": "llamacpp", "model": "hf://a/b/c.gguf"}
).replace(API_VERSION, "ai.flexinfer/v1alpha1")
POOL = document("ModelPool", "theirs", {"members": [{"inferenceServiceRef": {"name": "more"}}]})


@pytest.mark.parametrize("command", ["suspend", "rm"])
@pytest.mark.parametrize("theirs", [DEPLOYMENT, POOL], ids=["ModelDeployment", "ModelPool"])
def test_no_command_writes_into_a_document_of_another_project(
    theirs: str, command: str, desk: Desk
) -> None:
    """It is more than one object, and its fields are not ours."""
    (desk.root / "theirs.yaml").write_text(f"{theirs}---\n{service('more')}")
    before = desk.files()

    code, _, err = desk.type(command, "theirs")

    assert code == 64, err
    kind = theirs.partition("kind: ")[2].partition("\n")[0]
    assert f"is made of the {kind} there; edit the file by hand" in err
    assert desk.files() == before


def test_a_service_with_a_word_of_llmkube_is_edited_as_any(desk: Desk) -> None:
    (desk.root / "own.yaml").write_text(service("own", reasoningBudget=512))

    code, _, err = desk.type("suspend", "own")

    assert code == 0, err
    assert "suspend: true" in desk.files()["own.yaml"]


def test_what_others_refer_to_stays_and_each_of_them_is_named_with_its_line(desk: Desk) -> None:
    before = desk.files()

    code, _, err = desk.type("rm", "model/gemma", "fleetnode/mac")

    assert code == 3
    assert err.splitlines() == [
        "both.yaml:14 spec.modelRef: InferenceService/default/chat needs Model/default/gemma",
        "other.yaml:5 spec.modelRef: InferenceService/default/other needs Model/default/gemma",
        "other.yaml:6 spec.placement.nodes[0]: InferenceService/default/other needs FleetNode/mac",
        "Nothing was removed.",
    ]
    assert desk.files() == before


def test_of_a_file_with_two_documents_one_goes_and_with_the_last_the_file(desk: Desk) -> None:
    assert desk.type("rm", "chat")[0] == 0
    assert desk.files()["both.yaml"] == f"# of both\n\n{model()}"

    assert desk.type("rm", "other", "gemma")[0] == 0  # the only one of that name

    assert desk.files().keys() == {"node.yaml"}
    assert load_folder(desk.root).problems == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("suspend chatt", 'no such object (did you mean "InferenceService/default/chat"?)'),
        ("rm model/nope", "no such object"),
        (
            "suspend fleetnode/mac",
            "FleetNode/mac: this is for objects of kind InferenceService alone",
        ),
        ("resume gemma", "InferenceService/default/gemma: the fleet declares no such object"),
        ("resume none", "none.yaml:6 spec.replicas: 0 stops default/none too"),
        ("suspend shared", "only its author can change safely"),
        ("rm twice", "is declared at twice.yaml:1 and at twice.yaml:7"),
    ],
)
def test_what_cannot_be_edited_is_said_and_nothing_is_written(
    words: str, message: str, desk: Desk
) -> None:
    shared = service("shared").replace("spec:", "spec: &all")
    odd = {
        "none.yaml": service("none", replicas=0),
        "shared.yaml": shared.replace("modelRef", "? modelRef\n  "),
        "twice.yaml": f"{service('twice')}---\n{service('twice')}",
    }
    write_fleet(desk.root, odd)
    before = desk.files()

    code, _, err = desk.type(*words.split())

    assert code == 64
    assert message in err
    assert desk.files() == before


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("rm other", ("--- a/other.yaml", "+++ /dev/null")),
        ("suspend far", ("--- a/far.yaml", "+++ b/far.yaml")),  # the only one of that name
        ("suspend inferenceservice/other", ("--- a/other.yaml", "+++ b/other.yaml")),
    ],
)
def test_a_dry_run_prints_the_change_and_writes_nothing(
    words: str, change: tuple[str, str], desk: Desk
) -> None:
    far = document("InferenceService", "far", {"modelRef": "gemma"}, namespace="away")
    write_fleet(desk.root, {"far.yaml": far})
    before = desk.files()

    code, out, err = desk.type(*words.split(), "--dry-run")

    assert code == 0, err
    assert tuple(out.splitlines()[:2]) == change
    assert desk.files() == before


def test_a_commit_has_the_edit_and_never_what_a_person_left_in_the_same_file(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in git_env().items():
        monkeypatch.setenv(name, value)
    repo = Repo.create(tmp_path / "git")
    repo.publish(desk.files())
    at = Desk(repo.work, desk.output)
    repo.write("both.yaml", f"{TOGETHER}# half a thought\n")

    refused = at.type("suspend", "chat", "--commit")
    assert at.type("suspend", "chat")[0] == 0  # and what that wrote is a change as well
    already = at.type("suspend", "chat", "--commit")
    code, _, err = at.type("rm", "other", "--commit")

    assert (refused[0], already[0], code) == (64, 64, 0), err
    for each in (refused, already):
        assert "both.yaml: has changes that are not committed" in each[2]
    changed = repo.git("show", "--name-status", "--format=%an: %s", "HEAD").splitlines()
    assert changed == ["Ada: Remove other", "", "D\tother.yaml"]


def test_a_push_takes_along_what_was_committed_before_and_says_so_of_a_git_folder(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in git_env().items():
        monkeypatch.setenv(name, value)
    repo = Repo.create(tmp_path / "git")
    repo.publish(desk.files())
    at = Desk(repo.work, desk.output)
    code, _, err = at.type("resume", "chat", "--commit")  # so already: nothing to commit
    written = at.type("suspend", "chat")[2]
    repo.commit("by hand", push=False)

    pushed = at.type("suspend", "chat", "--push")

    assert (code, pushed[0]) == (0, 0), pushed[2]
    assert "not suspended already" in err
    assert "written, not applied: commit and push\n" in written
    assert "pushed to origin/main" in pushed[2]
    assert repo.git("log", "--format=%s", "-1", "origin/main") == "by hand"
