"""The command line: exit codes, formats, and words instead of tracebacks."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from agent.cli import main as agent_main
from agent.node.steps import unknown_node
from reconciler.cli import main
from reconciler.cli.commands import COMMANDS
from reconciler.console.edge import Exit, guarded
from reconciler.core.prune import Before
from tests.support.fleets import (
    document,
    load_folder,
    model,
    node,
    service,
    small_fleet,
    write_fleet,
)
from tests.support.gguf_models import tiny_llama
from tests.support.http import OneLineServer
from tests.support.repos import Repo

SCHEMAS = Path(__file__).parents[2] / "schemas"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests is read or written."""
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    return write_fleet(tmp_path / "fleet", small_fleet())


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


@pytest.mark.parametrize("given", ["file://{}", "{}", "."])
def test_a_fleet_on_this_machine_is_nothing_that_a_pod_could_run_by(
    capsys: pytest.CaptureFixture[str], fleet: Path, given: str
) -> None:
    given = given.format(fleet)

    code, out, err = run(capsys, "install", "--export", "-C", given)
    refused = run(capsys, "install", "--export", "-C", given, "--secret", "git-token-file=a/b")

    assert code == 0
    assert "kind: Deployment" not in out
    assert f"-C {given} is a path on this machine, which no pod can read" in err
    assert "give a git URL that pods can fetch from (https://, ssh:// or git@host:path)" in err
    assert refused[0] == 64
    assert f"{given} is a path on this machine" in refused[2]


@pytest.mark.parametrize(
    "words",
    [
        ["frobnicate"],
        ["--frobnicate"],
        ["--once", "--watch"],
        ["--dry-run", "-o", "yaml"],
        ["status", "-o", "yaml"],
        ["explain", "chat", "-o", "yaml"],
        ["render", "-o", "yaml"],
        ["validate", "-o", "yaml"],
        ["--from", "HEAD"],
        ["--dry-run", "--cluster", "prod="],
        ["-C", "cluster://", "validate"],
        ["-C", ""],
        ["--interval", "soon", "--watch"],
        ["explain"],
        ["explain", "a/b/c/d"],
        ["explain", "Potato/x"],
        ["explain", "InferenceService/absent"],
        ["explain", "Model/gemma"],
        ["explain", "InferenceService.spec.contextsize"],
        ["--dry-run", "--local=nobody"],
        ["--dry"],  # an option is written whole
    ],
)
def test_what_makes_no_sense_is_exit_64_with_a_line_on_stderr(
    words: list[str], fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [] if "-C" in words else ["-C", fleet]

    code, out, err = run(capsys, *place, *words)

    assert code == 64
    assert err.startswith("reconcile: ")
    assert out == ""


@pytest.mark.parametrize(
    "words", [["--dry-run", "--cluster", "prod"], ["-C", "cluster://prod", "validate"]]
)
def test_a_cluster_that_nobody_can_reach_says_what_to_give(
    words: list[str], fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [] if "-C" in words else ["-C", fleet]

    code, _, err = run(capsys, *place, *words)

    assert code == 1
    assert "no kubeconfig at" in err
    assert "--kubeconfig FILE" in err


def test_a_cluster_behind_a_login_page_leaves_a_report_of_the_files(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"kubernetes": {"nodeSelector": {"gpu": "yes"}}, "hardware": {"memory": "64Gi"}}
    (fleet / "node.yaml").write_text(document("FleetNode", "edge", labels))
    config = fleet.parent / "kubeconfig"
    with OneLineServer("HTTP/1.0 200 OK\r\n\r\n<html>please log in</html>") as server:
        config.write_text(
            f"{{clusters: [{{name: t, cluster: {{server: 'http://127.0.0.1:{server.server_address[1]}'}}}}],"
            " contexts: [{name: t, context: {cluster: t, user: t}}],"
            " users: [{name: t, user: {token: a}}], current-context: t}"
        )
        words = ("validate", "-C", fleet, "--cluster", "prod=t", "--kubeconfig", config)
        answered = run(capsys, *words)
        unknown = run(capsys, *words[:-1], fleet.parent / "absent")

    for code, out, err in (answered, unknown):
        assert (code, "valid:" in out) == (3, True), err
        assert "asked what its pools select: " in err
    assert "answers with something else than a list of Nodes" in answered[2]


def test_a_fleet_without_a_name_is_told_the_document_to_add(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = fleet.parent / "kubeconfig"
    config.write_text(
        "{clusters: [{name: t, cluster: {server: 'http://127.0.0.1:9'}}], current-context: t,"
        " contexts: [{name: t, context: {cluster: t, user: t}}], users: [{name: t}]}"
    )
    words = ("--dry-run", "--offline", "--cluster", "x", "--kubeconfig", config, "-C", fleet)

    code, _, err = run(capsys, *words)
    (fleet / "fleet.yaml").write_text(err.partition("fleet.yaml with ")[2])
    after = run(capsys, *words)

    assert code == 64
    assert "--cluster needs a Fleet document" in err
    assert after[0] != 64
    assert "cluster x (never seen)" in after[1]


def test_a_fleet_that_is_not_there_is_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "validate", "-C", tmp_path / "absent")

    assert code == 1
    assert "no such folder" in err


def test_options_of_the_fleet_stand_before_and_after_the_commands_name(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = run(capsys, "-C", fleet, "-o", "json", "validate")
    after = run(capsys, "validate", "-C", fleet, "-o", "json")

    assert before == after
    assert before[0] == 0


def test_validate_prints_the_documented_json(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fleet(fleet, {"broken.yaml": service("broken", "gema")})

    code, out, _ = run(capsys, "validate", "-C", fleet, "-o", "json")

    document = json.loads(out)
    assert code == 1
    assert document["valid"] is False
    (problem,) = [p for p in document["problems"] if p["severity"] == "error"]
    assert problem | {"message": ""} == {
        "path": "broken.yaml",
        "line": 5,
        "column": 3,
        "field": "spec.modelRef",
        "severity": "error",
        "rule": "DanglingReference",
        "message": "",
    }
    assert 'did you mean "gemma"?' in problem["message"]


def test_validate_says_what_only_placement_can_know(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fleet(fleet, {"node2.yaml": node("other")})

    code, out, _ = run(capsys, "validate", "-C", fleet)

    assert code == 1
    assert "service.yaml:4:1 spec: 2 nodes could take it (mac, other)" in out
    assert "placement: {nodes: [mac]}" in out


def rules(capsys: pytest.CaptureFixture[str], root: Path) -> set[tuple[str, str]]:
    code, out, _ = run(capsys, "validate", "-C", root, "-o", "json")
    assert code == 1
    return {(p["path"], p["rule"]) for p in json.loads(out)["problems"]}


def test_what_is_blocked_is_told_beside_an_error_elsewhere(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {
        "broken.yaml": service("broken", "gema"),
        "mlx.yaml": service("mlx", runtime="mlx-lm", placement={"nodes": ["mac"]}),
        "lost.yaml": service("lost", placement={"nodeSelector": {"site": "nowhere"}}),
    }
    write_fleet(fleet, {"node.yaml": node(runtimes=["llama-server"])} | other)

    found = rules(capsys, fleet)

    assert found >= {
        ("broken.yaml", "DanglingReference"),
        ("mlx.yaml", "NodeCapability"),
        ("lost.yaml", "NodeCapability"),
        ("node.yaml", "MemoryUnknown"),
    }


@pytest.mark.parametrize(
    "wrong", [node("b", oops=1), "kind: FleetNode  # inference.llmkube.dev/\n- "]
)
def test_nobody_is_told_to_lack_a_node_that_may_be_in_a_wrong_document(
    wrong: str, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = service("lost", placement={"nodeSelector": {"site": "b"}})
    write_fleet(fleet, {"lost.yaml": lost, "wrong.yaml": wrong})

    assert not [rule for path, rule in rules(capsys, fleet) if path == "lost.yaml"]


@pytest.mark.parametrize("output", ["text", "json", "sarif", "github"])
def test_every_format_of_validate_is_there(
    output: str, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "validate", "-C", fleet, "-o", output)

    assert code == 0
    assert out
    if output in ("json", "sarif"):
        json.loads(out)


def test_a_dry_run_against_this_machine_exits_2_and_touches_nothing(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"

    code, out, _ = run(
        capsys, "--dry-run", "-C", fleet, "--local", "--state-dir", state, "-o", "json"
    )

    plan = json.loads(out)
    jsonschema.validate(plan, json.loads((SCHEMAS / "plan.json").read_text()))
    assert code == 2
    assert plan["summary"]["create"] == 1
    assert not state.exists()


def test_nothing_is_planned_from_a_state_directory_that_would_be_refused(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    words = ("-C", fleet, "--local", "--state-dir", state)

    said = [run(capsys, *command, *words) for command in (("--dry-run",), ("--once",))]

    assert [code for code, _, _ in said] == [1, 1]
    for _, _, err in said:
        assert f"{state}: others may write there (mode 777)" in err
    assert list(state.iterdir()) == []


def test_a_machine_whose_memory_the_fleet_does_not_state_starts_nothing_that_is_larger_than_it(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_llama(fleet / "tiny.gguf", layers=16, heads=8, kv_heads=8, embedding=256)
    files = {
        "model.yaml": model("gemma", source="tiny.gguf"),
        "service.yaml": service(contextSize=99_999_999),
    }
    write_fleet(fleet, files)
    words = ("-C", fleet, "--local", "--state-dir", tmp_path / "state")

    said = [
        run(capsys, *command, *words)
        for command in (("--dry-run",), ("--once",), ("explain", "chat"), ("status",))
    ]

    assert [code for code, _, _ in said] == [3, 3, 0, 3]
    for _, out, _ in said:
        assert " TiB of " in out, out
    assert "is held to the " in said[0][2]
    _, half, _ = run(capsys, "--dry-run", *words, "--memory-fraction", "0.5")
    assert " GiB x 0.5 = " in half


def test_a_model_that_cannot_chat_is_a_warning_everywhere_until_a_remedy_is_typed(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_llama(fleet / "tiny.gguf", chat_template="")
    declared = model("gemma", source="tiny.gguf")

    def said(**spec: Any) -> list[tuple[int, bool]]:
        write_fleet(fleet, {"model.yaml": declared, "service.yaml": service(**spec)})
        commands = (("validate",), ("--dry-run", "--local"), ("explain", "chat"))
        shown = [run(capsys, *command, "-C", fleet) for command in commands]
        return [(code, "has no chat template" in out + err) for code, out, err in shown]

    assert said() == [(0, True), (2, True), (0, True)]
    _, out, _ = run(capsys, "validate", "-C", fleet)
    assert re.search(r"spec\.modelRef: gemma has no .* \(warning NoChatTemplate\)", out)
    _, out, _ = run(capsys, "explain", "chat", "-C", fleet, "-o", "json")
    assert json.loads(out)["warnings"][0].startswith("NoChatTemplate: gemma has no chat template")
    for remedy in re.findall(r"`(\w+: .+?)`", out):
        typed = yaml.safe_load(remedy.replace("NAME", "chatml"))
        assert said(**typed) == [(0, False), (2, False), (0, False)], remedy
    tiny_llama(fleet / "tiny.gguf")
    assert said() == [(0, False), (2, False), (0, False)]


def test_agents_elsewhere_are_unknown_and_not_asked(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "--dry-run", "-C", fleet, "-o", "json")
    allowed, _, _ = run(capsys, "--dry-run", "-C", fleet, "--allow-unreachable")

    plan = json.loads(out)
    assert (code, allowed) == (3, 0)
    assert [change["action"] for change in plan["changes"]] == ["unknown"]
    assert [u["target"] for u in plan["unreachable"]] == ["node/mac"]


def test_services_of_a_cluster_that_is_not_named_are_said_to_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = document("FleetNode", "edge", {"kubernetes": {"cluster": "prod"}})
    fleet = write_fleet(tmp_path / "fleet", small_fleet() | {"node.yaml": pool})

    _, _, planned = run(capsys, "--dry-run", "-C", fleet)
    _, _, looked = run(capsys, "status", "-C", fleet)

    assert "1 service on cluster prod: not planned here; add --cluster prod" in planned
    assert "1 service on cluster prod: not looked at here; add --cluster prod" in looked


def test_a_blocked_plan_exits_3(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_fleet(fleet, {"node.yaml": node(runtimes=["mlx-server"])})

    code, out, _ = run(capsys, "--dry-run", "-C", fleet, "--local")

    assert code == 3
    assert "NodeCapability" in out


def test_an_invalid_fleet_exits_1_with_every_error(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fleet(fleet, {"a.yaml": service("a", "no"), "b.yaml": service("b", contxtSize=1)})

    code, out, err = run(capsys, "--dry-run", "-C", fleet, "--local")

    assert code == 1
    assert out == ""
    assert "a.yaml:" in err
    assert "b.yaml:" in err


@pytest.mark.parametrize(
    ("field", "lines"),
    [
        (
            "InferenceService.spec.resources.gpu",
            ["InferenceService.spec.resources.gpu: LLMKube's name", "the same as spec.devices"],
        ),
        (
            "InferenceService.spec.rolloutPolicy",
            ["spec.rolloutPolicy: fields below", "  spec.rolloutPolicy.waitForIdle: LLMKube's"],
        ),
        (
            "Model.spec.hardware.gpu",
            ["How much of it lies on devices", "gpu.vendor: LLMKube's name"],
        ),
        (
            "InferenceService.spec.contextSize",
            ["InferenceService.spec.contextSize: from 128 to 134217728", "a change: process, per"],
        ),
        ("InferenceService.spec.models.preload", ["models[].preload: true, false"]),
        ("FleetNode.spec.kubernetes", ["  spec.kubernetes.count: from 1", "Default 1."]),
        ("Model.spec", ["spec.source: text", "spec.hardware: fields below"]),
        ("ModelPool.spec.members", ["ModelPool.spec.members: LLMKube's", "spec.models of one"]),
        ("ModelPool.spec", ["spec: fields below", "  spec.swapBudget: LLMKube's name"]),
        ("ModelRouter.spec.policy", ["  spec.policy.auth: LLMKube's", "without effect here: a"]),
        ("ModelPool.spec.members[].inferenceServiceRef.name", ["ModelPool.spec.members: LLM"]),
        ("ModelRouter.spec.rules.match.dataClassification", ["ModelRouter.spec.rules: LLMKube"]),
        ("ModelDeployment.spec.vllm.maxModelLen", ["FlexInfer's name", "same as spec.contextSize"]),
        ("ModelRouter.metadata.name", ["ModelRouter.metadata.name: name"]),
    ],
)
def test_explain_says_what_a_field_does_and_needs_no_fleet_for_it(
    field: str, lines: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "-C", tmp_path, "explain", field)
    _, printed, _ = run(capsys, "-C", tmp_path, "explain", field, "-o", "json")

    assert code == 0
    assert [line for line in lines if line not in out] == []
    assert json.loads(printed)["description"] in out


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("ModelPool.spec.swapbudget", "did you mean ModelPool.spec.swapBudget?"),
        ("ModelRouter.spec.routes", "ModelRouter has no such field"),
        ("ModelPool.spec.members.inferenceServiceRef.kind", "ModelPool has no such field"),
        ("GPUQuota.spec.limits", "a GPUQuota of LLMKube is not read; memory.budget"),
    ],
)
def test_explain_names_what_is_meant_by_a_field_of_a_kind_that_only_llmkube_has(
    field: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, "-C", tmp_path, "explain", field)

    assert code == 64
    assert says in err


def test_explain_prints_the_documented_json(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "explain", "InferenceService/chat", "-C", fleet, "-o", "json")

    document = json.loads(out)
    assert code == 0
    assert document["ref"] == {
        "kind": "InferenceService",
        "namespace": "default",
        "name": "chat",
    }
    assert document["placement"]["node"] == "mac"
    assert document["placement"]["candidates"] == [
        {"node": "mac", "fits": True, "reasons": ["it is placed here"]}
    ]
    assert document["memory"] is None
    assert document["command"][:3] == ["llama-server", "--model", "{store}/gemma"]
    assert "{port}" in document["command"]


def test_status_of_a_node_where_nothing_runs_exits_3(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "status", "-C", fleet, "--local", "-o", "json")

    document = json.loads(out)
    assert code == 3
    assert [(s["ref"]["name"], s["ready"], s["reason"]) for s in document["services"]] == [
        ("chat", False, "NotRunning")
    ]


def test_an_explanation_says_what_the_plan_says(
    fleet: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").symlink_to(git)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    mlx = model("mlx", source="hf://o/mlx", format="mlx")
    write_fleet(fleet, {"mlx.yaml": mlx, "s.yaml": service("s", "mlx", runtime="mlx-server")})

    _, plan, _ = run(capsys, "--dry-run", "-C", fleet, "--local", "--offline", "-o", "json")
    _, found, _ = run(capsys, "explain", "s", "-C", fleet, "--local", "--offline", "-o", "json")

    (blocked,) = [b for b in json.loads(plan)["blocked"] if b["ref"]["name"] == "s"]
    why = f"{blocked['reason']}: {blocked['message']}"
    placement = json.loads(found)["placement"]
    assert blocked["reason"] == "EngineMissing"
    assert placement["held"] == [why]
    assert placement["candidates"] == [{"node": "mac", "fits": False, "reasons": [why]}]


def test_status_of_a_node_is_shown_although_its_fleet_cannot_be_read(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fleet(fleet, {"broken.yaml": service("broken", "gema")})

    invalid = run(capsys, "status", "-C", fleet, "--local=mac")
    absent = run(capsys, "status", "-C", tmp_path / "absent", "--local=mac", "-o", "json")

    assert invalid[0] == 1
    assert invalid[1].startswith("mac  ")
    assert invalid[1].endswith("\n  nothing runs here\n\nno services\n")
    assert "gema" in invalid[2]
    assert absent[0] == 1
    assert json.loads(absent[1])["nodes"][0]["name"] == "mac"


def test_explain_has_a_flag_on_each_line_and_says_what_a_placeholder_is(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, _ = run(capsys, "explain", "chat", "-C", fleet)
    _, document, _ = run(capsys, "explain", "chat", "-C", fleet, "-o", "json")

    begin = text.index("llama-server \\\n")
    command, explained = text[begin:].split("  {port} is the port that the node gives it\n")
    assert shlex.split(command.replace("\\\n", "")) == json.loads(document)["command"]
    assert "\n    --ctx-size 8192 \\\n" in command
    assert "{store} is the node's model store" in explained
    assert "\nflags come from\n" in explained


@pytest.mark.parametrize("ref", ["chat", "default/chat", "InferenceService/default/chat"])
def test_a_service_is_explained_by_the_name_that_plans_give_it(
    ref: str, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, _ = run(capsys, "explain", ref, "-C", fleet)

    assert (code, text.split()[0]) == (0, "InferenceService/default/chat")


def test_explain_gives_the_command_that_the_pods_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = document("FleetNode", "edge", {"kubernetes": {}, "hardware": {"memory": "64Gi"}})
    fleet = write_fleet(tmp_path / "fleet", small_fleet() | {"node.yaml": pool})

    _, explained, _ = run(capsys, "explain", "InferenceService/chat", "-C", fleet, "-o", "json")
    _, rendered, _ = run(capsys, "render", "-C", fleet, "-o", "json")

    command = json.loads(explained)["command"]
    assert command == json.loads(rendered)[0]["argv"]
    assert not [word for word in command if "{" in word]


def test_what_this_process_was_told_is_said_by_every_command_that_decides_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = document("FleetNode", "edge", {"kubernetes": {}, "hardware": {"memory": "64Gi"}})
    files = small_fleet() | {"node.yaml": pool, "fleet.yaml": document("Fleet", "home", {})}
    fleet = write_fleet(tmp_path / "fleet", files)
    note = "registry.test/x:1 by DEFAULT_BACKEND_IMAGE of this process"
    monkeypatch.setenv("DEFAULT_BACKEND_IMAGE", "registry.test/x:1")

    _, explained, _ = run(capsys, "explain", "chat", "-C", fleet)
    (fleet / "mac.yaml").write_text(node("mac"))
    _, from_a_node, _ = run(capsys, "explain", "chat", "-C", fleet, "--local", "mac")
    (fleet / "mac.yaml").unlink()
    _, images, _ = run(capsys, "render", "--images", "-C", fleet)
    _, _, said = run(capsys, "render", "-C", fleet, "-o", tmp_path / "out")
    valid, problems, _ = run(capsys, "validate", "-C", fleet, "-o", "json")
    usage, _, wrong = run(capsys, "validate", "-C", fleet, "--default-backend-image", "a b")

    for text in (explained, from_a_node):
        assert "image\n  registry.test/x:1  (DEFAULT_BACKEND_IMAGE)\n" in text
    assert "registry.test/x:1  (DEFAULT_BACKEND_IMAGE)  default/chat" in images
    assert note in said
    written = (tmp_path / "out" / "default" / "default" / "chat.yaml").read_text()
    assert "image: registry.test/x:1" in written.replace('"', "")
    (found,) = [p for p in json.loads(problems)["problems"] if p["rule"] == "DefaultTaken"]
    assert (valid, found["severity"], found["path"]) == (0, "note", "service.yaml")
    assert found["message"].startswith(note)
    assert usage == 64
    assert "write an image" in wrong


def test_render_prints_a_command_a_service(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "render", "-C", fleet, "-o", "json")

    (rendered,) = json.loads(out)
    assert code == 0
    assert rendered["argv"][0] == "llama-server"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])

    assert ended.value.code == 0
    assert command in capsys.readouterr().out


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_formats_that_help_names_are_those_that_are_printed(
    command: str, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help", "--all"])
    shown = re.search(r"--output FORMAT\n? +(.*)", capsys.readouterr().out)

    words = (
        ("x",) if command in ("ask", "explain", "deploy", "suspend", "resume", "rm", "logs") else ()
    )
    # No format has this name, and no folder may.
    code, _, err = run(capsys, command, *words, "-C", fleet, "-o", "yaml")

    assert code == 64
    told = re.search(r"-o yaml: this prints (.*)", err)
    choice = told[1] if told and "," in told[1] else None  # text alone is none
    always = shown and re.sub(r", or .*|, \w+ \(.*\)", "", shown[1])
    assert choice == always
    assert (command == "run") == (shown is not None and "markdown (with" in shown[1])


@pytest.mark.parametrize("command", ["schema", "demo"])
def test_what_has_no_fleet_takes_none(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, command, "--cluster", "prod", "--ref", "main")

    assert code == 64
    assert "--cluster" in err


def test_explain_of_what_is_not_started_names_the_services_that_use_it(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ref in ("Model/gemma", "FleetNode/mac"):
        code, _, err = run(capsys, "explain", ref, "-C", fleet)

        assert code == 64
        assert "name one that uses it: InferenceService/default/chat" in err


def test_the_agent_says_the_same_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = ["--state-dir", str(tmp_path / "state")]

    codes = [
        agent_main([]),
        agent_main(["stop", *state]),
        agent_main(["stop", "--all", *state]),
        agent_main(["status", *state]),
        agent_main(["probe"]),
    ]

    assert codes == [64, 64, 0, 0, 0]
    assert "hardware:" in capsys.readouterr().out


def test_an_option_before_the_agents_command_says_where_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agent_main(["--state-dir", str(tmp_path), "fetch"]) == Exit.USAGE

    assert "the command comes first: fleet-agent COMMAND --state-dir" in capsys.readouterr().err


def test_too_little_memory_is_no_bug(capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> int:
        raise MemoryError

    assert guarded(full, "reconcile") == Exit.FAILED

    assert "not enough memory" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error(fleet: Path) -> None:
    command = f"{sys.executable} -m reconciler validate -C {fleet} -o sarif | head -c 1"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)

    assert done.stderr == ""


def test_a_locale_that_cannot_say_a_name_gets_it_escaped(tmp_path: Path) -> None:
    files = small_fleet() | {"küche.yaml": service("chat", "gemma")}
    fleet = write_fleet(tmp_path / "fleet", files)

    done = subprocess.run(
        [sys.executable, "-m", "reconciler", "validate", "-C", str(fleet)],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": os.environ["PATH"]},
    )

    assert done.returncode == 1
    assert b"k\\xfcche.yaml" in done.stdout
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("words", "code"), [("validate -C {} >&-", 0), ("ask none - -C {} <&-", 64)]
)
def test_a_closed_stream_is_no_bug(words: str, code: int, fleet: Path) -> None:
    command = f"{sys.executable} -m reconciler {words.format(fleet)}"

    done = subprocess.run(["bash", "-c", command], capture_output=True)

    assert done.returncode == code, done.stderr


def test_watch_follows_folders_only(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)

    code, _, err = run(capsys, "--watch", "-C", bare)

    assert code == 64
    assert "watch follows the files of a folder" in err


def test_a_plan_against_a_revision_never_removes_what_a_node_would_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = write_fleet(tmp_path / "fleet", small_fleet())
    git = ["git", "-C", str(fleet), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "all"], check=True)
    for file in fleet.glob("*.yaml"):
        file.unlink()

    code, out, _ = run(capsys, "--dry-run", "--from", "HEAD", "-C", fleet, "-o", "json")

    plan = json.loads(out)
    assert code == 3
    assert [change["action"] for change in plan["changes"]] == ["unknown"]
    assert "holds what it runs" in plan["unreachable"][0]["message"]


def test_a_plan_that_renames_all_services_of_a_node_waits_for_its_token_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = {"placement": {"nodes": ["mac"]}}
    files = {"node.yaml": node("mac"), "model.yaml": model()}
    repo = Repo.create(tmp_path)
    repo.publish(files | {f"{name}.yaml": service(name, **here) for name in "abc"})
    for name in "abc":
        (repo.work / f"{name}.yaml").rename(repo.work / f"new-{name}.yaml")
        repo.write(f"new-{name}.yaml", service(f"new-{name}", **here))
    plan = ("plan", "--from", "HEAD", "-C", repo.work)

    code, out, _ = run(capsys, *plan, "-o", "json")
    texts = [run(capsys, *plan, "-o", form)[1] for form in ("text", "markdown")]

    (question,) = json.loads(out)["blocked"]
    assert (code, question["reason"]) == (3, "NeedsConfirmation")
    assert question["message"].startswith("all 3 services of node mac would stop. If that is meant")
    assert all(f"--confirm {question['confirm']}" in text for text in texts)
    assert run(capsys, *plan, "--confirm", question["confirm"])[0] == 2
    repo.write("fleet.yaml", document("Fleet", "fleet", {"confirm": [question["confirm"]]}))
    assert run(capsys, *plan)[0] == 2


@pytest.mark.parametrize("path", [(), ("--path", "more")])
def test_a_plan_against_a_commit_without_the_fleets_folder_is_that_of_a_new_fleet(
    path: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = Repo.create(tmp_path)
    repo.publish({"README.md": "soon"} | ({"fleet/other.yaml": node("x")} if path else {}))
    repo.publish({f"fleet/more/{name}": text for name, text in small_fleet().items()})

    code, out, err = run(
        capsys, "plan", "--from", "HEAD~1", "-C", repo.work / "fleet", *path, "-o", "json"
    )

    assert code == 2, err
    assert [change["action"] for change in json.loads(out)["changes"]] == ["create"]
    assert "compared with an empty fleet" in err


def test_the_agents_status_names_the_node_that_this_machine_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remembered = tmp_path / "state" / "desired" / "node"
    remembered.parent.mkdir(parents=True)
    remembered.write_text("laptop")

    code = agent_main(["status", "--state-dir", str(tmp_path / "state"), "-o", "json"])

    assert code == 0
    assert json.loads(capsys.readouterr().out)["nodes"][0]["name"] == "laptop"


@pytest.mark.parametrize(
    "words",
    [["--help"], ["run", "--help"], ["validate"], ["--dry-run"], ["status"], ["explain", "chat"]],
)
def test_nothing_of_kubernetes_is_imported_without_a_cluster(
    words: list[str], tmp_path: Path
) -> None:
    write_fleet(tmp_path, small_fleet())
    program = (
        "import sys\nfrom reconciler.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "print([m for m in sys.modules if m.startswith(('reconciler.kube', 'kubernetes'))])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_folder_without_a_fleet_is_not_valid_unless_that_is_meant(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, fleet: Path
) -> None:
    (tmp_path / "empty").mkdir()

    code, out, _ = run(capsys, "validate", "-C", tmp_path / "empty")
    meant = run(capsys, "validate", "-C", tmp_path / "empty", "--allow-empty")
    other = run(capsys, "validate", "-C", fleet, "--path", "models", "-o", "json")

    assert code == 1
    assert f"nothing to check under {tmp_path / 'empty'}" in out
    assert meant[0] == 0
    assert other[0] == 1


def test_a_state_directory_that_served_another_node_has_a_way_out(tmp_path: Path) -> None:
    """Of a person with two fleets on one machine, who typed nothing wrong."""
    loaded = load_folder(write_fleet(tmp_path / "fleet", small_fleet()))

    assert loaded.fleet is not None

    why = unknown_node(loaded.fleet, "box", Before())

    assert why is not None
    assert "has no FleetNode box (it has mac): held, as it runs" in why
    assert "--local=NODE" in why
    assert "--state-dir DIR" in why


@pytest.mark.parametrize(
    ("expose", "words", "said"),
    [
        ("none", ("--runtimes", "vllm"), "NodeCapability: node mac offers vllm, not llama-server"),
        ("none", ("--runtime", "vllm"), "FormatMismatch: vllm loads safetensors"),
        ("open", ("--host-ip", "192.0.2.7"), "--host 192.0.2.7"),
    ],
)
def test_a_machine_without_an_agent_says_of_itself_what_an_agent_can(
    expose: str,
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "fleet").mkdir()
    tiny_llama(tmp_path / "fleet/gemma.gguf")
    files = {
        "node.yaml": node("mac", agent={"expose": expose}, memory={"budget": "1Gi"}),
        "model.yaml": model("gemma", source="gemma.gguf"),
        "chat.yaml": service("chat", "gemma"),
    }
    fleet = write_fleet(tmp_path / "fleet", files)
    place = ("explain", "chat", "-C", fleet, "--local", "--state-dir", tmp_path / "state")

    _, usual, _ = run(capsys, *place)
    _, told, _ = run(capsys, *place, *words)

    assert said not in usual
    assert said in told


@pytest.mark.parametrize(
    ("program", "word", "hint"),
    [
        (main, "diff", "did you mean `reconcile plan`?"),
        (main, "up", "did you mean `reconcile apply`?"),
        (main, "log", "did you mean `reconcile logs`?"),
        (main, "get", "did you mean `reconcile status`?"),
        (main, "vvalidate", "did you mean `reconcile validate`?"),
        (main, "chat", "did you mean `reconcile ask`?"),
        (main, "rollback", "did you mean `git revert`?"),
        (main, "sing", "see `reconcile --help`"),
        (agent_main, "plan", "did you mean `reconcile plan --local`?"),
        (agent_main, "start", "did you mean `fleet-agent restart`?"),
        (agent_main, "statusx", "did you mean `fleet-agent status`?"),
        (agent_main, "ask", "did you mean `reconcile ask`?"),
        (agent_main, "query", "did you mean `reconcile ask`?"),
        (agent_main, "undo", "did you mean `git revert`?"),
        (agent_main, "version", "did you mean `fleet-agent --version`?"),
        (agent_main, "upgrade", "did you mean `pip install --upgrade '.[embedded]'`?"),
        (main, "leftovers", "did you mean `fleet-agent leftovers`?"),
        (main, "nodes", "did you mean `reconcile status`?"),
        (main, "scale", "did you mean `reconcile explain InferenceService.spec.replicas`?"),
        (agent_main, "drain", "did you mean `reconcile explain FleetNode.spec.drain`?"),
        (agent_main, "rm", "did you mean `reconcile rm` or `fleet-agent store rm`?"),
        (agent_main, "prune", "did you mean `fleet-agent store gc`?"),
        (agent_main, "sing", "see `fleet-agent --help`"),
    ],
)
def test_a_word_of_another_tool_is_answered_with_what_does_that_here(
    capsys: pytest.CaptureFixture[str],
    program: Callable[[list[str]], int],
    word: str,
    hint: str,
) -> None:
    code = program([word])

    assert code == Exit.USAGE
    assert f"no command named {word!r}; {hint}" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_named_with_the_option_that_it_came_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = str(tmp_path / "absent")

    agent_main(["fetch", "--state-dir", str(tmp_path / "state"), "--fleet", absent])
    by_the_agent = capsys.readouterr().err
    main(["validate", "-C", absent])

    assert "give a folder or a git URL after --fleet" in by_the_agent
    assert "give a folder or a git URL after -C" in capsys.readouterr().err
