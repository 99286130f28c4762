"""Loading a fleet: every problem of every file, in its place, and the laws of loading."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.errors import SourceError
from reconciler.api.meta import GROUP, ObjectRef
from reconciler.api.model import Model
from reconciler.api.problem import Finding, Severity
from reconciler.fleet.fleet import Fleet
from reconciler.fleet.model_file import ModelFile, model_file
from reconciler.report.problems import as_text
from reconciler.source.documents import read_documents
from reconciler.source.load import LoadCache
from tests.support.fleets import (
    document,
    load_folder,
    load_texts,
    model,
    node,
    service,
    small_fleet,
    write_fleet,
)
from tests.support.gguf_models import tiny_llama

CASES = Path(__file__).parents[1] / "cases" / "invalid"
UPDATE = "FLEET_UPDATE_CASES"  # =1 writes what is printed now as expected; look at the diff

SEED_SERVICE = """\
apiVersion: inference.llmkube.dev/v1alpha1
kind: InferenceService
metadata:
  name: edge-multi-model
spec:
  runtime: llamacpp-router
  models:
    - name: phi4-mini
    - name: qwen3-7b-coder
    - name: gemma3-4b-summarizer
  resources:
    requests:
      nvidia.com/gpu: 1
  # one Service, one endpoint; clients pick the model via the OAI
  # `model` field on /v1/chat/completions just like today.
"""


@pytest.mark.parametrize("case", sorted(p.name for p in CASES.iterdir()))
def test_an_invalid_fleet_is_reported_as_expected(case: str) -> None:
    loaded = load_folder(CASES / case)

    told = as_text(loaded.problems, loaded.counts)
    expected = CASES / case / "expected.txt"
    if os.environ.get(UPDATE):
        expected.write_text(told)
    assert told == expected.read_text(), f"{UPDATE}=1 updates it"


def test_every_case_has_a_problem_and_every_problem_a_line_of_its_file() -> None:
    for case in CASES.iterdir():
        problems = load_folder(case).problems
        assert problems, case.name
        for problem in problems:
            lines = (case / problem.path).read_text().splitlines()
            assert 1 <= problem.line <= len(lines), problem
            assert problem.message.strip()


def test_the_service_of_the_router_proposal_is_valid_unchanged(tmp_path: Path) -> None:
    names = ("phi4-mini", "qwen3-7b-coder", "gemma3-4b-summarizer")
    models = {f"{name}.yaml": model(name) for name in names}
    write_fleet(tmp_path, {"edge.yaml": SEED_SERVICE, "node.yaml": node(), **models})

    loaded = load_folder(tmp_path)

    assert loaded.problems == ()
    assert loaded.fleet
    assert len(loaded.fleet.objects) == 5


def test_a_small_fleet_has_its_objects_origins_and_counts(tmp_path: Path) -> None:
    files = small_fleet()
    files["both.yaml"] = f"# two\n---\n{model('a')}---\n\n{model('b')}---\nkind: Other\n"

    loaded = load_folder(write_fleet(tmp_path, files))

    assert loaded.fleet
    assert {ref.label for ref in loaded.fleet.objects} == {
        "mac",
        "default/gemma",
        "default/chat",
        "default/a",
        "default/b",
    }
    origin = loaded.fleet.origins[ObjectRef("Model", "default", "b")]
    assert (origin.path, origin.line, origin.document) == ("both.yaml", 10, 1)
    assert (loaded.counts.files, loaded.counts.documents, loaded.counts.others) == (4, 5, 1)
    assert list(loaded.files) == ["both.yaml", "model.yaml", "node.yaml", "service.yaml"]
    assert [ref.label for ref in loaded.files["both.yaml"]] == ["default/a", "default/b"]


def test_a_finding_of_anybody_gets_its_line(tmp_path: Path) -> None:
    loaded = load_folder(write_fleet(tmp_path, {"x.yaml": f"# c\n---\n{model()}---\n{service()}"}))
    ref = ObjectRef("InferenceService", "default", "chat")

    problem = loaded.problem(Finding("MemoryFits", ref, "spec.contextSize", "too much"))

    assert (problem.path, problem.line, problem.column) == ("x.yaml", 12, 1)
    assert problem.severity is Severity.BLOCKED
    assert loaded.line(ref, "spec.modelRef") == 13
    nobody = ObjectRef("Model", "default", "nobody")
    assert loaded.problem(Finding("Schema", nobody, "", "x")).line == 1


def test_one_wrong_file_does_not_hide_the_others() -> None:
    loaded = load_texts("spec: [ # inference.llmkube.dev/\n", service(model="nope"), model(sha="x"))

    assert [p.rule for p in loaded.problems] == ["YamlSyntax", "DanglingReference", "Schema"]
    assert loaded.fleet is None


def test_a_warning_does_not_refuse_the_fleet() -> None:
    loaded = load_texts(
        *small_fleet().values(), document("FleetNode", "pc", {"agent": {}}, namespace="x")
    )

    assert [p.rule for p in loaded.problems] == ["FieldIgnored"]
    assert loaded.fleet is not None


# --- files that lost their documents ------------------------------------------------------------


@pytest.mark.parametrize("content", ["", "# was here\n", "kind: Model\nspec: [\n", "a: 1\n"])
def test_a_file_that_lost_its_header_is_an_error(tmp_path: Path, content: str) -> None:
    write_fleet(tmp_path, {**small_fleet(), "lost.yaml": content})

    loaded = load_folder(tmp_path, held={"lost.yaml", "model.yaml"})

    assert [(p.path, p.rule) for p in loaded.problems] == [("lost.yaml", "HeaderLost")]
    assert loaded.fleet is None


def test_a_file_that_is_gone_is_a_removal(tmp_path: Path) -> None:
    write_fleet(tmp_path, small_fleet())

    assert load_folder(tmp_path, held={"gone.yaml"}).problems == ()


def test_a_file_that_excludes_itself_is_a_removal(tmp_path: Path) -> None:
    write_fleet(tmp_path, {**small_fleet(), "old.yaml": f"# fleet: ignore\n{model('old')}"})

    assert load_folder(tmp_path, held={"old.yaml"}).problems == ()


def test_a_file_that_became_a_link_is_an_error(tmp_path: Path) -> None:
    write_fleet(tmp_path, {**small_fleet(), "real.txt": model("other")})
    (tmp_path / "other.yaml").symlink_to("real.txt")

    loaded = load_folder(tmp_path, held={"other.yaml"})

    assert [(p.path, p.rule) for p in loaded.problems] == [("other.yaml", "HeaderLost")]


# --- model files in the repository --------------------------------------------------------------


def test_a_model_file_gives_its_digest_and_its_facts(tmp_path: Path) -> None:
    tiny_llama(tmp_path / "tiny.gguf")
    write_fleet(tmp_path, {"node.yaml": node(), "m.yaml": model(source="tiny.gguf")})

    loaded = load_folder(tmp_path)

    assert loaded.fleet
    stored = loaded.fleet.files["tiny.gguf"]
    assert stored.size_bytes == (tmp_path / "tiny.gguf").stat().st_size
    assert loaded.facts[ObjectRef("Model", "default", "gemma")].architecture == "llama"


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "is not in the fleet's folder"),
        (b"", "GGUF"),
        (b"GGUF" + b"\xff" * 100, "GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    ],
)
def test_an_unreadable_model_is_blocked_and_says_what_to_do(
    tmp_path: Path, content: bytes | None, part: str
) -> None:
    write_fleet(tmp_path, {**small_fleet(), "m.yaml": model("own", source="models/own.gguf")})
    if content is not None:
        write_fleet(tmp_path, {"models/own.gguf": content})

    loaded = load_folder(tmp_path)

    (problem,) = loaded.problems
    assert (problem.path, problem.line, problem.rule) == ("m.yaml", 5, "ModelUnreadable")
    assert part in problem.message
    assert loaded.fleet
    assert [finding.rule for finding in loaded.fleet.held] == ["ModelUnreadable"]


def test_a_model_whose_bytes_are_not_the_stated_ones_is_blocked(tmp_path: Path) -> None:
    tiny_llama(tmp_path / "tiny.gguf")
    write_fleet(tmp_path, {"m.yaml": model(source="tiny.gguf", sha256="0" * 64)})

    (problem,) = load_folder(tmp_path).problems

    assert (problem.rule, problem.field, problem.line) == ("ModelUnreadable", "spec.sha256", 6)


# --- laws ---------------------------------------------------------------------------------------


def dumped(loaded: Any) -> dict[str, Any]:
    """Every object as it would be written again."""
    assert loaded.fleet, loaded.problems
    return {
        str(ref): thing.model_dump(by_alias=True, exclude_unset=True, mode="json")
        for ref, thing in loaded.fleet.objects.items()
    }


SERVICE_SPECS = st.fixed_dictionaries(
    {"modelRef": st.just("gemma")},
    optional={
        "contextSize": st.integers(128, 2**20),
        "parallelSlots": st.integers(1, 16),
        "flashAttention": st.sampled_from([True, False, "auto"]),
        "promptCache": st.sampled_from([0, 1024, "256Mi", "1.5G", "12Gi"]),
        "cacheTypeK": st.sampled_from(["f16", "q8_0"]),
        "sleepIdle": st.sampled_from(["30s", "1m30s", "500ms"]),
        "suspend": st.booleans(),
        "replicas": st.integers(0, 3),
        "placement": st.sampled_from([{"nodes": ["mac"]}, {"nodeSelector": {"a/b": "c"}}]),
        "rollout": st.sampled_from([{"drainTimeout": "1m"}, {"onUpgrade": "restart"}]),
        "env": st.just([{"name": "LLAMA_LOG_COLORS", "value": "off"}]).map(lambda _: []),
        "memory": st.sampled_from([{"budget": "12Gi"}, {"fraction": 0.5, "mode": "warn"}]),
        "resources": st.just({"requests": {"nvidia.com/gpu": 1}, "limits": {"cpu": "2"}}),
    },
)


@given(SERVICE_SPECS)
@settings(max_examples=60, deadline=None)
def test_dump_then_load_is_the_same_fleet(spec: dict[str, Any]) -> None:
    first = load_texts(node(), model(), document("InferenceService", "chat", spec))

    second = load_texts(*(json.dumps(thing) for thing in dumped(first).values()))

    assert first.fleet
    assert second.fleet, second.problems
    assert second.fleet.objects == first.fleet.objects
    assert dumped(second) == dumped(first)


@given(SERVICE_SPECS, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_file_order_and_key_order_do_not_matter(spec: dict[str, Any], order: random.Random) -> None:
    texts = [node(), model(), document("InferenceService", "chat", spec)]
    keys = list(spec)
    order.shuffle(keys)
    shuffled = [*texts[:2], document("InferenceService", "chat", {key: spec[key] for key in keys})]
    order.shuffle(shuffled)

    assert dumped(load_texts(*shuffled)) == dumped(load_texts(*texts))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["spec", "metadata", "kind", "modelRef", "models", "runtime", "runtimeOptions", "contextSize",
     "memory", "budget", "placement", "nodes", "env", "extraArgs", "agent", "kubernetes", "source",
     "hardware", "devices", "name", "namespace", "labels", "annotations", "status", "zz"]
)  # fmt: skip


def mutate(document: Any, path: list[str], value: object) -> Any:
    """The document with one value replaced, somewhere below it."""
    if not path or not isinstance(document, dict):
        return value
    return {**document, path[0]: mutate(document.get(path[0], {}), path[1:], value)}


@given(
    st.sampled_from([node(), model(), service(), SEED_SERVICE]),
    st.lists(
        st.tuples(st.lists(KEYS, min_size=1, max_size=4), JSON_VALUES), min_size=1, max_size=4
    ),
)
@settings(max_examples=300, deadline=None)
def test_no_document_crashes_and_every_refusal_names_a_line(
    text: str, mutations: list[tuple[list[str], Any]]
) -> None:
    content: Any = read_documents("x", text.encode()).documents[0].content
    for path, value in mutations:
        content = mutate(content, path, value)
    written = json.dumps(content, indent=1).replace("NaN", ".nan").replace("Infinity", ".inf")

    loaded = load_texts(written, node("pc"), model("phi"))

    assert (loaded.fleet is None) == any(p.severity is Severity.ERROR for p in loaded.problems)
    for problem in loaded.problems:
        assert 1 <= problem.line <= written.count("\n") + 1
        assert problem.message


@given(st.lists(st.binary(max_size=200), max_size=4))
@settings(max_examples=60, deadline=None)
def test_no_bytes_crash_the_loader(files: list[bytes]) -> None:
    load_texts(*(b"# inference.llmkube.dev/\n" + data for data in files))


# --- the cache ----------------------------------------------------------------------------------


def test_only_changed_files_are_made_anew(tmp_path: Path) -> None:
    write_fleet(tmp_path, small_fleet())
    cache = LoadCache()
    before = load_folder(tmp_path, cache=cache)
    write_fleet(tmp_path, {"service.yaml": service(contextSize=4096), "node.yaml": node("mac")})

    after = load_folder(tmp_path, cache=cache)

    assert before.fleet
    assert after.fleet
    kept = ObjectRef("Model", "default", "gemma")
    changed = ObjectRef("InferenceService", "default", "chat")
    assert after.fleet.objects[kept] is before.fleet.objects[kept]
    assert after.fleet.objects[changed] != before.fleet.objects[changed]


def test_the_cache_holds_no_more_than_the_last_load(tmp_path: Path) -> None:
    cache = LoadCache()
    tiny_llama(tmp_path / "tiny.gguf")
    write_fleet(tmp_path, {"a.yaml": model("a", source="tiny.gguf"), "b.yaml": model("b")})
    load_folder(tmp_path, cache=cache)
    (tmp_path / "a.yaml").unlink()

    loaded = load_folder(tmp_path, cache=cache)

    assert loaded.fleet
    assert [m.metadata.name for m in loaded.fleet.all(Model)] == ["b"]
    assert len(cache.files) == 1
    assert cache.headers.known == {}


def test_a_flood_of_problems_is_cut(tmp_path: Path) -> None:
    many = "---\n".join(service(f"s{n}", model=f"m{n}") for n in range(900))
    write_fleet(tmp_path, {"a.yaml": many, "b.yaml": many.replace('name": "s', 'name": "t')})

    loaded = load_folder(tmp_path)

    assert len(loaded.problems) == 1_001
    assert "800 more problems" in loaded.problems[-1].message
    assert loaded.fleet is None


def test_files_that_are_too_much_together_are_refused() -> None:
    many_documents = f"# {GROUP}/\n" + "---\na\n" * 999
    many_bytes = f"# {GROUP}/\n" + "#" * 2**19

    with pytest.raises(SourceError, match=r"yaml: with this file .* more than 200,000 documents"):
        load_texts(*[many_documents] * 210)
    with pytest.raises(SourceError, match="more than 1,000 files are equal to this one"):
        load_texts(*[f"# {GROUP}/\n"] * 1_001)
    with pytest.raises(SourceError, match="hold more than 128 MiB"):
        load_texts(*[many_bytes] * 260)


def test_a_path_that_was_meant_from_the_documents_folder_is_said_as_it_is_written(
    tmp_path: Path,
) -> None:
    files = {"lab/model.yaml": model("m", source="m/", format="mlx"), "lab/m/x.safetensors": b"x"}

    (problem,) = load_folder(write_fleet(tmp_path, files)).problems

    assert problem.message.endswith("begin at the top of the fleet's folder; write lab/m/")


def test_a_path_that_begins_at_this_folder_is_the_same_path(tmp_path: Path) -> None:
    def read(source: str) -> tuple[Fleet, ModelFile]:
        root = write_fleet(
            tmp_path / "fleet",
            {"m.yaml": model("m", source=source), "models/m.gguf": tiny.read_bytes()},
        )
        fleet = load_folder(root).fleet
        assert fleet is not None
        (found,) = fleet.all(Model)
        return fleet, model_file(found, fleet)

    tiny = tiny_llama(tmp_path / "tiny.gguf")

    dotted, plain = read("./models/m.gguf"), read("models/m.gguf")

    assert dotted[1] == plain[1]
    assert dotted[1].sha256 is not None
    assert dotted[0].files == plain[0].files
