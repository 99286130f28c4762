"""Documents that were meant to be ours, and those that only look like it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from reconciler.api.meta import API_VERSION, GROUP
from reconciler.source.checkout import Checkout
from reconciler.source.directory import DirectorySource
from reconciler.source.load import Loaded, reader
from reconciler.source.mark import may_be_ours
from reconciler.source.open import open_source
from reconciler.source.worktree import WorktreeSource
from tests.support.fleets import MemoryCheckout, load_texts, model, node, service, write_fleet
from tests.support.repos import Repo

FLEET = {"node.yaml": node(), "model.yaml": model()}


def under(version: str, text: str = "") -> str:
    return (text or service()).replace(API_VERSION, version)


def folder(root: Path, files: Mapping[str, str]) -> Checkout:
    return DirectorySource(write_fleet(root, files)).fetch()


def worktree(root: Path, files: Mapping[str, str]) -> Checkout:
    repo = Repo.create(root)
    repo.publish(FLEET)
    write_fleet(repo.work, files)
    return WorktreeSource(repo.work).fetch()


def commit(root: Path, files: Mapping[str, str]) -> Checkout:
    repo = Repo.create(root)
    repo.publish(files)
    return open_source(str(repo.work), cache_dir=root / "cache").fetch()


Make = Callable[[Path, Mapping[str, str]], Checkout]
SOURCES = pytest.mark.parametrize("make", [folder, worktree, commit])


def read(checkout: Checkout) -> Loaded:
    return reader()(checkout, frozenset())


@pytest.mark.parametrize(
    "version",
    [
        "inference.llmkub.dev/v1alpha1",
        "inference.lmkube.dev/v1alpha1",
        "inference.llmkbue.dev/v1alpha1",
        "infrence.llmkub.dev/v1alpha1",
        "Inference.LLMKube.dev/v1alpha1",
        "inference.llmkube.io/v1alpha1",
        "llmkube.dev/v1alpha1",
        "inference.llmkube.dev",
        "v1alpha1",
        "v1",
    ],
)
@SOURCES
def test_a_document_under_nearly_our_group_is_an_error(
    make: Make, version: str, tmp_path: Path
) -> None:
    (problem,) = read(make(tmp_path, FLEET | {"chat.yaml": under(version)})).errors

    assert (problem.path, problem.line, problem.field) == ("chat.yaml", 1, "apiVersion")
    assert problem.rule == "UnknownKind"
    assert problem.message == f'"{version}" is not our group; write {API_VERSION}'


@pytest.mark.parametrize("style", ["plain", "json", "flow", "quoted"])
def test_it_is_known_however_it_is_written(style: str) -> None:
    text = {
        "plain": "kind: FleetNode  # ours\napiVersion: v1alpha1\n",
        "json": '{"kind": "FleetNode", "apiVersion": "v1alpha1"}',
        "flow": "{apiVersion: v1alpha1, kind: FleetNode}",
        "quoted": "apiVersion: 'v1alpha1'\n'kind' : \"FleetNode\"",
    }[style]

    assert may_be_ours(text.encode())
    assert [p.rule for p in load_texts(text).problems] == ["UnknownKind"]


def test_a_forgotten_api_version_is_an_error_and_the_reference_to_it_is_not() -> None:
    text = model().replace(f"apiVersion: {API_VERSION}\n", "")

    found = load_texts(node(), text, service()).problems

    assert [(p.path, p.rule, p.field) for p in found] == [("1.yaml", "UnknownKind", "")]
    assert f"write {API_VERSION}" in found[0].message


def listed(head: str, text: str) -> str:
    """A document as an item of a list."""
    return f"{head}- " + text.rstrip().replace("\n", "\n  ") + "\n"


@pytest.mark.parametrize(
    "head", ["apiVersion: v1\nkind: List\nitems:\n", "kind: List\nitems:\n", ""]
)
@pytest.mark.parametrize(
    "version", [API_VERSION, "inference.llmkub.dev/v1alpha1", "v1alpha1", None]
)
@SOURCES
def test_a_list_of_documents_that_were_meant_to_be_ours_is_an_error(
    make: Make, head: str, version: str | None, tmp_path: Path
) -> None:
    one = under(version) if version else service().replace(f"apiVersion: {API_VERSION}\n", "")

    (problem,) = read(make(tmp_path, FLEET | {"chat.yaml": listed(head, one)})).errors

    assert (problem.path, problem.rule) == ("chat.yaml", "UnknownKind")
    assert "is not read; write its items as documents of their own" in problem.message


@pytest.mark.parametrize("version", ["inference.llmkub.dev/v1alpha1", "llmkube.dev/v1"])
def test_a_list_under_nearly_our_group_is_an_error(version: str) -> None:
    text = listed(f"apiVersion: {version}\nkind: List\nitems:\n", service())

    (problem,) = load_texts(node(), model(), text).problems

    assert problem.message == f'"{version}" is not our group; write {API_VERSION}'


OTHERS = {
    "kserve.yaml": under("serving.kserve.io/v1beta1"),
    "agones.yaml": under("agones.dev/v1").replace("InferenceService", "Fleet"),
    "seldon.yaml": under("mlops.seldon.io/v1alpha1", model()),
    "gateway.yaml": under("inference.networking.x-k8s.io/v1", model()),
    "both.yaml": f"apiVersion: v1\nkind: ConfigMap\n---\n{under('serving.kserve.io/v1')}",
    "helm.yaml": f"{under('{{ .Values.api }}')}{{{{ end }}}}\n",
    "broken.yaml": f"{under('v1')}oops: [",
    "plain.yaml": "kind: Model\nname: x\n",
    "list.yaml": listed("apiVersion: v1\nkind: List\nitems:\n", under("serving.kserve.io/v1")),
    "playbook.yaml": "- name: x\n  kind: Model\n",
    "odd.yaml": "kind: [Model]\nx: {kind: Model}\n",
}


@SOURCES
def test_documents_of_others_stay_out_of_it(make: Make, tmp_path: Path) -> None:
    loaded = read(make(tmp_path, FLEET | OTHERS))

    assert loaded.problems == ()
    assert (loaded.counts.files, loaded.counts.documents, loaded.counts.others) == (2, 2, 0)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32"])
def test_a_file_of_wide_letters_is_ours_and_has_to_be_saved_as_utf8(encoding: str) -> None:
    checkout = MemoryCheckout(
        {"a.yaml": model("a").encode(), "b.yaml": model("b").encode(encoding)}
    )

    (problem,) = read(checkout).problems

    assert (problem.path, problem.rule) == ("b.yaml", "FileUnreadable")
    assert "save the file as UTF-8" in problem.message
    assert not may_be_ours("kind: ConfigMap\n".encode(encoding))


def test_a_kind_that_only_begins_like_ours_is_not_ours() -> None:
    assert not may_be_ours(b"apiVersion: v1\nkind: ModelDeployment\n")
    assert not may_be_ours(b"apiVersion: v1\nkind: Model-x\n")


@SOURCES
def test_json_and_endings_in_capitals_are_read(make: Make, tmp_path: Path) -> None:
    written = {"apiVersion": API_VERSION, "kind": "Model", "metadata": {"name": "j"}}
    found = json.dumps(written | {"spec": {"source": "https://x.test/a.gguf"}}, indent="\t")
    files = {"a.json": found, "B.YAML": model("b"), "c.Yml": model("c"), "package.json": "{}"}

    loaded = read(make(tmp_path, FLEET | files))

    assert loaded.problems == ()
    assert loaded.counts.documents == 5
    wrong = found.replace("source", "src")
    (problem,) = read(folder(tmp_path / "wrong", FLEET | {"a.json": wrong})).errors
    assert (problem.path, problem.line, problem.field) == ("a.json", 8, "spec.src")


@SOURCES
@pytest.mark.parametrize("group", ["flexinfer.ai", "ai.flexinfer", "inference.flexinfer.ai"])
def test_a_document_of_kin_is_named_with_what_to_write_instead(
    make: Make, group: str, tmp_path: Path
) -> None:
    text = f"apiVersion: {group}/v1alpha2\nkind: Model\nmetadata: {{name: qwen}}\n"

    loaded = read(make(tmp_path, FLEET | {"a.yaml": text, "b.yaml": f"{model('b')}---\n{text}"}))

    assert [(p.path, p.line, p.rule, p.severity) for p in loaded.problems] == [
        ("a.yaml", 2, "NotRead", "warning"),
        ("b.yaml", 8, "NotRead", "warning"),
    ]
    (said,) = {p.message for p in loaded.problems}
    assert "`reconcile deploy qwen --source SOURCE`" in said
    assert loaded.fleet is not None
    ours = text.replace(f"{group}/v1alpha2", API_VERSION).replace("Model", "ModelDeployment")
    under_ours = read(folder(tmp_path / "ours", {"a.yaml": ours}))
    assert "write a Model and an InferenceService" in under_ours.problems[0].message


def test_a_held_file_whose_group_is_misspelt_says_the_right_one(tmp_path: Path) -> None:
    checkout = folder(tmp_path, FLEET | {"chat.yaml": under(f"{GROUP}x/v1alpha1")})

    (problem,) = reader()(checkout, frozenset({"chat.yaml"})).errors

    assert problem.rule == "UnknownKind"
