"""What a message says to write or to type, written and typed as it stands: it works."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.api.errors import SourceError
from reconciler.cli import main
from reconciler.cli.fleet import beside_the_commit
from reconciler.runtimes import RUNTIMES
from reconciler.source.address import GitCredentials
from reconciler.source.git import GitSource
from reconciler.source.load import Loaded
from tests.support.certificates import self_signed
from tests.support.command_lines import read
from tests.support.fleets import (
    document,
    load_folder,
    load_texts,
    model,
    node,
    service,
    write_fleet,
)
from tests.support.gguf_models import tiny_llama
from tests.support.git_http import GitServer
from tests.support.repos import Repo

NODE, MODEL, SERVICE = node("mac"), model("gemma"), service("chat", placement={"nodes": ["mac"]})
OF = "apiVersion: inference.llmkube.dev/v1alpha1\nkind: {}\nmetadata: {{name: talk}}\nspec:\n"
OF_NODE, OF_MODEL = f"{OF.format('FleetNode')}  agent: {{}}\n", OF.format("Model")
OF_SERVICE = OF.format("InferenceService")


def load(text: str) -> Loaded:
    return load_texts(NODE, MODEL, SERVICE, text)


@pytest.mark.parametrize(
    ("head", "lines"),
    [
        (OF_NODE, "  hardware: {memory: 16GB}"),
        (OF_NODE, "  hardware: {memory: 16 GiB}"),
        (OF_NODE, "  hardware: {memory: 512mb}"),
        (OF_SERVICE, "  modelRef: gemma\n  contextSize: 8k"),
        (OF_SERVICE, '  modelRef: gemma\n  contextSize: "8,192"'),
        (OF_SERVICE, '  modelRef: gemma\n  contextSize: "8192"'),
        (OF_SERVICE, "  modelRef: gemma\n  jinja: yes"),
        (OF_SERVICE, "  modelRef: gemma\n  flashAttention: off"),
        (OF_SERVICE, "  modelRef: gemma\n  sleepIdle: 30"),
        (OF_SERVICE, "  modelRef: gemma\n  sleepIdle: 5 minutes"),
        (OF_SERVICE, "  modelRef: gemma\n  sleepIdle: 1d"),
        (OF_SERVICE, "  modelRef: gemma\n  extraArgs: --numa distribute"),
        (OF_SERVICE, "  modelRef: gemma\n  placement: {nodes: mac}"),
        (OF_SERVICE, "  modelRef: Gemma"),
        (OF_SERVICE, "  modelRef: [gemma]"),
        (OF_MODEL, f"  source: https://models.test/a.gguf\n  sha256: sha256:{'AB' * 32}"),
    ],
)
def test_a_value_is_right_when_it_is_written_as_the_message_says(head: str, lines: str) -> None:
    (problem,) = load(f"{head}{lines}\n").problems
    (wish,) = re.findall(r"; write (.+)$", problem.message)
    name = problem.field.rpartition(".")[2]

    written = re.sub(
        rf"(?<={name}: ).*?(?=\}}?$)",
        lambda _: str(wish).removesuffix(" without quotes"),
        lines,
        flags=re.M,
    )

    assert written != lines
    assert load(f"{head}{written}\n").problems == ()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"model": "gemma"}, "modelRef"),
        ({"runtime": "llamacpp-router", "model": [{"name": "gemma"}]}, "models"),
        ({"modelRef": "gemma", "contextsize": 512}, "contextSize"),
    ],
)
def test_a_field_that_was_meant_is_right_in_its_place(
    wrong: Mapping[str, object], right: str
) -> None:
    (problem,) = load(document("InferenceService", "talk", wrong)).problems

    assert problem.message == f'no such field; did you mean "{right}"?'
    corrected = {right if f"spec.{name}" == problem.field else name: v for name, v in wrong.items()}
    assert load(document("InferenceService", "talk", corrected)).problems == ()


@pytest.mark.parametrize(
    "lines",
    [
        "  modelRef: gemma\n   contextSize: 512",
        "  modelRef: gemma\n contextSize: 512",
        "  modelRef: gemma\n    contextSize: 512\n  replicas: 1",
        "   modelRef: gemma\n  contextSize: 512",
        "  modelRef gemma\n  contextSize: 512",
        "  modelRef: gemma\n  contextSize:512\n  replicas: 1",
    ],
)
def test_text_that_is_no_yaml_is_mended_by_what_its_message_says(lines: str) -> None:
    text = f"{OF_SERVICE}{lines}\n"
    (problem,) = load(text).problems
    rows = text.split("\n")
    found = rows[problem.line - 1]

    if spaces := re.search(r"write (?:[0-9]+ or )?([0-9]+)$", problem.message):
        rows[problem.line - 1] = " " * int(spaces[1]) + found.lstrip()
    else:
        (line,) = re.findall(r"write `(.+)`$", problem.message)
        rows[problem.line - 1] = " " * (problem.column - 1) + line

    assert rows[problem.line - 1] != found
    assert load("\n".join(rows)).problems == ()


@pytest.mark.parametrize(
    ("pasted", "right"),
    [
        ("https://huggingface.co/o/r/blob/main/q/a.gguf", "hf://o/r/q/a.gguf"),
        ("https://hf.co/o/r/blob/v2/a%20b.gguf?x=1", "hf://o/r/a b.gguf@v2"),
        ("https://huggingface.co/o/r/raw/main/a.gguf", "hf://o/r/a.gguf"),
        ("https://huggingface.co/o/r?show_file_info=a.gguf", "hf://o/r/a.gguf"),
        ("huggingface.co/o/r/resolve/main/a.gguf", "hf://o/r/a.gguf"),
        ("https://huggingface.co/o/r", "hf://o/r/FILE.gguf"),
        ("https://huggingface.co/o/r/tree/v2", "hf://o/r/FILE.gguf@v2"),
        ("hf.co/o/r", "hf://o/r/FILE.gguf"),
        ("hf.co/o/r:Q8_0", 'hf://o/r with `files: ["*Q8_0*"]`'),
        ("hf://o/r:Q8_0", 'hf://o/r with `files: ["*Q8_0*"]`'),
        ("o/r:Q8_0", 'hf://o/r with `files: ["*Q8_0*"]`'),
        ("o/r", "hf://o/r/FILE.gguf"),
        ("hf:o/r/a.gguf", "hf://o/r/a.gguf"),
        ("huggingface://o/r/a.gguf", "hf://o/r/a.gguf"),
        ("ollama run hf.co/o/r:Q8_0", 'hf://o/r with `files: ["*Q8_0*"]`'),
        ("llama-server -hf o/r:Q8_0 --port 80", 'hf://o/r with `files: ["*Q8_0*"]`'),
        ("hf download o/r a.gguf --local-dir .", "hf://o/r/a.gguf"),
        ("ollama pull qwen3:8b", "hf://ORG/REPO/FILE.gguf"),
        ("ollama://qwen3", "hf://ORG/REPO/FILE.gguf"),
        ("qwen3:8b", "hf://ORG/REPO/FILE.gguf"),
        ("https://github.com/o/r/blob/main/a.gguf", "https://github.com/o/r/raw/main/a.gguf"),
        ("https://gitlab.com/o/r/-/blob/main/a.gguf", "https://gitlab.com/o/r/-/raw/main/a.gguf"),
    ],
)
def test_a_pasted_address_is_answered_with_the_source_that_it_means(
    pasted: str, right: str, tmp_path: Path
) -> None:
    write_fleet(tmp_path, {"m.yaml": model("gemma", source=pasted)})
    (problem,) = load_folder(tmp_path).problems
    assert f"write {right}" in problem.message

    source, _, files = right.partition(" with `files: ")
    spec = {"source": source} | ({"files": json.loads(files.rstrip("`"))} if files else {})
    assert load_texts(document("Model", "gemma", spec)).problems == ()


@pytest.mark.parametrize("source", ["o/r.gguf", "o:r.gguf", "o/r:x", "o/r"])
def test_a_path_that_leads_to_a_file_is_no_pasted_address(source: str, tmp_path: Path) -> None:
    write_fleet(tmp_path, {"m.yaml": model(source=source), source: ""})
    tiny_llama(tmp_path / source)

    assert load_folder(tmp_path).problems == ()


@pytest.mark.parametrize("source", ["a.gguf", "sub//a.gguf"])
def test_a_path_that_begins_elsewhere_is_answered_with_the_one_that_works(
    source: str, tmp_path: Path
) -> None:
    write_fleet(tmp_path, {"sub/m.yaml": model(source=source)})
    tiny_llama(tmp_path / "sub/a.gguf")
    (problem,) = load_folder(tmp_path, path="sub").problems
    (right,) = re.findall(r"write (.+)$", problem.message)

    write_fleet(tmp_path, {"sub/m.yaml": model(source=right)})
    assert load_folder(tmp_path, path="sub").problems == ()


def test_a_remote_that_refuses_is_read_when_the_options_that_it_names_are_given(
    tmp_path: Path,
) -> None:
    repo = Repo.create(tmp_path)
    repo.publish({"node.yaml": NODE})
    token, authority = tmp_path / "token", tmp_path / "authority.pem"
    certificate, key = self_signed(tmp_path / "tls", "127.0.0.1")
    server = GitServer(repo.remote.parent, certificate=(certificate, key), token="right")

    def refusal(**files: Path) -> str:
        """What the remote's refusal is called, and how it is ended; empty: it is read."""
        source = GitSource(
            server.url(repo.remote.name),
            cache_dir=tmp_path / "cache",
            credentials=GitCredentials(**files),
        )
        try:
            source.fetch()
        except SourceError as error:
            return str(error).removeprefix(f"{source.location}: ")
        return ""

    server.start()
    try:
        assert "--ca-file FILE" in refusal()
        authority.write_text(self_signed(tmp_path / "other", "127.0.0.1")[0].read_text())
        assert f"put its authority, or the self-signed certificate itself, into {authority}" in (
            refusal(ca_file=authority)
        )
        authority.write_bytes(certificate.read_bytes())
        assert "name a token with --git-token-file" in refusal(ca_file=authority)
        assert f"--git-token-file {token}: cannot be read: No such file or directory" == (
            refusal(ca_file=authority, token_file=token)
        )
        token.write_text("expired")
        assert f"refused the token of {token} (401)" in (
            refusal(ca_file=authority, token_file=token)
        )
        token.write_text("no-rights")
        assert f"give the token of {token} the right to read" in (
            refusal(ca_file=authority, token_file=token)
        )
        token.write_text("right")
        assert refusal(ca_file=authority, token_file=token) == ""
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("https://no-such-host.invalid/x.git", "the name no-such-host.invalid is not known here"),
    ],
)
def test_what_git_says_is_said_in_our_words(location: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=re.escape(said)):
        GitSource(location, cache_dir=tmp_path).fetch()


@pytest.mark.parametrize("flag", ["-dev", "--device"])
def test_which_device_is_said_by_the_variable_that_the_refusal_names(flag: str) -> None:
    (refused,) = load(service("talk", "gemma", extraArgs=[flag, "1"])).problems
    (name,) = re.findall(r"env, with the name (\w+)", refused.message)

    assert load(service("talk", "gemma", env=[{"name": name, "value": "1"}])).problems == ()


def test_what_is_not_in_the_list_of_arguments_is_answered_with_the_command_that_prints_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problems = load(
        service("talk", "gemma", extraArgs=["--zzz"], env=[{"name": "ZZZ", "value": "1"}])
    ).problems
    for problem in problems:
        assert problem.message.endswith("; `reconcile schema --arguments` prints it")

    assert main(["schema", "--arguments"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0] == "llama-server"
    flags = listed[1].removeprefix("  extraArgs: ").split()
    assert not RUNTIMES["llama-server"].check_args((flags[0], "1"))
    assert "CUDA_(VISIBLE_DEVICES|DEVICE_ORDER)" in listed[2].split()


def test_a_commit_of_no_branch_is_said_with_the_way_back_to_one(tmp_path: Path) -> None:
    repo = Repo.create(tmp_path)
    commit = repo.publish({"node.yaml": NODE})
    branch = repo.git("branch", "--show-current").strip()
    _, args = read(f"reconcile --once --local -C {repo.work}")
    assert list(beside_the_commit(args)) == []

    repo.git("checkout", "-q", "--detach")
    (said,) = beside_the_commit(args)
    assert said.startswith(f"HEAD is detached: commit {commit[:7]} is applied")

    (way,) = re.findall(r"`git (.+)`", said)
    repo.git(*way.replace("BRANCH", branch).split())
    assert list(beside_the_commit(args)) == []
