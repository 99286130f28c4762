"""Models that see or hear: the projector that is fetched, counted and started beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.process.launch import Launch
from agent.process.rebuilt import models_of
from reconciler.api.inferenceservice import InferenceService
from reconciler.api.meta import ObjectRef, Resource
from reconciler.api.model import Model
from reconciler.capacity.pools import pools
from reconciler.capacity.smaller import ModelRequest
from reconciler.core.observation import Observation
from reconciler.core.planner import Policy, make_plan
from reconciler.fleet.command import Command
from reconciler.fleet.fleet import Fleet, RepositoryFile
from reconciler.fleet.model_file import ModelFile, known_by, with_companions
from reconciler.fleet.workload import Workload
from reconciler.memory import ModelFacts
from reconciler.placement.assignment import Assignment, assign
from reconciler.placement.explanation import explain_service
from reconciler.report.explain import explain_json, explain_text
from reconciler.report.plan_json import plan_json
from reconciler.runtimes import RUNTIMES
from reconciler.runtimes.runtime import NodeFacts
from tests.capacity.test_pools import L4, LARGE, told
from tests.capacity.test_pools import node as machine
from tests.placement.test_placement import declared, facts, fleet, model, node, rules, service
from tests.support.builders import FixedCauses, instance, model_file, observed, workload
from tests.support.cluster_views import desired as desired_of
from tests.support.engines import service as service_of
from tests.support.engines import workload as rendered_from
from tests.support.fleets import model as model_text
from tests.support.fleets import node as node_text
from tests.support.fleets import service as service_text
from tests.support.manifests import engine_of, init_containers, one_service

GIB = 2**30
URL = "https://models.test/mmproj.gguf"
PROJECTOR = ModelFacts("clip", 2 * GIB, 2 * GIB, 0, 439, 0, {})
SEES, ITS = ObjectRef("Model", "default", "m"), ObjectRef("Model", "default", "m/mmproj")
KNOWN = {SEES: facts(), ITS: PROJECTOR}


def seeing(**spec: Any) -> Model:
    made = model("m", mmproj=URL, **spec)
    assert isinstance(made, Model)
    return made


def assigned(known: dict[ObjectRef, ModelFacts], *objects: Resource) -> Assignment:
    return assign(fleet(node(), *(objects or (seeing(), service()))), known)


def a_file(sha256: str | None = "cd" * 32, **more: Any) -> ModelFile:
    own = ModelFile("gemma/mmproj", more.pop("source", URL), "gguf", sha256, 300)
    return model_file(projector=own, **more)


def command(runtime: str, **spec: Any) -> Command:
    """Of a model `tiny` with a projector."""
    made = rendered_from(service_of(runtime=runtime, **spec))
    its = ModelFile("tiny/mmproj", URL, "gguf")
    made = replace(made, models=tuple(replace(m, projector=its) for m in made.models))
    paths = {"tiny": "/store/tiny.gguf", "tiny/mmproj": "/store/mmproj.gguf"}
    return RUNTIMES[runtime].command(made, NodeFacts(model_paths=paths))


# --- memory


def test_a_projector_takes_memory_of_its_own_and_has_its_line() -> None:
    plain = ModelRequest(LARGE, told())
    beside = replace(plain, projector=PROJECTOR)

    more = beside.estimate.total_bytes - plain.estimate.total_bytes
    assert more == beside.estimate.projector_bytes == 2 * GIB
    assert "projector  2.0 GiB = 439 tensors of the file" in beside.estimate.arithmetic
    assert beside.estimate.unknown == ("the projector's buffers for an image",)


def test_a_projector_has_buffers_for_an_image_of_the_size_in_its_header() -> None:
    """Of Gemma 3: llama.cpp takes 121 MiB for them. Of CLIP with 336 pixels it takes 25.25 MiB."""
    sizes = {"image_size": 896, "patch_size": 14, "embedding_length": 1152}
    keys = {f"clip.vision.{name}": size for name, size in sizes.items()}
    seen = replace(PROJECTOR, keys={**keys, "clip.vision.feed_forward_length": 4304})
    small = {"clip.vision.image_size": 336, "clip.vision.embedding_length": 1024}
    clip = replace(seen, keys={**seen.keys, **small, "clip.vision.feed_forward_length": 4096})

    def buffers(projector: ModelFacts) -> float:
        made = replace(ModelRequest(LARGE, told()), projector=projector).estimate
        return (made.projector_bytes - 2 * GIB) / 2**20

    assert 121.25 <= buffers(seen) < 200
    assert 25.25 <= buffers(clip) < 27
    (unknown,) = replace(ModelRequest(LARGE, told()), projector=seen).estimate.unknown
    assert unknown == "the projector's buffers for an image larger than 896 x 896"


def test_two_processes_of_one_file_have_a_projector_each() -> None:
    made = replace(ModelRequest(LARGE, told(), "sha"), projector=PROJECTOR)
    (host,) = made.needs_in(pools(machine()))

    assert host.weights == (("sha", LARGE.weights_bytes),)
    assert host.bytes == made.estimate.total_bytes


def test_a_projector_is_on_the_first_device_only() -> None:
    known = pools(machine(devices=(L4, L4)))
    two = told(devices=2)
    made = replace(ModelRequest(LARGE, two), projector=PROJECTOR)

    host, first, second = made.needs_in(known)

    plain = ModelRequest(LARGE, two).needs_in(known)
    assert (host, second) == plain[::2]
    assert first.bytes == plain[1].bytes + 2 * GIB


def test_without_layers_on_a_device_the_projector_is_not_there_either() -> None:
    off = told(gpu_layers=0)
    made = replace(ModelRequest(LARGE, off), projector=PROJECTOR)

    host, device = made.needs_in(pools(machine(devices=(L4,))))
    plain = replace(made, projector=None).needs_in(pools(machine(devices=(L4,))))

    assert device == plain[1]
    assert host.bytes == plain[0].bytes + 2 * GIB


def test_a_projector_can_be_what_does_not_fit() -> None:
    large = replace(PROJECTOR, weights_bytes=20 * GIB)

    assert rules(assigned(KNOWN)) == {}
    assert rules(assigned({SEES: facts(), ITS: large})) == {"chat": "MemoryFits"}


def test_what_is_offered_where_it_does_not_fit_has_the_projector_in_it() -> None:
    long = replace(facts(), keys={**facts().keys, "llama.context_length": 10**8})
    known = {SEES: long, ITS: PROJECTOR}

    (held,) = assigned(known, seeing(), service(contextSize=10**8)).holds

    fitting = int(held.finding.message.partition("contextSize: ")[2].split()[0])
    assert rules(assigned(known, seeing(), service(contextSize=fitting))) == {}
    more = service(contextSize=fitting + 256)
    assert rules(assigned(known, seeing(), more)) == {"chat": "MemoryFits"}


@pytest.mark.parametrize("absent", [SEES, ITS])
def test_while_either_header_is_unknown_so_is_the_memory(absent: ObjectRef) -> None:
    made = assigned({ref: known for ref, known in KNOWN.items() if ref != absent})

    assert [w.memory for w in made.workloads] == [None]
    (note,) = [found for found in made.warnings if found.rule == "SizeUnknown"]
    assert note.ref == SEES


def test_an_explanation_says_what_of_it_is_the_projector() -> None:
    chat = service()
    assert isinstance(chat, InferenceService)
    here = fleet(node(), seeing(), chat)
    found = explain_service(chat, here, KNOWN, assign(here, KNOWN))

    text = explain_text(found, None)
    assert "\n  projector  2.0 GiB = 439 tensors of the file\n" in text
    assert "\n  not known: the projector's buffers for an image\n" in text
    memory = explain_json(found, None)["memory"]
    parts = [size for name, size in memory.items() if name.endswith("Bytes")]
    assert memory["projectorBytes"] == 2 * GIB
    assert sum(parts) == 2 * memory["totalBytes"]


# --- what is wrong with one


def test_a_projector_in_the_place_of_a_model_is_not_served() -> None:
    made = assigned({SEES: PROJECTOR}, model("m"), service())

    (held,) = made.holds
    assert (held.finding.rule, held.finding.field) == ("ProjectorMismatch", "spec.modelRef")
    assert "Model m spec.source is a projector" in held.finding.message
    assert made.workloads == ()


def test_a_model_of_another_format_may_be_called_as_projectors_are() -> None:
    made = assigned({SEES: PROJECTOR}, model("m", format="safetensors"), service(runtime="vllm"))

    assert rules(made) == {}


def test_a_model_in_the_place_of_a_projector_is_not_served() -> None:
    (held,) = assigned({SEES: facts(), ITS: facts()}).holds

    assert held.finding.rule == "ProjectorMismatch"
    assert "Model m spec.mmproj is a model (llama)" in held.finding.message


def test_what_a_hub_says_of_a_projector_holds_back_pods_and_is_no_input_of_any() -> None:
    pool = node(agent=None, kubernetes={"cluster": "prod"})
    right, wrong = (
        assign(fleet(pool, seeing(), service()), k) for k in (KNOWN, {**KNOWN, ITS: facts()})
    )

    (pods,) = right.workloads
    assert rules(wrong) == {"chat": "ProjectorMismatch"}
    assert pods.memory is not None
    unknown = assign(fleet(pool, seeing(), service()), {}).workloads[0]
    assert pods.as_pods.model_files == unknown.model_files
    assert (pods.as_pods.memory, pods.as_pods.needs) == (None, pods.needs)


@pytest.mark.parametrize(
    ("runtime", "form"), [("mlx-lm", "mlx"), ("mlx-server", "mlx"), ("vllm", "safetensors")]
)
def test_a_runtime_that_takes_no_projector_does_not_serve_the_model_without_it(
    runtime: str, form: str
) -> None:
    made = assigned({}, seeing(format=form), service(runtime=runtime))

    (held,) = made.holds
    assert (held.finding.rule, made.workloads) == ("FormatMismatch", ())
    assert f"{runtime} takes no projector, and Model m has spec.mmproj" in held.finding.message
    assert "llama-server or llamacpp-router" in held.finding.message


# --- what it is started from


def test_both_files_are_named_to_one_server() -> None:
    argv = command("llama-server").argv

    at = argv.index("--mmproj")
    assert argv[at - 2 : at + 3] == (
        *("--model", "/store/tiny.gguf"),
        *("--mmproj", "/store/mmproj.gguf", "--mmproj-offload"),
    )
    assert "--no-mmproj-offload" in command("llama-server", gpuLayers=0).argv


def test_both_files_are_named_in_a_routers_section_of_the_model() -> None:
    (preset,) = command("llamacpp-router", models=[{"name": "tiny"}]).files.values()

    lines = preset.splitlines()
    assert "mmproj = /store/mmproj.gguf" in lines
    assert "mmproj-offload = true" in lines
    assert "model = /store/tiny.gguf" in lines


def test_another_projector_makes_another_process() -> None:
    one, other = workload(models=(a_file(),)), workload(models=(a_file("ef" * 32),))

    assert one.process_digest != other.process_digest
    (change,) = plan_of([other], observed(instance(of=one)))
    assert (change["action"], change["reason"]) == ("replace", "ModelChanged")
    assert [field["path"] for field in change["fields"]] == ["model.gemma.mmprojSha256"]
    assert change["impact"]["downloadBytes"] == 1300


def test_a_process_without_projector_is_what_it_was_before_there_were_any() -> None:
    assert set(model_file().inputs) == {"name", "source", "format", "sha256"}


def test_a_process_remembers_its_projector() -> None:
    made = workload(models=(a_file(), model_file("b")))
    launch = Launch(made.ref, Command(()), made.inputs, made.inputs_digest, "", made.runtime, 1)

    again = models_of(launch)

    assert [m.inputs for m in again] == [m.inputs for m in made.models]
    names = [file.name for file in with_companions(again)]
    assert names == ["gemma", "gemma/mmproj", "b"]


def test_a_signed_address_of_a_projector_is_shown_to_nobody() -> None:
    signed = workload(models=(a_file(source=f"{URL}?signature=secret"),))

    assert not any("secret" in name for name in known_by(signed.inputs))
    assert "secret" not in str(plan_of([signed], observed(instance(of=workload()))))


@pytest.mark.parametrize("source", [7, None, ["https://models.test/a?b"], {"?": 1}])
def test_sources_that_are_no_texts_are_shown_as_they_came(source: object) -> None:
    """A node may say anything of what it runs, and a plan compares with it."""
    said = {**workload().inputs, "models": [{"name": "gemma", "source": source, "mmproj": source}]}

    (change,) = plan_of([workload()], observed(replace(instance(), inputs=said, inputs_digest="")))

    assert change["action"] == "replace"


# --- what comes over the network


def plan_of(wanted: Sequence[Workload], there: Observation) -> list[dict[str, Any]]:
    made = make_plan("r", wanted, [], there, Policy(), FixedCauses())
    return list(plan_json(made)["changes"])


def test_a_projector_is_downloaded_beside_its_model_and_once_on_a_node() -> None:
    other = a_file(name="b", source=URL)  # the same projector, under the same digest
    other = replace(other, sha256="ba" * 32)
    wanted = [workload("one", models=(a_file(),)), workload("two", models=(other,))]

    first, second = plan_of(wanted, observed())
    (third,) = plan_of(wanted[:1], observed(cached=frozenset({"cd" * 32})))

    assert first["impact"]["downloadBytes"] == 1000 + 300
    assert second["impact"]["downloadBytes"] == 1000
    assert third["impact"]["downloadBytes"] == 1000


def test_a_projector_of_unknown_size_leaves_the_download_unknown() -> None:
    wanted = a_file()
    assert wanted.projector is not None
    wanted = replace(wanted, projector=replace(wanted.projector, size_bytes=None))

    (change,) = plan_of([workload(models=(wanted,))], observed())

    assert change["impact"]["downloadBytes"] is None


def test_what_pins_no_projector_is_said() -> None:
    (change,) = plan_of([workload(models=(a_file(None),))], observed())

    assert change["message"] == "not pinned: gemma/mmproj has no sha256"


def test_the_line_that_pins_a_projector_is_what_its_change_cites() -> None:
    texts = {
        "node.yaml": node_text(),
        "chat.yaml": service_text("chat", "gemma"),
        "model.yaml": model_text("gemma", mmproj=URL, mmprojSha256="ab" * 32),
    }
    made = desired_of(texts)
    before = replace(made.assignment.workloads[0], models=(model_file(sha256=None),))

    (change,) = made.plan(observed(instance(of=before))).changes

    assert {f.path for f in change.fields} == {"model.gemma.mmproj", "model.gemma.mmprojSha256"}
    assert change.source is not None
    assert (change.source.file, change.source.line) == ("model.yaml", 6)


# --- in a repository, and in a cluster


def test_a_projector_is_a_model_of_another_name_whatever_was_asked_of_the_first() -> None:
    sees = seeing(sourceSecretRef={"name": "hub"})
    assert sees.ref == SEES

    parts = [(part.ref, part.format, at) for part, at, _ in sees.parts]
    assert parts == [(SEES, "gguf", "spec.source"), (ITS, "gguf", "spec.mmproj")]


def test_a_projector_in_the_repository_is_pinned_by_its_bytes() -> None:
    sees = declared("Model", "m", {"mmproj": "models/mmproj.gguf"})
    stored = {"models/mmproj.gguf": RepositoryFile("models/mmproj.gguf", 5, "ee" * 32)}
    here: Fleet = replace(fleet(node(), sees, service()), files=stored)

    (made,) = assign(here, {}).workloads

    assert [(f.name, f.sha256, f.size_bytes) for f in made.model_files] == [
        ("m", None, None),
        ("m/mmproj", "ee" * 32, 5),
    ]


def test_a_pod_fetches_the_projector_with_its_models_secret_and_is_started_with_it() -> None:
    secret = {"sourceSecretRef": {"name": "hub"}}
    gemma = model_text("gemma", mmproj=URL, mmprojSha256="ab" * 32, **secret)

    made = one_service(models=[gemma])

    fetch, second = init_containers(made)[:2]
    assert [c["envFrom"] for c in (fetch, second)] == [[{"secretRef": {"name": "hub"}}]] * 2
    assert f"--source={URL}" in second["args"]
    args = engine_of(made)["args"]
    assert args[args.index("--mmproj") + 1] == f"/models/ready/{'ab' * 32}/mmproj.gguf"
