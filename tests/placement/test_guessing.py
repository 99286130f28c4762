"""Models that guess tokens for others: fetched beside them, and refused where they cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.process.launch import Launch
from agent.process.rebuilt import models_of
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef
from reconciler.api.model import Model
from reconciler.core.field_changes import field_changes
from reconciler.fleet.command import Command
from reconciler.fleet.model_file import known_by, public_inputs
from reconciler.kube.render.declared import declared
from reconciler.memory import ModelFacts
from reconciler.placement.assignment import assign
from reconciler.source.load import Loaded
from tests.placement.test_placement import facts, fleet, model, node, rules, service
from tests.support.fleets import load_texts
from tests.support.fleets import model as model_text
from tests.support.fleets import node as node_text
from tests.support.fleets import service as service_text
from tests.support.manifests import (
    CLUSTER,
    desired_of,
    engine_of,
    init_containers,
    one_service,
    pool,
    rendered,
)

BIG, SMALL = ObjectRef("Model", "default", "m"), ObjectRef("Model", "default", "small")
SPEAKS = replace(facts(), vocabulary=32000, tokenizer="llama", first_tokens="ab")
HEADS = replace(SPEAKS, architecture="qwen35", heads=1)


def guessed(type: str, *, draft: str | None = None, **known: ModelFacts) -> Any:
    """What becomes of a service of `m`, with what is known of `m` and `small`."""
    own = {"type": type} | ({"draftModelRef": draft} if draft else {})
    refs = {"m": BIG, "small": SMALL}
    objects = (node(), model(), model("small"), service(speculativeDecoding=own))
    return assign(fleet(*objects), {refs[name]: each for name, each in known.items()})


@pytest.mark.parametrize(
    ("way", "draft", "m", "small", "why"),
    [
        pytest.param("draft-simple", "small", SPEAKS, SPEAKS, "", id="of its family"),
        pytest.param(
            "draft-simple",
            "small",
            SPEAKS,
            replace(SPEAKS, vocabulary=32128, first_tokens="ab"),
            "",
            id="padded",
        ),
        pytest.param(
            "draft-simple",
            "small",
            SPEAKS,
            replace(SPEAKS, vocabulary=32129),
            "Model small has another vocabulary than m: 32129 tokens and not 32000; ",
            id="longer",
        ),
        pytest.param(
            "draft-simple",
            "small",
            SPEAKS,
            replace(SPEAKS, tokenizer="gpt2"),
            "gpt2 and not llama",
            id="of another kind",
        ),
        pytest.param(
            "draft-simple",
            "small",
            SPEAKS,
            replace(SPEAKS, first_tokens="cd"),
            "other words among the first 1024 tokens",
            id="other words",
        ),
        pytest.param(
            "draft-eagle3",
            "small",
            SPEAKS,
            SPEAKS,
            "Model small is llama; write type: draft-simple",
            id="no EAGLE",
        ),
        pytest.param(
            "draft-simple",
            "small",
            SPEAKS,
            replace(SPEAKS, architecture="eagle3", vocabulary=8000),
            "Model small is eagle3; write type: draft-eagle3",
            id="an EAGLE",
        ),
        pytest.param("draft-mtp", None, HEADS, None, "", id="heads"),
        pytest.param(
            "mtp", None, replace(HEADS, heads=0), None, "Model m has no heads", id="no heads"
        ),
        pytest.param(
            "draft-mtp",
            None,
            replace(HEADS, architecture="glm4"),
            None,
            "Model m is glm4, whose heads llama.cpp does not use",
            id="heads that nobody uses",
        ),
        pytest.param("draft-mtp", "small", SPEAKS, HEADS, "", id="heads beside it"),
        pytest.param(
            "draft-mtp", "small", HEADS, SPEAKS, "Model small has no heads", id="none beside it"
        ),
        pytest.param("ngram-mod", None, SPEAKS, None, "", id="the text"),
    ],
)
def test_what_cannot_guess_for_a_model_is_refused_by_the_headers(
    way: str, draft: str | None, m: ModelFacts, small: ModelFacts | None, why: str
) -> None:
    made = guessed(way, draft=draft, m=m, **({"small": small} if small else {}))

    assert rules(made) == ({"chat": "DraftMismatch"} if why else {})
    if why:
        (held,) = made.holds
        assert why in held.finding.message
        field = "type" if way in ("mtp", "draft-mtp") else "draftModelRef"
        assert held.finding.field == f"spec.speculativeDecoding.{field}"
    else:
        (workload,) = made.workloads
        assert workload.memory.draft_bytes > 0
        assert [m.name for m in workload.model_files] == (["m", "small"] if draft else ["m"])


def test_while_the_header_of_what_guesses_is_unknown_so_is_the_memory() -> None:
    made = guessed("draft-simple", draft="small", m=SPEAKS)

    assert [w.memory for w in made.workloads] == [None]


def test_a_runtime_that_guesses_by_no_model_fetches_none() -> None:
    own = {"type": "draft-simple", "draftModelRef": "small"}
    asked = service(speculativeDecoding=own, runtime="vllm")
    (made,) = assign(
        fleet(node(), model(format="safetensors"), model("small"), asked), {}
    ).workloads

    assert [m.name for m in made.model_files] == ["m"]


def test_a_process_remembers_what_guesses_for_its_model_and_shows_no_signature() -> None:
    own = {"type": "draft-simple", "draftModelRef": "small"}
    url = "https://models.test/small.gguf?signature=secret"
    objects = (node(), model(), model("small", source=url), service(speculativeDecoding=own))
    (made,) = assign(fleet(*objects), {}).workloads
    launch = Launch(made.ref, Command(()), made.inputs, made.inputs_digest, "", made.runtime, 1)

    assert [m.inputs for m in models_of(launch)] == [m.inputs for m in made.models]
    assert "secret" not in str(public_inputs(made.inputs))
    assert not any("secret" in name for name in known_by(made.inputs))
    (m,) = made.models
    other = replace(made, models=(replace(m, draft=replace(m, name="small", sha256="ef" * 32)),))
    changes = field_changes(made.inputs, other.inputs, process_changes=True)
    assert [c.path for c in changes] == ["model.small.sha256", "model.small.source"]


# --- as it is written


def loaded(own: dict[str, Any], **spec: Any) -> Loaded:
    texts = (model_text(), model_text("small"), node_text())
    return load_texts(service_text("chat", speculativeDecoding=own, **spec), *texts)


@pytest.mark.parametrize(
    ("own", "field", "message"),
    [
        ({"type": "draft"}, "type", "draft-simple guesses with another model: name a Model"),
        ({"type": "ngram-mod", "draftModelRef": "small"}, "draftModelRef", "ngram-mod guesses wi"),
        ({"draftModelRef": "small"}, "draftModelRef", "nothing guesses; remove it, or write type"),
        ({"type": "draft", "draftModelRef": "smaller"}, "draftModelRef", 'did you mean "small"?'),
        ({"type": "ngram"}, "type", "is not what guesses; write draft-mtp, draft-simple"),
        ({"type": "ngram-mod", "draftModel": "d.gguf"}, "draftModel", "ngram-mod guesses without"),
        (
            {"type": "draft", "draftModelRef": "small", "draftModel": "d.gguf"},
            "draftModel",
            "draftModelRef names what guesses, too; keep one of them",
        ),
        (
            {"type": "draft-mtp", "draftModel": "../d.gguf"},
            "draftModel",
            "the name of a file; write NAME.gguf",
        ),
        ({"nDraftMax": 4}, "nDraftMax", "nothing guesses; write a type beside it"),
    ],
)
def test_what_makes_no_guess_is_named_with_its_line(
    own: dict[str, Any], field: str, message: str
) -> None:
    (problem,) = loaded(own).problems

    assert problem.field == f"spec.speculativeDecoding.{field}"
    assert message in problem.message
    assert problem.line > 4


def test_arguments_that_guess_are_the_field() -> None:
    words = ["--spec-type", "draft-mtp", "--spec-draft-p-min", "0.75", "--spec-draft-n-max", "2"]

    revision = loaded({}, extraArgs=words)

    assert [p.rule for p in revision.problems] == ["FieldAnswered"] * 3
    assert revision.fleet is not None
    (chat,) = revision.fleet.all(InferenceService)
    own = chat.spec.speculative_decoding
    assert (own.type, own.p_min, own.n_draft_max) == ("draft-mtp", 0.75, 2)
    assert chat.spec.extra_args == ()


def test_a_pod_fetches_what_guesses_with_a_secret_of_its_own_and_is_told_where_it_is() -> None:
    pinned = {"source": "https://models.test/s.gguf", "sha256": "ab" * 32}
    small = model_text("small", **pinned, sourceSecretRef={"name": "hub"})
    own = {"type": "draft-simple", "draftModelRef": "small"}

    made = one_service(models=[model_text("gemma"), small], speculativeDecoding=own)

    (fetch,) = [c for c in init_containers(made) if f"--source={pinned['source']}" in c["args"]]
    assert fetch["envFrom"] == [{"secretRef": {"name": "hub"}}]
    args = engine_of(made)["args"]
    assert args[args.index("--spec-draft-model") + 1] == f"/models/ready/{'ab' * 32}/s.gguf"


# --- a file beside the model


@pytest.mark.parametrize(
    ("source", "files", "draft", "left"),
    [
        ("hf://org/repo/q/m.gguf@v2", [], "hf://org/repo/d.gguf@v2", []),
        ("hf://org/m-GGUF", ["m.gguf", "d.gguf"], "hf://org/m-GGUF/d.gguf", ["m.gguf"]),
        ("https://models.test/x/m.gguf", [], "https://models.test/x/d.gguf", []),
        ("/models/m.gguf", [], "file:///models/d.gguf", []),
        ("weights/m.gguf", [], "weights/d.gguf", []),
    ],
)
def test_a_file_beside_the_model_guesses_as_a_model_of_its_own(
    source: str, files: list[str], draft: str, left: list[str]
) -> None:
    own = {"type": "draft-simple", "draftModel": "d.gguf"}
    described = model_text("gemma", source=source, **({"files": files} if files else {}))
    revision = load_texts(service_text("chat", speculativeDecoding=own), described, node_text())

    standing = revision.standing
    made = standing.get(Model, ObjectRef("Model", "default", "gemma/d.gguf"))
    assert made is not None
    assert made.spec.source == draft
    assert standing.origins[made.ref].path == "1.yaml"
    gemma = standing.get(Model, ObjectRef("Model", "default", "gemma"))
    assert gemma is not None
    assert list(gemma.spec.files) == left
    if "://" in made.spec.source:
        (wanted,) = assign(standing, {made.ref: SPEAKS, gemma.ref: SPEAKS}).workloads
        assert [m.source for m in wanted.model_files] == [gemma.spec.source, draft]
        assert wanted.memory is not None
        assert wanted.memory.draft_bytes > 0


def test_a_draft_beside_a_source_without_files_is_refused() -> None:
    own = {"type": "draft-simple", "draftModel": "d.gguf"}
    image = model_text("gemma", source="oci://registry.test/gemma:1")
    revision = load_texts(service_text("chat", speculativeDecoding=own), image, node_text())

    (problem,) = revision.errors

    assert problem.field == "spec.speculativeDecoding.draftModel"
    assert "no file is beside a oci:// source; declare a Model of it" in problem.message


def test_a_pod_fetches_the_file_beside_its_model_and_no_document_of_it_is_written() -> None:
    own = {"type": "draft-simple", "draftModel": "d.gguf"}
    gemma = model_text("gemma", sourceSecretRef={"name": "hub"})
    chat = service_text("chat", speculativeDecoding=own, placement={"nodes": ["edge"]})

    made = rendered(pool("edge"), gemma, chat)
    written = declared(desired_of(pool("edge"), gemma, chat), CLUSTER)

    (fetch,) = [
        c for c in init_containers(made) if "--source=https://models.test/d.gguf" in c["args"]
    ]
    assert fetch["envFrom"] == [{"secretRef": {"name": "hub"}}]
    assert "--spec-draft-model" in engine_of(made)["args"]
    assert [thing.metadata.name for thing in written if thing.kind == "Model"] == ["gemma"]
